"""The wall clock of this process. All times that are compared with those of messages come from here.

Durations are measured with `time.monotonic()`. What is compared with the times of files is the machine's own clock.
"""

import time

#: Nanoseconds that are added to the time of this machine. Only tests move it.
_shift = 0


def now() -> float:
    """Return the time in seconds since 1970."""
    return (time.time_ns() + _shift) / 1_000_000_000


def now_ms() -> int:
    """Return the time in whole milliseconds since 1970."""
    return (time.time_ns() + _shift) // 1_000_000


def now_us() -> int:
    """Return the time in whole microseconds since 1970."""
    return (time.time_ns() + _shift) // 1000


def set_shift(seconds: float) -> None:
    """Let this clock differ from that of the machine. It is for tests.

    Args:
        seconds: how far it is ahead; a negative number: behind. 0: it does not differ.
    """
    global _shift  # noqa: PLW0603 - a test sets it, and every reading of the clock needs it
    _shift = round(seconds * 1_000_000_000)
