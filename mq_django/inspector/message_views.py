"""Views of messages for display, with secrets replaced.

A reader decodes and filters messages. It builds views only of those that match, because redaction takes longest.
"""

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Literal, Protocol, get_args

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.filters import NOTHING, Filterable, may_match
from mq_django.core.keys import GROUP_SEPARATOR, READY
from mq_django.core.logs import get_logger
from mq_django.core.message_format import decode_entry, entry_ms, moment
from mq_django.core.message_streams import Chunk, read_chunk
from mq_django.core.messages import Delivery, Ending, Message
from mq_django.core.partitions import public_name
from mq_django.core.redaction import is_redacted, redact, redact_forms, redact_text
from mq_django.core.retries import Attempt, read_history
from mq_django.core.running_handler import Progress
from mq_django.core.texts import class_name
from mq_django.errors import StoreError, UnknownQueue
from mq_django.stores.dead_letters import fields_of, text_of
from mq_django.stores.results import read_progress_of
from mq_django.transport.connections import open_transport, open_transports
from mq_django.transport.sessions import Transport, reply_or_raise

#: Where a message is, or "handled": what became of it. Only topics have "log".
MessageState = Literal["ready", "pending", "delayed", "unhandled", "parked", "dead", "handled", "log"]

#: A body of more bytes than this is left out of a page of messages.
MAX_LISTED = 32 * 1024

#: The states of messages that wait, as sorted sets with bodies.
WaitingState = Literal["delayed", "unhandled", "parked"]

#: Messages that a reader scanned: the cursor and the view of each, None if it does not match.
Rows = Iterator[tuple[str, "MessageView | None"]]
#: The same; for a filter of data, the number of several that do not match may stand for them, with the last cursor.
ScannedRows = Iterator[tuple[str, "MessageView | int | None"]]


class Matcher(Protocol):
    """Selects messages, as a filter does. Without `data`, it does not use the data of messages."""

    @property
    def data(self) -> str: ...

    def matches(self, message: Filterable) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """A message, with the secrets in its texts replaced, and what its state says about it."""

    state: MessageState = "ready"
    #: By it the message is found again within its state. With `u:` before it is a unique key, which may hold data.
    ref: str = ""
    id: str
    #: Empty when it is not known.
    name: str = ""
    data: Any = None
    #: Whether `data` is set. It is not for a message that is too long for a page, or not valid.
    has_data: bool = False
    #: Bytes of its data as JSON; if these were not read, of what was found instead.
    size: int = 0
    attempt: int = 1
    #: Real, so that its line is found; `mq_django.inspect` replaces its secrets.
    key: str | None = None
    priority: int = 0
    unique: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    published_ms: int | None = None
    expires_ms: int | None = None
    #: Why it is not a valid message; empty if it is.
    problem: str = ""
    #: Attempts, the last one first.
    attempts: Sequence[Attempt] = ()
    #: When it became ready, is due, was buried, ended, or was published into the log, in ms since 1970.
    at_ms: int | None = None
    #: The consumer that holds or has handled it; empty for others.
    consumer: str = ""
    #: Of a pending one: ms since it was delivered, or since its lease was last extended.
    held_ms: int = 0
    #: Why it is dead: `attempts`, `error`, `undecodable`, `crashed`, `expired` or `uncertain`.
    reason: str = ""
    error: str = ""
    #: Empty in lists.
    traceback: str = ""
    #: How many attempts a dead one had.
    tries: int = 0
    #: The raw bytes of a dead one that could not be decoded, with secrets replaced.
    raw: bytes = b""
    #: The outcome of a handled message, when its handler started, and how many seconds it ran; None if unknown.
    ending: Ending | None = None
    started_ms: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("id", "name", "unique"):
            if value := getattr(self, name):
                object.__setattr__(self, name, redact_forms(value))


def name_of(ref: str) -> bytes:
    """Return the bytes of a reference: a member need not be UTF-8."""
    return ref.encode(errors="surrogateescape")


def ref_of(name: bytes) -> str:
    """Return the reference of an entry or a member."""
    return name.decode(errors="surrogateescape")


