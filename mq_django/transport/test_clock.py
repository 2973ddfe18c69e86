"""The time that tests see in Redis and in mq_django.

A test moves it by the kit. It also follows libraries that replace Python's clock, such as freezegun and time-machine.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from mq_django.core import clock
from mq_django.transport.scripts import MOVED_CLOCK

#: Milliseconds by which Python's clock may differ from the real one before it counts as replaced.
TOLERANCE_MS = 2000
#: The most keys whose lifetimes are changed in one round trip.
BATCH = 500


#: Seconds by a clock that these libraries do not replace. Windows has none.
_elapsed: Callable[[], float] = (lambda: os.times().elapsed) if os.name == "posix" else time.monotonic


class _Moved:
    """By how many milliseconds the time is moved."""

    #: By the test.
    by_test_ms = 0
    #: By a library that replaces Python's clock.
    by_python_ms = 0
    #: The time of the start, and _elapsed() at that time.
    start_ms, start = time.time_ns() // 1_000_000, _elapsed()


def follow_python(client: redis.Redis) -> None:
    """Let Redis follow Python's clock if that was replaced, moved or restored since the last call.

    Args:
        client: of the server of the tests.
    """
    real_ms = _Moved.start_ms + round((_elapsed() - _Moved.start) * 1000)
    ahead_ms = time.time_ns() // 1_000_000 - real_ms
    by_python_ms = ahead_ms if abs(ahead_ms) > TOLERANCE_MS else 0
    if abs(by_python_ms - _Moved.by_python_ms) > TOLERANCE_MS:
        _Moved.by_python_ms = by_python_ms
        _tell(client)


def move(client: redis.Redis, by_ms: int) -> None:
    """Move the time on, and let keys expire that much earlier.

    Args:
        client: of the server of the tests.
        by_ms: how far, at least 0.
    """
    _Moved.by_test_ms += by_ms
    clock.set_shift(_Moved.by_test_ms / 1000)
    _tell(client)
    keys = list(client.scan_iter(count=1000))
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        with client.pipeline(transaction=False) as pipeline:
            for key in batch:
                pipeline.pttl(key)
            lifetimes = dict(zip(batch, pipeline.execute(), strict=True))
        with client.pipeline(transaction=False) as pipeline:
            for key, left_ms in lifetimes.items():
                if left_ms >= 0:
                    pipeline.pexpire(key, max(0, left_ms - by_ms))
            pipeline.execute()


def now_ms(client: redis.Redis) -> int:
    """Return the time in Redis in milliseconds since 1970."""
    return _server_ms(client) + _Moved.by_test_ms + _Moved.by_python_ms


@contextmanager
def standing(client: redis.Redis) -> Iterator[None]:
    """Let the time in Redis stand still while a block runs, unless the block moves it."""
    client.set(MOVED_CLOCK, f"={now_ms(client)}")
    try:
        yield
    finally:
        _tell(client)


def inherit_time(client: redis.Redis) -> None:
    """Move the time of this process as far as that of the test which has started it.

    Args:
        client: of the server of the tests.
    """
    found = client.get(MOVED_CLOCK) or b"0"
    moved = found.decode() if isinstance(found, bytes) else found
    _Moved.by_test_ms = int(moved.removeprefix("=")) - (_server_ms(client) if moved.startswith("=") else 0)
    clock.set_shift(_Moved.by_test_ms / 1000)


def reset(client: redis.Redis) -> None:
    """Set the time back to that of Python."""
    _Moved.by_test_ms = 0
    clock.set_shift(0)
    _tell(client)


def is_moved() -> bool:
    """Return whether a test has moved the time."""
    return _Moved.by_test_ms != 0


def _server_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _tell(client: redis.Redis) -> None:
    client.set(MOVED_CLOCK, _Moved.by_test_ms + _Moved.by_python_ms)
