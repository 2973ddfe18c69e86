"""Chunks that handlers stream: how they are stored, and the buffer of a run, from which they are sent."""

import threading
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

from mq_django.core.ids import is_text, token
from mq_django.core.jsontext import dumps, evaluated, loads, whole
from mq_django.core.messages import Ending
from mq_django.core.options import StreamLimits
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, InvalidChunk, InvalidMessage

#: The most bytes of a chunk as it is stored, and the most characters of a line of the log.
MAX_CHUNK = 65_536
MAX_LINE = 1_000
#: The most characters of an error at the end of a stream.
MAX_ERROR = 500

#: The kinds of entries: a chunk of `stream()`, by its type; a line of `stream.log()`; another run; the end.
Kind = Literal["text", "bytes", "json", "log", "restart", "end"]
_KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """An entry of a message's stream."""

    #: Its id, after which a reader goes on.
    id: str
    #: "text", "bytes" or "json": a chunk of `stream()`. "log": a line of `stream.log()`. "restart": the message is
    #: handled again, from its beginning. "end": it has ended.
    kind: Kind
    #: The chunk or the line; None for a restart or an end.
    value: Any = None
    #: The number of the attempt, and in it of the entry, from 1. A gap: more was streamed than the queue keeps.
    attempt: int = 1
    number: int = 0
    #: Of an end: "handled", "buried", "cancelled" or "expired", and the error.
    outcome: Ending | Literal[""] = ""
    error: str = ""


def encoded(chunk: object, limits: StreamLimits) -> tuple[Kind, bytes]:
    """Return a chunk as it is stored.

    Raises:
        InvalidChunk: it is not text, bytes or JSON, or too large.
    """
    most = min(MAX_CHUNK, limits.bytes)
    kind: Kind = "json"
    chunk = evaluated(chunk)
    try:
        if isinstance(chunk, str):
            kind, value = "text", chunk[: most + 1].encode()
        elif isinstance(chunk, bytes | bytearray | memoryview):
            kind, value = "bytes", b64encode(bytes(chunk[: most + 1]))
        else:
            value = dumps(chunk)
    except (InvalidMessage, UnicodeEncodeError) as error:
        raise InvalidChunk(f"A chunk is text, bytes or JSON, not {repr_of(chunk)}: {error}") from error
    if len(value) > most:
        raise InvalidChunk(f"A chunk has at most {most:,} bytes as it is stored, and this one has more")
    return kind, value


def encoded_line(line: object) -> bytes:
    """Return a line of the log as it is stored.

    Raises:
        InvalidChunk: it is not text, or too long.
    """
    line = evaluated(line)
    if not isinstance(line, str) or not is_text(line) or len(line) > MAX_LINE:
        raise InvalidChunk(f"A line of the log is text of up to {MAX_LINE:,} characters, not {repr_of(line)}")
    return line.encode()


def end_text(outcome: Ending, error: str = "") -> bytes:
    """Return the value of an end. `error`: one line."""
    return dumps({"outcome": outcome, "error": error[:MAX_ERROR]} if error else {"outcome": outcome})


def read_chunk(entry: bytes, fields: Sequence[bytes]) -> Chunk | None:
    """Return the chunk in an entry of a stream, or None if it is not valid: any program may have written it.

    Args:
        entry: its id.
        fields: the names of its fields, each with the value behind it.
    """
    found = dict(zip(fields[::2], fields[1::2], strict=False))
    kind = next((kind for kind in _KINDS if kind.encode() in found), None)
    attempt, number = whole(found.get(b"attempt")), whole(found.get(b"number"))
    if kind is None or attempt is None or number is None or len(found[kind.encode()]) > MAX_CHUNK:
        return None
    try:
        value = _READERS[kind](found[kind.encode()])
    except (ValueError, DecodeError):
        return None
    chunk = Chunk(id=entry.decode(), kind=kind, value=value, attempt=attempt, number=number)
    return chunk if kind != "end" else _end_of(chunk)


def _end_of(chunk: Chunk) -> Chunk | None:
    end = chunk.value if isinstance(chunk.value, dict) else {}
    outcome = next((each for each in get_args(Ending) if each == end.get("outcome")), None)
    error = end.get("error", "")
    if outcome is None or not isinstance(error, str):
        return None
    return replace(chunk, value=None, outcome=outcome, error=error[:MAX_ERROR])


_READERS: dict[Kind, Callable[[bytes], Any]] = {
    "text": bytes.decode,
    "bytes": lambda value: b64decode(value, validate=True),
    "json": loads,
    "log": bytes.decode,
    "restart": lambda _: None,
    "end": loads,
}


class Numbered(NamedTuple):
    """A chunk with its number in its run."""

    number: int
    kind: Kind
    value: bytes


class RunStream:
    """The chunks of one run of a handler that are not yet in Redis. Its threads add some, and others send them.

    It has no more of them than the stream itself would keep: of a longer one the oldest are left out.

    Args:
        limits: of the stream.
        wake: called when there is something to send.
    """

    def __init__(self, limits: StreamLimits, wake: Callable[[], object]) -> None:
        self.run = token()[:8]
        #: The number of the last chunk.
        self.number = 0
        #: Another run of the message may be under way: nothing more is sent.
        self.is_lost = False
        self.limits = limits
        self._wake = wake
        self._unsent = deque[Numbered]()
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, kind: Kind, value: bytes) -> None:
        """Add a chunk, which is sent soon."""
        with self._lock:
            if self.is_lost:
                return
            self.number += 1
            self._unsent.append(Numbered(self.number, kind, value))
            self._bytes += len(value)
            while len(self._unsent) > self.limits.entries or self._bytes > self.limits.bytes:
                self._bytes -= len(self._unsent.popleft().value)
        self._wake()

    def __bool__(self) -> bool:
        """Return whether there is something to send."""
        return bool(self._unsent)

    def unsent(self, most: int | None = None) -> list[Numbered]:
        """Return the first `most` chunks that are to be sent; None: all."""
        with self._lock:
            return list(islice(self._unsent, most))

    def sent(self, number: int) -> None:
        """Forget the chunks up to a number: they are in Redis."""
        with self._lock:
            while self._unsent and self._unsent[0].number <= number:
                self._bytes -= len(self._unsent.popleft().value)

    def lose(self) -> None:
        """Send nothing more: this run no longer has the message, or its stream cannot be written."""
        with self._lock:
            self.is_lost = True
            self._unsent.clear()
            self._bytes = 0
