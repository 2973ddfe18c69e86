"""Retry policies: the delay before the next attempt, and the number of attempts."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple

from mq_django.core import clock
from mq_django.core.clock import MAX_DELAY, Duration, read_duration
from mq_django.core.jsontext import LAST_MS, dumps, object_in, whole
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError

#: More would overflow a float before the longest delay ends the growth.
MAX_FACTOR = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retry with exponential backoff and jitter.

    With the defaults the delays are about 1 s, 2 s, 4 s, 8 s and so on, up to an hour. Jitter prevents messages that
    failed together from being retried together.

        RetryPolicy(max_attempts=5, delay=10, bury_on=(ValidationError,))

    Raises:
        ConfigurationError: an argument is not valid.
    """

    #: The number of failed attempts after which the message is buried; None: the queue's MAX_ATTEMPTS.
    max_attempts: int | None = None
    #: The delay after the first failure: a timedelta or seconds.
    delay: Duration = timedelta(seconds=1)
    #: Each further delay is the previous one times this factor; with 1 all are equal.
    factor: float = 2.0
    #: The longest delay, at least `delay`: a timedelta or seconds.
    max_delay: Duration = timedelta(hours=1)
    #: The largest share of a delay that is subtracted at random: with 0.25 it is 75 % to 100 % of the full delay.
    jitter: float = 0.25
    #: Exceptions that bury the message at once, because a retry cannot help.
    bury_on: Sequence[type[Exception]] = ()

    def __post_init__(self) -> None:
        for name in ("delay", "max_delay"):
            # Frozen, and made once: readers of a policy find timedeltas.
            object.__setattr__(self, name, _delay(name, getattr(self, name)))
        if read_duration(self.delay) > read_duration(self.max_delay):
            raise _refusal("max_delay", f"at least the delay, which is {self.delay}", self.max_delay)
        if self.max_attempts is not None and not (type(self.max_attempts) is int and self.max_attempts > 0):
            raise _refusal("max_attempts", "a whole number from 1", self.max_attempts)
        if not _is_number(self.factor) or not 1 <= self.factor <= MAX_FACTOR:
            raise _refusal("factor", f"a number from 1 to {MAX_FACTOR}", self.factor)
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise _refusal("jitter", "a number from 0 to 1", self.jitter)
        given: object = self.bury_on
        if not isinstance(given, list | tuple) or not all(map(_is_exception, given)):
            raise _refusal("bury_on", "a tuple or a list of exception classes", given)
        object.__setattr__(self, "bury_on", tuple(given))

    def delay_ms(self, attempt: int, *, rand: Callable[[], float] = random.random) -> int:
        """Return the delay after a failed attempt, in milliseconds.

        Args:
            attempt: the number of the attempt that failed, from 1.
            rand: returns a number from 0 to 1, for the jitter.
        """
        first, ceiling = (read_duration(delay).total_seconds() * 1000 for delay in (self.delay, self.max_delay))
        # The exponent is capped because a float overflows at 2 ** 1024, and the ceiling is reached long before.
        full = min(ceiling, first * self.factor ** min(attempt - 1, 64))
        return round(full * (1 - self.jitter * rand()))

    @staticmethod
    def delay_from(value: object) -> timedelta:
        """Return a delay from a header Retry-After, which has seconds or a date (RFC 9110, section 10.2.3).

            return Retry(delay=RetryPolicy.delay_from(response.headers["Retry-After"]), trips=True)

        Args:
            value: of the header as text; or a timedelta, a number of seconds, or a datetime.

        Returns:
            The delay, from 0 to 3660 days.

        Raises:
            ConfigurationError: it is none of these.
        """
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value.strip()[:12])
        elif isinstance(value, str):
            try:
                value = parsedate_to_datetime(value)
            except ValueError as error:
                raise _refusal("delay_from(value)", "seconds, or a date of HTTP", value) from error
        if isinstance(value, datetime):
            value = value.timestamp() - clock.now()
        try:
            return min(MAX_DELAY, max(timedelta(0), read_duration(value)))
        except TypeError as error:
            raise _refusal("delay_from(value)", f"{error}, or a header Retry-After", value) from error

    def exhausted(self, attempt: int, *, default_max: int) -> bool:
        """Return whether an attempt was the last one allowed.

        Args:
            attempt: the number of the attempt, from 1.
            default_max: the queue's MAX_ATTEMPTS, for a policy that has no max_attempts.
        """
        return attempt >= (self.max_attempts or default_max)


def retry_after(error: object) -> timedelta | None:
    """Return after how long to try again by the attribute `retry_after` of an exception; None if it says nothing.

    It is a timedelta, seconds, a datetime, or the value of a header Retry-After: see RetryPolicy.delay_from().
    """
    try:
        value = getattr(error, "retry_after", None)
        return None if value is None else RetryPolicy.delay_from(value)
    except Exception:  # noqa: BLE001 - the exception is of others, and so is what it returns
        return None