def is_in_log(state: MessageState, ref: str) -> bool:
    """Return whether a message of a group is one that it reads from the log of its topic, where the message stays."""
    return state == "ready" and ref.startswith("log.")


def view_of(
    message: Message, *, size: int, history: str = "", failure: tuple[str, str] | None = None, **about: Any
) -> MessageView:
    """Return the view of a message; if it cannot be built, a view with the error.

    See attempts_of() for `history` and `failure`. `size` is for the view with the error. `about` are the attributes
    that its state adds.
    """
    try:
        attempts = attempts_of(history, failure)
        return MessageView(
            id=message.id,
            name=message.name,
            data=redact(message.data),
            has_data=True,
            size=_size_of(message.data),
            attempt=message.attempt,
            key=message.key,
            priority=message.priority,
            unique=message.unique,
            headers=redact(message.headers),
            published_ms=message.published_ms,
            expires_ms=message.expires_ms,
            attempts=attempts,
            **about,
        )
    except Exception as found:  # noqa: BLE001 - any program may have written the message
        problem = f"cannot be shown: {class_name(type(found))}"
        return MessageView(id=message.id, name=message.name, size=size, problem=problem, **about)


def _size_of(data: Any) -> int:
    if isinstance(data, bytes):
        return len(data)
    # Not dumps(): another program may have written a lone surrogate.
    return len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass"))


def attempts_of(history: str, failure: tuple[str, str] | None = None) -> tuple[Attempt, ...]:
    """Return the attempts of a history, the last one first, each with its traceback and without secrets.

    `failure` is the error and the traceback of the last attempt, if stored separately, as in a dead letter.
    """
    found = read_history(history)
    if found and failure is not None:
        error, traceback = failure
        found[-1] = found[-1]._replace(error=error or found[-1].error, traceback=traceback)
    shown: list[Attempt] = []
    # None means: the same traceback as the attempt before, which may no longer be in the history.
    last = ""
    for attempt in found:
        last = last if attempt.traceback is None else redact_text(attempt.traceback)
        shown.append(attempt._replace(error=redact_text(attempt.error), traceback=last))
    return tuple(reversed(shown))


def view_if(where: Matcher, message: Message, *, size: int, history: str = "", **about: Any) -> MessageView | None:
    """Return the view of a message, or None if it does not match. A long message is read whole for a filter of data."""
    if not where.matches(message):
        return None
    view = view_of(message, size=size, history=history, **about)
    return replace(view, data=None, has_data=False) if where.data and size > MAX_LISTED else view


def without_data(
    where: Matcher, message_id: str, *, size: int, name: str = "", why: str = "", **about: Any
) -> MessageView | None:
    """Return the view of an invalid message with the reason; without a reason, of one that is too long for a page."""
    view = MessageView(id=message_id, name=name, size=size, problem=redact_text(why), **about)
    return view if where.matches(view) else None


def view_of_entry(
    queue: str, entry: bytes, flat: list[Any], where: Matcher = NOTHING, **about: Any
) -> MessageView | None:
    """Return the view of a stream entry from its fields in a script's reply; None if it does not match."""
    if where.data and not may_match([entry, *(each for each in flat if isinstance(each, bytes))], where.data):
        return None
    sizes = [value if isinstance(value, int) else len(value) for value in flat[1::2]]
    is_cut = any(isinstance(value, int) for value in flat[1::2])
    found = None if is_cut or not flat else decode_entry(flat, queue=queue, stream=READY, entry=entry)
    about["at_ms"] = entry_ms(entry)
    if isinstance(found, Delivery):
        return view_if(where, found.message, size=sum(sizes), history=found.history, **about)
    fields = fields_of(flat)
    name, message_id = text_of(fields.get(b"type")), text_of(fields.get(b"id")) or entry.decode()
    why = found.reason if found else "" if is_cut else "deleted while it was pending"
    return without_data(where, message_id, size=sum(sizes), name=name, why=why, **about)


logger = get_logger(__name__)


