"""Wait for a condition instead of a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds between two looks: short against what tests wait for, long against a look at Redis.
POLL_INTERVAL = 0.01


def wait_until(condition: Callable[[], T], *, timeout: float = 10.0, message: str = "") -> T:
    """Return the condition's first true value; fail when there is none within the timeout, in seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            what = message or getattr(condition, "__name__", repr(condition))
            raise AssertionError(f"not true within {timeout:g} s: {what} (last value: {value!r})")
        time.sleep(POLL_INTERVAL)
