"""The values that travel: messages and deliveries."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Message(NamedTuple):
    """A message, as handlers, subscribers and signals get it. It never changes.

    A named tuple, because one is made for every delivery and a frozen dataclass takes four times as long to build.
    """

    id: str
    #: Chooses the handler; CloudEvents calls it `type`.
    name: str
    #: JSON: None, bool, int, float, str, list, dict.
    data: Any
    queue: str
    #: The number of this delivery, from 1.
    attempt: int = 1
    #: What the message is about, such as `order:7`; limits and partitions go by it.
    key: str | None = None
    #: When it was published: milliseconds since 1970, or None when nobody said so.
    published_ms: int | None = None
    #: Not handled after this moment: milliseconds since 1970.
    expires_ms: int | None = None
    #: -100 to 100; higher runs sooner.
    priority: int = 0
    #: The unique key it was published under.
    unique: str | None = None
    #: Further CloudEvents attributes: text by lower-case name.
    headers: Mapping[str, str] = NO_HEADERS
    #: Nobody else may publish under its unique key until it is handled, or for a time.
    claims: bool = False


class Delivery(NamedTuple):
    """One handing-out of a message to one consumer, with the proof of holding it."""

    message: Message
    #: Which of the queue's streams it was read from: `READY` or `URGENT` of `mq_django.core.keys`.
    home: int
    #: The id of the stream entry: with the consumer's id, the receipt.
    entry: bytes
    #: The JSON text of `data`, as it came.
    data_text: bytes
    #: It was running when a process died, so it runs with nothing beside it.
    alone: bool = False
    #: Others were running there, too, and this one has not been charged for it: it is when it proves to be the killer.
    suspect: bool = False
    #: What became of earlier attempts: see `mq_django.core.attempts`.
    history: str = ""


class Undecodable(NamedTuple):
    """An entry that is not a message: it is buried with its bytes and the reason."""

    home: int
    entry: bytes
    fields: list[bytes]
    reason: str
