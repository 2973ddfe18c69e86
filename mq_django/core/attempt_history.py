"""The history of a message that failed: its last attempts, as JSON lines that it takes along wherever it waits.

A message that never failed has none, and costs nothing.
"""

import time
from typing import Any, Literal, NamedTuple, get_args

from mq_django.core.jsontext import dumps, loads
from mq_django.errors import DecodeError

#: Attempts that are told.
KEPT = 10
#: Bytes of a traceback, of which the end tells most; characters of an error.
MAX_TRACEBACK, MAX_ERROR = 4 * 1024, 500
#: Bytes of data from which on a message is too long to take a history along: an entry has to stay below 1 MiB.
MAX_DATA = 512 * 1024
#: Bytes of a history, after which another program wrote it.
MAX_HISTORY = 256 * 1024

Ending = Literal["retried", "buried"]


class Attempt(NamedTuple):
    """What became of one attempt."""

    attempt: int
    #: Who held the message.
    consumer: str
    #: When its handler began and ended, by that machine's clock: ms since 1970. None when nobody knows.
    began_ms: int | None
    ended_ms: int | None
    ending: Ending
    error: str
    #: None when the one of the attempt before was the same.
    traceback: str | None


def attempt_of(
    *, attempt: int, consumer: str, ending: Ending, error: str, traceback: str | None, micros: int | None
) -> Attempt:
    """Return an attempt that has ended now, after `micros` microseconds of its handler."""
    now = time.time_ns() // 1_000_000
    began = None if micros is None else now - micros // 1000
    return Attempt(
        attempt, consumer, began, now, ending, error[:MAX_ERROR], None if traceback is None else _end_of(traceback)
    )


def with_attempt(history: str, attempt: Attempt) -> str:
    """Return a history with another attempt; a traceback like the one before is not told again."""
    lines = history.split("\n")[-KEPT + 1 :] if history and len(history) <= MAX_HISTORY else []
    if attempt.traceback is not None and attempt.traceback == _last_traceback(lines):
        attempt = attempt._replace(traceback=None)
    return "\n".join([*lines, _line(attempt)])


def read_history(history: str) -> list[Attempt]:
    """Return the attempts of a history, the last one last; lines that make no sense are left out."""
    if len(history) > MAX_HISTORY:
        return []
    found = (_attempt(line) for line in history.split("\n")[-KEPT:] if line)
    return [attempt for attempt in found if attempt is not None]


def _line(attempt: Attempt) -> str:
    values: dict[str, Any] = {
        "attempt": attempt.attempt,
        "consumer": _text(attempt.consumer),
        "began": attempt.began_ms,
        "ended": attempt.ended_ms,
        "ending": attempt.ending,
        "error": _text(attempt.error),
    }
    if attempt.traceback is not None:
        values["traceback"] = _text(attempt.traceback)
    return dumps(values).decode()


def _attempt(line: str) -> Attempt | None:
    try:
        found = loads(line.encode(errors="replace"))
    except DecodeError:
        return None
    if not isinstance(found, dict) or found.get("ending") not in get_args(Ending):
        return None
    traceback = found.get("traceback")
    return Attempt(
        _number(found.get("attempt")) or 1,
        str(found.get("consumer", ""))[:MAX_ERROR],
        _number(found.get("began")),
        _number(found.get("ended")),
        found["ending"],
        str(found.get("error", ""))[:MAX_ERROR],
        None if traceback is None else str(traceback)[:MAX_TRACEBACK],
    )


def _last_traceback(lines: list[str]) -> str | None:
    for line in reversed(lines):
        found = _attempt(line)
        if found is not None and found.traceback is not None:
            return found.traceback
    return None


def _number(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_number and isinstance(value, int) else None


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()


def _end_of(traceback: str) -> str:
    return traceback.encode(errors="replace")[-MAX_TRACEBACK:].decode(errors="ignore")
