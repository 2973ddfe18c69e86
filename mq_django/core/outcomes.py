"""The outcomes of deliveries: values, which are settled later in batches."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any


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
    delay: timedelta | float | None = None
    error: str = ""
    traceback: str = ""
    #: It runs alone, because it was running when its process died.
    alone: bool = False


@dataclass(frozen=True, slots=True)
class HandBack:
    """The message goes back to its place in the queue. This attempt does not count."""

    #: Its supervisor died, and it is not known what was running. A message to which that happens twice runs alone.
    lost: bool = False
    #: Its process died while it and others were running. It runs alone from then on. If it ends another process, both
    #: attempts are charged.
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
    """No handler of its name is known here. The message waits in `unhandled`, and the attempt does not count."""


@dataclass(frozen=True, slots=True)
class Expire:
    """The message has expired. It is counted and deleted."""


Outcome = Ack | Retry | HandBack | Bury | SetAside | Expire

#: The most frequent outcome, made once.
ACK = Ack()
