"""Results of cancelling, rescheduling and looking up one message."""

from enum import StrEnum
from typing import NamedTuple

from mq_django.core.messages import Message


class CancelResult(StrEnum):
    """The result of cancelling or rescheduling one message. It is true when that was done."""

    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    #: Another message with the same unique key replaced it within the last day.
    REPLACED = "replaced"
    #: It is ready, is being handled, was handled, or never existed.
    NOT_WAITING = "not waiting"
    #: It does not wait, so its consumer was asked to cancel it: it does not start, and its running handler is
    #: interrupted within a second. It may have ended before, or never have existed.
    ASKED = "asked"
    #: Inside `atomic()`: it is tried at the commit, and the result is not known yet.
    AT_COMMIT = "at commit"

    def __bool__(self) -> bool:
        return self in (CancelResult.CANCELLED, CancelResult.RESCHEDULED)


class Place(StrEnum):
    """Where a message waits, if it waits."""

    DELAYED = "delayed"
    #: No consumer has a handler of its name.
    UNHANDLED = "unhandled"
    #: It is ready, behind messages that run first.
    PRIORITY = "priority"
    #: Over the limit of its key.
    PARKED = "parked"
    #: In the outbox of a database: no relay has published it yet.
    OUTBOX = "outbox"
    #: Another message with the same unique key replaced it within the last day.
    REPLACED = "replaced"
    #: It was discarded within the last week, because it had expired before it was handled.
    EXPIRED = "expired"
    #: It is ready, is being handled, was handled, or never existed.
    NOT_WAITING = "not waiting"


class Lookup(NamedTuple):
    """The result of looking up one message. It is true when the message waits."""

    #: Where it waits, or why it does not.
    place: Place
    #: None when it does not wait, or is not valid.
    message: Message | None = None
    #: For delayed messages: when it is due, in milliseconds since 1970 by Redis's clock.
    due_ms: int | None = None
    #: For expired messages: when it was discarded, in milliseconds since 1970 by Redis's clock.
    expired_ms: int | None = None

    def __bool__(self) -> bool:
        return self.place not in (Place.REPLACED, Place.EXPIRED, Place.NOT_WAITING)
