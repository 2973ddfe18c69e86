"""What running a delivery yields: a value, settled later in a batch."""

from dataclasses import dataclass
from typing import Any

from mq_django.core.times import Duration


@dataclass(frozen=True, slots=True)
class Ack:
    """Done."""

    #: What a task returned; kept for `RESULT_TTL` when it asks for that.
    result: Any = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Again later; this attempt counts.

    A handler may return one, or raise any exception and let its `RetryPolicy` choose the delay.
    """

    #: A timedelta or seconds; None: the retry policy decides.
    delay: Duration | None = None
    error: str = ""
    traceback: str = ""
    #: With nothing beside it: it was running when its process died.
    alone: bool = False


@dataclass(frozen=True, slots=True)
class HandBack:
    """Again now, to its place; this attempt does not count."""

    #: Its consumer vanished with its machine, and nobody knows what was running. What that happens to twice runs alone.
    lost: bool = False
    #: Its process died while it was running, and others were. It runs alone from then on; if that ends a process again,
    #: both deliveries are charged.
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Bury:
    """Give up: to the dead-letter queue."""

    error: str = ""
    traceback: str = ""
    #: `attempts`, `error`, `undecodable`, `crashed` or `expired`.
    reason: str = "error"


@dataclass(frozen=True, slots=True)
class SetAside:
    """No handler of that name lives here: to `unhandled`, uncharged."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Too old to be handled: counted, and gone."""


Outcome = Ack | Retry | HandBack | Bury | SetAside | Expire

#: The one that nearly every delivery yields.
ACK = Ack()
