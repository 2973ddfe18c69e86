"""Messages as people see them: those that wait, and the ids of all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from mq_django.conf import RsmqConfig, get_config
from mq_django.core.attempt_history import Attempt
from mq_django.core.filters import Filter
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.messages import Message, Undecodable
from mq_django.core.redaction import redact, redact_forms, redact_text
from mq_django.core.rsmq_format import decode
from mq_django.core.visible import line
from mq_django.core.wire import decode_body, message_of
from mq_django.errors import DecodeError
from mq_django.inspector.attempts import attempts_of
from mq_django.inspector.queue_looks import MAX_LISTED, Pages, Waiter, WaitingPage
from mq_django.inspector.scan import Scanned, scan
from mq_django.inspector.stream_reader import Entries, Entry
from mq_django.stores.dead_letter_queue import next_to, open_dead_letters
from mq_django.stores.entry_fields import text_of
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

#: Where a message that waits is.
Room = Literal["delayed", "unhandled", "parked"]

#: Where a message is.
Place = Literal["delayed", "unhandled", "parked", "ready", "pending", "dead"]

#: Messages asked for at a time where all are read.
BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """A message, with the secrets in its data and headers replaced, and what is one by its form in its names."""

    id: str
    #: Empty when it is not known.
    name: str = ""
    data: Any = None
    #: What `data` has no meaning without: it is left out when it is too long for a page, or no message.
    has_data: bool = False
    #: Bytes it takes in Redis.
    size: int = 0
    attempt: int = 1
    key: str | None = None
    priority: int = 0
    unique: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    published_ms: int | None = None
    expires_ms: int | None = None
    #: Why it is no message; empty when it is one.
    error: str = ""
    #: What became of its attempts, the last one first.
    attempts: Sequence[Attempt] = ()

    def __post_init__(self) -> None:
        for name in ("id", "name", "unique"):
            if value := getattr(self, name):
                object.__setattr__(self, name, redact_forms(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingView:
    """A message in the waiting room."""

    #: What it waits under: its id, `u:` and its unique key, or its place in line.
    member: bytes
    #: What finds it and says nothing: its id, or its place in line; empty when only a unique key finds it.
    handle: bytes
    room: Room
    message: MessageView
    #: When a delayed message is due, in ms since 1970.
    due_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingList:
    """A page of messages in the waiting room, and how many there are in all."""

    now_ms: int
    total: int
    waiting: Sequence[WaitingView]


class Broken(NamedTuple):
    """What waits under an id and cannot be read as a message: too long for a page, or none at all."""

    id: str
    size: int
    #: Empty when it is only too long.
    error: str = ""
    name: str = ""
    key: str | None = None
    published_ms: int | None = None


class Read(NamedTuple):
    """A message that was read for a page."""

    message: Message
    size: int
    history: str = ""


def view_of(
    message: Message, *, size: int, history: str = "", error: str = "", traceback: str | None = None
) -> MessageView:
    """Return a message as people may see it; one that cannot be shown, whatever the reason, is a row that says so.

    See attempts_of() for `history`, `error` and `traceback`.
    """
    try:
        return _view_of(message, size, attempts_of(history, error=error, traceback=traceback))
    except Exception as found:  # noqa: BLE001 - a message is what anybody wrote
        return MessageView(
            id=message.id, name=message.name, size=size, error=f"cannot be shown: {type(found).__name__}"
        )


def _view_of(message: Message, size: int, attempts: Sequence[Attempt]) -> MessageView:
    return MessageView(
        id=message.id,
        name=message.name,
        data=redact(message.data),
        has_data=True,
        size=size,
        attempt=message.attempt,
        key=message.key,
        priority=message.priority,
        unique=message.unique,
        headers=redact(message.headers),
        published_ms=message.published_ms,
        expires_ms=message.expires_ms,
        attempts=attempts,
    )


def shown(found: Read | Broken) -> MessageView:
    """Return what was read as people may see it."""
    if isinstance(found, Read):
        return view_of(found.message, size=found.size, history=found.history)
    return MessageView(id=found.id, name=found.name, size=found.size, error=redact_text(found.error))


def waiting(name: str, room: Room, *, start: int, limit: int) -> WaitingList:
    """Return a page of a queue's delayed messages, those due first coming first, or of its unhandled ones.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    found = _page(name, room, start, limit)
    views = [_waiting(name, room, waiter) for waiter in found.waiters]
    return WaitingList(now_ms=found.now_ms, total=found.total, waiting=views)


