"""What is said of a message that waits, or does not."""

from enum import StrEnum
from typing import NamedTuple

from mq_django.core.messages import Message


class Answer(StrEnum):
    """What became of a wish about one message. True when the wish was granted."""

    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    #: Another message took its place under their unique key within the last day.
    REPLACED = "replaced"
    #: It was ready first: it is being handled, was handled, or never was.
    NOT_WAITING = "not waiting"

    def __bool__(self) -> bool:
        return self in (Answer.CANCELLED, Answer.RESCHEDULED)


class Place(StrEnum):
    """Where a message waits, if it does."""

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


class Found(NamedTuple):
    """What a look-up brought. True when the message waits."""

    place: Place
    #: None when it does not wait, or its body is no message.
    message: Message | None = None
    #: Milliseconds since 1970, by Redis's clock; of delayed messages only.
    due_ms: int | None = None

    def __bool__(self) -> bool:
        return self.place not in (Place.REPLACED, Place.NOT_WAITING)
