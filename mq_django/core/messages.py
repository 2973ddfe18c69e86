"""The values that travel: messages, deliveries, dead letters."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Message(NamedTuple):
    """What was published. It never changes.

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
    #: What became of earlier attempts: see `mq_django.core.attempt_history`.
    history: str = ""


class Undecodable(NamedTuple):
    """An entry that is not a message: it is buried with its bytes and the reason."""

    home: int
    entry: bytes
    fields: list[bytes]
    reason: str


class DeadLetter(NamedTuple):
    """A buried message with its reason and its origin."""

    #: The id of its entry in the dead-letter queue.
    entry: str
    #: The message's id; of what could not be decoded, the entry it was.
    id: str
    #: The message as it was; None when it could not be decoded.
    message: Message | None
    #: `attempts`, `error`, `undecodable`, `crashed` or `expired`.
    reason: str
    error: str
    traceback: str
    attempts: int
    #: Milliseconds since 1970.
    first_ms: int | None
    buried_ms: int
    #: The entry as it came, for what could not be decoded: at most 64 KiB.
    raw: bytes = b""
    #: What became of its attempts: see `mq_django.core.attempt_history`.
    history: str = ""
    #: Bytes of its data, or of what could not be decoded.
    size: int = 0