def progress_of(asked: Sequence[tuple[str, str]]) -> list[Progress | None]:
    """Return the progress of messages, with the secrets in their notes replaced, in one round trip per server.

    It is None for one of which none is known, and for all if one cannot be read: a page shows the rest.

    Args:
        asked: the queue and the id of each message. Messages of queues that are not configured have no progress.
    """
    found: list[Progress | None] = [None] * len(asked)
    known = []
    for number, (queue, message_id) in enumerate(asked):
        try:
            known.append((number, get_config().queue(queue), message_id))
        except UnknownQueue:
            continue
    if not known:
        return found
    transports = open_transports("inspect", [config.connection for _, config, _ in known])
    try:
        read = read_progress_of([(config, message_id) for _, config, message_id in known], transports)
    except StoreError as error:
        logger.warning("The progress of messages cannot be read: %s", error)
        return found
    for (number, _, _), progress in zip(known, read, strict=True):
        found[number] = None if progress is None else replace(progress, note=redact_text(progress.note))
    return found


def progress_line(done: float, total: float | None, note: str, **_: object) -> str:
    """Return progress as text for a terminal: "3 of 10, 30 %: note"."""
    progress = Progress(done=done, total=total)
    text = f"{done:.10g}" if total is None else f"{done:.10g} of {total:.10g}"
    if progress.fraction is not None:
        text += f", {math.floor(progress.fraction * 100)} %"
    return f"{text}: {note}" if note else text


def moment_text(ms: int | None) -> str | None:
    """Return a time as text; None without one, or if it is no date: any program may have written it."""
    with suppress(ValueError, OverflowError, OSError):
        return None if ms is None else moment(ms)
    return None


def exported(view: MessageView) -> dict[str, Any]:
    """Return a message as JSON values for a file, with the names of the attributes in Redis."""
    row: dict[str, Any] = {
        "id": view.id,
        "type": view.name,
        "data": view.data,
        "partitionkey": view.key and redact_forms(view.key),
        "headers": dict(view.headers),
    }
    if view.state == "dead":
        failed = {"reason": view.reason, "error": view.error, "traceback": view.traceback}
        row |= {**failed, "attempts": view.tries, "buried_ms": view.at_ms}
        raw = {"unreadable": view.problem, "raw": view.raw.decode(errors="backslashreplace")}
        return row | (raw if view.problem else {})
    row |= {"priority": view.priority, "unique": view.unique, "attempt": view.attempt}
    row |= {"published_ms": view.published_ms, "expires_ms": view.expires_ms}
    if view.state in get_args(WaitingState):
        row["due_ms"] = view.at_ms
    if view.state == "handled":
        times = {"started_ms": view.started_ms, "finished_ms": view.at_ms}
        row |= {"ending": view.ending, **times, "consumer": view.consumer}
    return row | ({"unreadable": view.problem} if view.problem else {})


# A message as texts to copy: as JSON, and as the commands that publish it again.

#: A word that redis-cli reads without quotation marks.
_PLAIN = re.compile(r"[\w.:{}@*+|/=-]+", re.ASCII)


def as_json(view: MessageView) -> str:
    """Return a message as JSON."""
    return json.dumps(exported(view), indent=2, ensure_ascii=False)


