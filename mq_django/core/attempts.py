"""The attempts at handling a message, and the JSON lines that keep them.

Two places keep attempts. The history of a message that failed is part of the message and of its dead letter, and lasts
as long as they do. The result of a task is a key of its own: it is there after the message has succeeded, and ends by
its time to live. Some fields have another name in each, because other versions and programs read them.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from mq_django.core.jsontext import dumps, loads
from mq_django.core.numbers import LAST_MS, whole
from mq_django.errors import DecodeError

#: Attempts that a history keeps.
HISTORY_LENGTH = 10
#: Bytes of a traceback, of which the end says most; characters of an error.
MAX_TRACEBACK, MAX_ERROR = 4 * 1024, 500
#: Bytes of data from which on a message is too long to take a history along: an entry has to stay below 1 MiB.
MAX_DATA = 512 * 1024
#: Bytes of a history, after which another program wrote it.
MAX_HISTORY = 256 * 1024

#: What an attempt left, in the words of Django's TaskResultStatus. READY: the message is tried again.
Status = Literal["READY", "FAILED", "SUCCESSFUL"]
READY: Status = "READY"
FAILED: Status = "FAILED"
SUCCESSFUL: Status = "SUCCESSFUL"

#: Its name in a history.
_ENDINGS: Mapping[Status, str] = {READY: "retried", FAILED: "buried"}
#: The status for each name, in a history or in a result.
_STATUSES: Mapping[str, Status] = {
    **{ending: status for status, ending in _ENDINGS.items()},
    **{status: status for status in (READY, FAILED, SUCCESSFUL)},
}


class Attempt(NamedTuple):
    """What became of one attempt."""

    status: Status
    #: From 1.
    number: int
    #: Who held the message.
    consumer: str
    #: When its handler started and finished, by that machine's clock: ms since 1970. None when it is not known.
    started_ms: int | None
    finished_ms: int | None
    #: In a history the text; in a result the path of the exception's class. Empty when there was none.
    error: str = ""
    #: None: there was none, or in a history it equals the one before.
    traceback: str | None = None
    #: What a task returned, in its result.
    value: Any = None


def read_attempt(line: Mapping[str, Any]) -> Attempt | None:
    """Return the attempt in the fields of a line, or None when it has none: anybody may have written it."""
    status = _STATUSES.get(_text(line.get("status")) or _text(line.get("ending")))
    if status is None:
        return None
    return Attempt(
        status=status,
        number=whole(line.get("attempt")) or 1,
        consumer=_text(line.get("consumer"))[:MAX_ERROR],
        started_ms=whole(line.get("started", line.get("began")), LAST_MS),
        finished_ms=whole(line.get("finished", line.get("ended")), LAST_MS),
        error=_text(line.get("error"))[:MAX_ERROR],
        traceback=None if line.get("traceback") is None else _text(line["traceback"])[:MAX_TRACEBACK],
        value=line.get("value"),
    )


def read_line(text: bytes) -> dict[str, Any]:
    """Return the fields of a line, or none when it is no JSON object: it may be cut, or written by somebody else."""
    try:
        found = loads(text)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def failure(error: str, traceback: str | None) -> dict[str, str]:
    """Return the fields of a failure, cut to the limits, with `?` for characters that UTF-8 does not have."""
    found = {"error": _sendable(error[:MAX_ERROR])}
    if traceback is not None:
        found["traceback"] = traceback.encode(errors="replace")[-MAX_TRACEBACK:].decode(errors="ignore")
    return found


def with_attempt(history: str, attempt: Attempt) -> str:
    """Return a history with another attempt; a traceback that equals the one before is left out."""
    earlier = _lines(history)[-HISTORY_LENGTH + 1 :]
    line = {
        "attempt": attempt.number,
        "consumer": _sendable(attempt.consumer),
        "began": attempt.started_ms,
        "ended": attempt.finished_ms,
        "ending": _ENDINGS[attempt.status],
        **failure(attempt.error, attempt.traceback),
    }
    tracebacks = (fields["traceback"] for fields in map(read_line, reversed(earlier)) if "traceback" in fields)
    if "traceback" in line and line["traceback"] == next(tracebacks, None):
        del line["traceback"]
    return b"\n".join([*earlier, dumps(line)]).decode()


def read_history(history: str) -> list[Attempt]:
    """Return the attempts of a history, the last one last; lines that make no sense are left out."""
    found = (read_attempt(read_line(line)) for line in _lines(history)[-HISTORY_LENGTH:])
    return [attempt for attempt in found if attempt is not None]


def _lines(history: str) -> list[bytes]:
    return history.encode(errors="replace").split(b"\n") if 0 < len(history) <= MAX_HISTORY else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _sendable(text: str) -> str:
    return text.encode(errors="replace").decode()
