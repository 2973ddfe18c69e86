"""Results of cancelling, rescheduling and looking up one message."""

from enum import StrEnum
from typing import NamedTuple

from mq_django.core.messages import Message


class CancelResult(StrEnum):
    """The result of cancelling or rescheduling one message. It is true when that was done."""

    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    #: Another message took its place under their unique key within the last day.
    REPLACED = "replaced"
    #: It was ready first: it is being handled, was handled, or never was.
    NOT_WAITING = "not waiting"

    def __bool__(self) -> bool:
        return self in (CancelResult.CANCELLED, CancelResult.RESCHEDULED)


class Place(StrEnum):
    """Where a message waits, if it waits."""

    DELAYED = "delayed"
    #: No consumer knows its name.
    UNHANDLED = "unhandled"
    #: It is ready, behind others that go before it.
    PRIORITY = "priority"
    #: Over the limit of its key.
    PARKED = "parked"
    #: Another message took its place under their unique key within the last day.
    REPLACED = "replaced"
    #: It is ready, is being handled, was handled, or never was.
    NOT_WAITING = "not waiting"


class Lookup(NamedTuple):
    """The result of looking up one message. It is true when the message waits."""

    #: Where it waits, or why it does not.
    place: Place
    #: None when it does not wait, or its body is no message.
    message: Message | None = None
    #: Milliseconds since 1970, by Redis's clock; of delayed messages only.
    due_ms: int | None = None

    def __bool__(self) -> bool:
        return self.place not in (Place.REPLACED, Place.NOT_WAITING)
