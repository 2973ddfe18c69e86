"""Wait for a condition instead of a time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import redis

T = TypeVar("T")

#: Seconds between two looks: at first, and after a second. Consumers that are waited for need the processors.
POLL_INTERVAL, LONGEST_INTERVAL = 0.01, 0.05
#: And at most, however long a look takes.
LONGEST_PAUSE = 0.5

#: Timeouts in tests are what a quiet machine may need. A shared one needs a multiple of that, and waiting for longer
#: costs nothing but in a test that fails.
PATIENCE = 4.0


def wait_until(
    condition: Callable[[], T], *, timeout: float = 10.0, within: float | None = None, message: str = ""
) -> T:
    """Return the condition's first true value; fail when there is none within the timeout.

    Args:
        timeout: in seconds, on a quiet machine.
        within: instead of `timeout`: seconds on any machine. For a value that another mechanism would bring later.
    """
    timeout = timeout * PATIENCE if within is None else within
    value = _value(condition, timeout)
    if not value:
        what = message or getattr(condition, "__name__", repr(condition))
        raise AssertionError(f"not true within {timeout:g} s: {what} (last value: {value!r})")
    return value


def becomes_true(condition: Callable[[], object], *, within: float) -> bool:
    """Return whether a condition comes true within so many seconds, on any machine."""
    return bool(_value(condition, within))


def _value(condition: Callable[[], T], seconds: float) -> T:
    """Return the condition's first true value, or its last one when the time is over."""
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        value = condition()
        now = time.monotonic()
        if value or now - began >= seconds:
            return value
        # A look that takes long, such as at many lines of a log, pauses longer.
        pause = max(2 * (now - looked), min(LONGEST_INTERVAL, POLL_INTERVAL + (now - began) / 25))
        time.sleep(min(pause, LONGEST_PAUSE, began + seconds - now))


def moment_between(client: redis.Redis) -> datetime:
    """Return a moment after everything that is in Redis by now, and before everything that comes: both by its clock."""
    before = _now_ms(client)
    moment = wait_until(lambda: now if (now := _now_ms(client)) > before else 0)
    wait_until(lambda: _now_ms(client) > moment)
    return datetime.fromtimestamp(moment / 1000, UTC)


def now_ms_within(client: redis.Redis, period_ms: int) -> int:
    """Return Redis's time in ms, when its minute or hour, of `period_ms`, is not about to end."""
    end = period_ms - max(3000, period_ms // 120)
    return wait_until(lambda: now if (now := _now_ms(client)) % period_ms < end else 0)


def _now_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()  # type: ignore[misc]
    return int(seconds) * 1000 + int(micros) // 1000