def as_publish(queue: str, view: MessageView) -> str:
    """Return the command of a shell that publishes a message; "" if its queue takes none, as the group of a topic."""
    if GROUP_SEPARATOR in queue:
        return ""
    data = json.dumps(view.data, ensure_ascii=False)
    words = ["manage.py", "mq", "publish", public_name(queue), view.name, data]
    if view.key is not None:
        words += ["--key", redact_forms(view.key)]
    left_ms = 0 if view.state != "delayed" or view.at_ms is None else view.at_ms - clock.now_ms()
    if left_ms > 0:
        words += ["--delay", str(-(-left_ms // 1000))]
        words += [] if view.unique is None else ["--unique", view.unique]
    if view.priority:
        words.append(f"--priority={view.priority}")
    if view.headers:
        words += ["--headers", json.dumps(dict(view.headers), ensure_ascii=False)]
    return shlex.join(words)


def as_xadd(queue: str, view: MessageView) -> str:
    """Return the command of redis-cli that makes a message ready; "" for RSMQ's format and groups of topics."""
    config = get_config().queue(queue)
    # Formats that have no priorities at all have no stream to which others publish.
    if "priority" in config.unsupported:
        return ""
    fields = ["type", view.name]
    for name, value in _attributes(view):
        fields += [name, value]
    data = json.dumps(view.data, ensure_ascii=False)
    return " ".join(map(_quoted, ["XADD", config.keys.ready, "*", *fields, "data", data]))


def _attributes(view: MessageView) -> Iterator[tuple[str, str]]:
    if view.key is not None:
        yield "partitionkey", redact_forms(view.key)
    if view.expires_ms is not None and 0 <= view.expires_ms < datetime.max.replace(tzinfo=UTC).timestamp() * 1000:
        yield "expires", moment(view.expires_ms)
    if view.priority:
        yield "priority", str(view.priority)
    yield from view.headers.items()


def has_secrets(view: MessageView) -> bool:
    """Return whether placeholders stand for secrets in the data, the headers or the key of a message."""
    return is_redacted([view.data, dict(view.headers), redact_forms(view.key or "")])


def _quoted(word: str) -> str:
    """Return a word as redis-cli reads it."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + "".join(map(_escaped, word)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="replace"))


# What the handler of a message streams: the latest entries, with secrets replaced.

#: How many entries are read at a time, until they have so many bytes.
STEPS, ENOUGH = (10, 40, 150), 64 * 1024

Entry = tuple[bytes, list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """The latest that the latest run of a message has streamed."""

    #: The oldest first. Texts that follow one another are one chunk.
    chunks: Sequence[Chunk]
    #: How many entries are before them in the stream.
    earlier: int

    @property
    def end(self) -> Chunk | None:
        """Return the end of the stream; None before it."""
        return self.chunks[-1] if self.chunks and self.chunks[-1].kind == "end" else None


def stream_of(queue: str, message_id: str) -> StreamView | None:
    """Return the stream of a message; None without one, or if it cannot be read: a page shows the rest.

    Args:
        queue: a queue, a group or a partition.
        message_id: of the message.
    """
    config = get_config().queue(queue)
    if config.stream is None:
        return None
    transport, key = open_transport("inspect", config.connection), config.keys.message_stream(message_id)
    try:
        entries, length = _latest(transport, key)
    except StoreError as error:
        logger.warning("The stream of a message cannot be read: %s", error)
        return None
    chunks = [chunk for entry, fields in reversed(entries) if (chunk := read_chunk(entry, fields)) is not None]
    begins = max((at for at, chunk in enumerate(chunks) if chunk.kind == "restart"), default=0)
    shown = chunks[begins:]
    return StreamView(chunks=_joined(shown), earlier=length - len(shown)) if shown else None


def _latest(transport: Transport, key: str) -> tuple[list[Entry], int]:
    """Return the latest entries of a stream, the last one first, and how many it has."""
    entries, length, before = list[Entry](), 0, b"+"
    for count in STEPS:
        replies = transport.pipeline([("XREVRANGE", key, before, "-", "COUNT", count), ("XLEN", key)])
        found, length = map(reply_or_raise, replies)
        entries += found
        size = sum(len(text) for _, fields in entries for text in fields)
        if len(found) < count or size > ENOUGH:
            break
        before = b"(" + entries[-1][0]
    return entries, length


def _joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return chunks without secrets, with the texts that follow one another as one."""
    found = list[Chunk]()
    for kind, each in groupby(chunks, lambda chunk: chunk.kind):
        of_kind = list(each)
        if kind == "text":
            of_kind = [replace(of_kind[-1], value="".join(chunk.value for chunk in of_kind))]
        found += map(without_secrets, of_kind)
    return found


def without_secrets(chunk: Chunk) -> Chunk:
    """Return a chunk with the secrets in its value and its error replaced. Those in bytes stay."""
    value: Any = redact_text(chunk.value) if isinstance(chunk.value, str) else redact(chunk.value)
    return replace(chunk, value=value, error=redact_text(chunk.error))
