"""Messages and deliveries."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from mq_django.errors import NotSupported

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Message(NamedTuple):
    """A message, as handlers, subscribers and signals get it. It never changes.

    A named tuple, because one is made for every delivery and a frozen dataclass takes four times as long to build.
    """

    id: str
    #: Selects the handler. CloudEvents calls it `type`.
    name: str
    #: JSON: None, bool, int, float, str, list, dict.
    data: Any
    queue: str
    #: The number of this delivery, from 1.
    attempt: int = 1
    #: The subject of the message, such as `order:7`. Limits by key use it.
    key: str | None = None
    #: When it was published, in milliseconds since 1970; None if unknown.
    published_ms: int | None = None
    #: It is not handled after this time, in milliseconds since 1970.
    expires_ms: int | None = None
    #: -100 to 100. A higher one runs earlier.
    priority: int = 0
    #: The unique key under which it was published.
    unique: str | None = None
    #: Further CloudEvents attributes: text by lower-case name.
    headers: Mapping[str, str] = NO_HEADERS
    #: Its unique key is taken for a time, or until it is handled, and not only while it waits.
    claims: bool = False


class Delivery(NamedTuple):
    """One delivery of a message to a consumer."""

    message: Message
    #: The stream that it was read from: `READY`, `URGENT` or `LOG` of `mq_django.core.keys`.
    stream: int
    #: The id of the stream entry.
    entry: bytes
    #: The JSON text of `data` as it was received.
    data_text: bytes
    #: It was running when a process died, so it runs alone.
    alone: bool = False
    #: Other messages were running there as well, so no attempt was charged. It is charged if it ends a process alone.
    suspect: bool = False
    #: The earlier attempts: see `mq_django.core.retries`.
    history: str = ""
    #: A moment before it was read, in seconds of the monotonic clock; 0 for what no consumer has read.
    read_at: float = 0.0
    #: It runs although its name or key is held: the breaker tries whether it succeeds.
    probe: bool = False


class Undecodable(NamedTuple):
    """An entry that is not a valid message. It is buried with its bytes and the reason."""

    stream: int
    entry: bytes
    fields: list[bytes]
    reason: str


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
    #: Inside `atomic()`: it is tried at the commit, and the result is not known yet. bool() raises NotSupported.
    AT_COMMIT = "at commit"

    def __bool__(self) -> bool:
        if self is CancelResult.AT_COMMIT:
            raise NotSupported(
                "Inside atomic() a message is cancelled or rescheduled at the commit, and whether it still waits then "
                "is not known yet: give on_commit=False to do it at once, or compare with CancelResult.AT_COMMIT"
            )
        return self in (CancelResult.CANCELLED, CancelResult.RESCHEDULED)


class LookupState(StrEnum):
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
    state: LookupState
    #: None when it does not wait, or is not valid.
    message: Message | None = None
    #: For delayed messages: when it is due, in milliseconds since 1970 by Redis's clock.
    due_ms: int | None = None
    #: For expired messages: when it was discarded, in milliseconds since 1970 by Redis's clock.
    expired_ms: int | None = None

    def __bool__(self) -> bool:
        return self.state not in (LookupState.REPLACED, LookupState.EXPIRED, LookupState.NOT_WAITING)