def look_among_waiting(name: str, room: Room, wanted: Filter, *, after: str = "", limit: int) -> Scanned[WaitingView]:
    """Return the messages in a room that are wanted, as `waiting` orders them."""

    def read(cursor: str, count: int) -> Sequence[tuple[str, tuple[Waiter, Read | Broken]]]:
        start = int(cursor) if cursor.isdecimal() and len(cursor) < 16 else 0
        found = _page(name, room, start, count).waiters
        return [(str(start + place + 1), (waiter, read_waiter(name, waiter))) for place, waiter in enumerate(found)]

    def matches(row: tuple[Waiter, Read | Broken]) -> bool:
        return wanted.matches(traits(row[1]))

    return scan(read, matches, after=after, limit=limit).shown(lambda row: _waiting(name, room, *row))


def traits(found: Read | Broken) -> Message | Broken:
    """Return what a filter looks at."""
    return found.message if isinstance(found, Read) else found


def _page(name: str, room: Room, start: int, limit: int) -> WaitingPage:
    pages = _pages(name)
    read = {"delayed": pages.delayed, "unhandled": pages.unhandled, "parked": pages.parked}[room]
    return read(start=start, limit=limit, max_bytes=MAX_LISTED)


def find_waiting(name: str, named: bytes) -> WaitingView | None:
    """Return the message that waits, by its id, by `u:` and its unique key, or by what it waits under; or None."""
    found = _pages(name).waiter(named)
    return None if found is None else _waiting(name, found.room, found.waiter)


def search_waiting(name: str, text: str, *, by_unique: bool = True) -> WaitingView | None:
    """Return the message that waits with an id, or with a unique key if `by_unique`; or None."""
    if not by_unique:
        return None if text.startswith(UNIQUE_PREFIX) else find_waiting(name, text.encode())
    return find_waiting(name, text.encode()) or find_waiting(name, (UNIQUE_PREFIX + text).encode())


def ids(name: str) -> Iterator[tuple[Place, list[str]]]:
    """Yield the ids of all messages in a queue, in pages of at most 500 with the place they are in.

    While the queue is at work, a message that moves meanwhile may be there twice, or not at all.
    """
    config, wire = get_config().queue(name), Pooled(get_client("inspect"))
    entries, dead, first = Entries(config, wire), open_dead_letters(config, wire), "-"
    yield from _waiting_ids(name, "delayed")
    yield from _waiting_ids(name, "unhandled")
    yield from _waiting_ids(name, "parked")
    yield from (("pending", found) for found in _entry_ids(entries.pending))
    yield from (("ready", found) for found in _entry_ids(entries.ready))
    while letters := dead.traits(limit=BATCH, first=first):
        yield "dead", [letter.id for letter in letters]
        first = next_to(letters[-1].entry, "-")


def _waiting_ids(name: str, room: Room) -> Iterator[tuple[Place, list[str]]]:
    start = 0
    while found := waiting(name, room, start=start, limit=BATCH).waiting:
        yield room, [view.message.id for view in found]
        start += len(found)


def _entry_ids(read: Callable[..., list[Entry]]) -> Iterator[list[str]]:
    after = ""
    while found := read(after=after, limit=BATCH):
        yield [text_of(each.values.get(b"id")) or each.entry.decode(errors="backslashreplace") for each in found]
        after = found[-1].cursor


def _pages(name: str) -> Pages:
    return Pages(get_config().queue(name), Pooled(get_client("inspect")))


def _waiting(name: str, room: Room, waiter: Waiter, found: Read | Broken | None = None) -> WaitingView:
    due_ms = int(waiter.score) if room == "delayed" and abs(waiter.score) < 2**53 else None
    message = shown(found or read_waiter(name, waiter))
    return WaitingView(member=waiter.member, handle=waiter.handle, room=room, message=message, due_ms=due_ms)


def read_waiter(name: str, waiter: Waiter) -> Read | Broken:
    """Return the message in a body of the waiting room."""
    member, body = (waiter.handle or waiter.member).decode(errors="backslashreplace"), waiter.body
    if body is None:
        return Broken(member, 0, "There is no body under this id: it will be dropped when it is due.")
    if isinstance(body, int):
        return Broken(member, body)
    try:
        message, history = _decoded(name, waiter.member, body)
    except (DecodeError, UnicodeDecodeError) as error:
        return Broken(member, len(body), str(error))
    return Read(message, len(body), waiter.history or history)


def _decoded(name: str, member: bytes, body: bytes) -> tuple[Message, str]:
    if not isinstance(get_config().queue(name), RsmqConfig):
        found = decode_body(body)
        return message_of(found, queue=name, entry=member), str(found.get("story", ""))
    read = decode(body, queue=name, message_id=line(member), first_ms=0, attempt=1, alone="", receipt=member)
    if isinstance(read, Undecodable):
        raise DecodeError(read.reason)
    return read.message, ""
