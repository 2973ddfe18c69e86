"""What running a delivery yields: a value, settled later in a batch."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Ack:
    """The message is handled. A handler that returns anything but an outcome means this, too."""

    #: What a task returned, as JSON text; kept for the queue's RESULT_TTL.
    result: Any = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Handle the message again later; this attempt counts.

    A handler may return one, or raise any exception and let its `RetryPolicy` choose the delay.

        @handler("invoices", "paid")
        def send_receipt(message):
            if not is_booked(message.data["invoice_id"]):
                return Retry(delay=30, error="not booked yet")
    """

    #: A timedelta or seconds; None: the retry policy decides.
    delay: timedelta | float | None = None
    #: One line, for people: it is logged, and shown in the admin with the traceback.
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
    """Do not handle the message again: move it to the dead-letter queue.

        @handler("invoices", "paid")
        def send_receipt(message):
            if not Invoice.objects.filter(pk=message.data["invoice_id"]).exists():
                return Bury("no such invoice")

    An operator can look at it there, and redrive it.
    """

    #: One line, for people: it is logged, and shown in the admin with the traceback.
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