def _delay(name: str, value: object) -> timedelta:
    try:
        delay = read_duration(value)
    except TypeError as error:
        raise _refusal(name, str(error), value) from error
    if not timedelta(0) <= delay <= MAX_DELAY:
        raise _refusal(name, f"0 to {MAX_DELAY.days} days", value)
    return delay


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _refusal(name: str, expected: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"RetryPolicy.{name} must be {expected}, not {repr_of(value)}")


# The attempts at handling a message, and the JSON lines in which they are stored.
#
# They are stored in two places. The history of a failed message is an attribute of the message and a field of its
# dead
# letter, and is deleted with them. The result of a task is a key of its own, which stays after the message has
# succeeded
# until its TTL ends. Some fields have different names in the two, because other programs read them.

#: The most attempts in a history.
HISTORY_LENGTH = 10
#: The most bytes of a traceback, whose end is stored; the most characters of an error.
MAX_TRACEBACK, MAX_ERROR = 4 * 1024, 500
#: The most bytes of data of a message with a history, because an entry must stay below 1 MiB.
MAX_DATA = 512 * 1024
#: The most characters of a history. A longer one was written by another program, and is ignored.
MAX_HISTORY = 256 * 1024

#: The outcome of an attempt, named as in Django's TaskResultStatus. READY: the message is retried. RUNNING, in results
#: only: it has not ended.
Status = Literal["READY", "RUNNING", "FAILED", "SUCCESSFUL"]
READY: Status = "READY"
RUNNING: Status = "RUNNING"
FAILED: Status = "FAILED"
SUCCESSFUL: Status = "SUCCESSFUL"

#: Status -> its name in a history.
_ENDINGS: Mapping[Status, str] = {READY: "retried", FAILED: "buried"}
#: Name in a history or in a result -> status.
_STATUSES: Mapping[str, Status] = {
    **{ending: status for status, ending in _ENDINGS.items()},
    **{status: status for status in (READY, RUNNING, FAILED, SUCCESSFUL)},
}


class Attempt(NamedTuple):
    """One attempt at handling a message."""

    status: Status
    #: From 1.
    number: int
    #: The consumer that held the message.
    consumer: str
    #: When its handler started and finished, in ms since 1970 by the consumer's clock; None if unknown.
    started_ms: int | None
    finished_ms: int | None
    #: In a history its text, in a result the path of the exception's class; empty if there was none.
    error: str = ""
    #: None: there was none, or in a history it equals the latest earlier one.
    traceback: str | None = None
    #: In a result: the task's return value.
    value: Any = None


def read_attempt(line: Mapping[str, Any]) -> Attempt | None:
    """Return the attempt in a line's fields, or None without a valid status: any program may have written it."""
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


def failure(error: str, traceback: str | None) -> dict[str, str]:
    """Return the fields of a failure, truncated to the limits, with `?` for characters that UTF-8 cannot encode."""
    found = {"error": _sendable(error[:MAX_ERROR])}
    if traceback is not None:
        found["traceback"] = traceback.encode(errors="replace")[-MAX_TRACEBACK:].decode(errors="ignore")
    return found


def with_attempt(history: str, attempt: Attempt) -> str:
    """Return a history with another attempt. A traceback that equals the latest earlier one is left out."""
    earlier = _lines(history)[-HISTORY_LENGTH + 1 :]
    line = {
        "attempt": attempt.number,
        "consumer": _sendable(attempt.consumer),
        "began": attempt.started_ms,
        "ended": attempt.finished_ms,
        "ending": _ENDINGS[attempt.status],
        **failure(attempt.error, attempt.traceback),
    }
    tracebacks = (fields["traceback"] for fields in map(object_in, reversed(earlier)) if "traceback" in fields)
    if "traceback" in line and line["traceback"] == next(tracebacks, None):
        del line["traceback"]
    return b"\n".join([*earlier, dumps(line)]).decode()


def attempts_since(history: str, ms: int) -> int:
    """Return how many attempts of a history were charged that ended since a time, in ms since 1970."""
    numbers = [each.number for each in read_history(history) if each.finished_ms is not None and each.finished_ms >= ms]
    return len(set(numbers))


def read_history(history: str) -> list[Attempt]:
    """Return the attempts of a history, oldest first. Invalid lines are skipped."""
    found = (read_attempt(object_in(line)) for line in _lines(history)[-HISTORY_LENGTH:])
    return [attempt for attempt in found if attempt is not None and attempt.status != RUNNING]


def _lines(history: str) -> list[bytes]:
    return history.encode(errors="replace").split(b"\n") if 0 < len(history) <= MAX_HISTORY else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _sendable(text: str) -> str:
    return text.encode(errors="replace").decode()
