"""Messages and deliveries."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

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
    #: The earlier attempts: see `mq_django.core.attempts`.
    history: str = ""
    #: A moment before it was read, in seconds of the monotonic clock; 0 for what no consumer has read.
    read_at: float = 0.0


class Undecodable(NamedTuple):
    """An entry that is not a valid message. It is buried with its bytes and the reason."""

    stream: int
    entry: bytes
    fields: list[bytes]
    reason: str
