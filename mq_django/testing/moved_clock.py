"""Move the time of a test."""

from datetime import datetime, timedelta

from mq_django.core.clock import Duration, read_duration
from mq_django.core.publication import due
from mq_django.core.texts import repr_of
from mq_django.errors import TestKitError
from mq_django.testing.idle import fire_due_schedules
from mq_django.testing.started_runs import run_supervised
from mq_django.transport import test_clock
from mq_django.transport.test_server import control_client


def advance(delta: Duration | None = None, /, **parts: float) -> None:
    """Move the time on, in Redis and in mq_django.

        mq.advance(hours=1)

    Delayed messages, retries and schedules become due, rate limits have room again, and messages, unique keys,
    results and runs of workflows expire. Python's own clock, as of `timezone.now()`, stays.

    Args:
        delta: a timedelta or seconds.
        parts: instead of it the arguments of a timedelta, such as `hours=1`.

    Raises:
        TestKitError: it is no duration, or below zero.
        NoServer, ConfigurationError, ConnectionLost: there is no usable server for tests.
    """
    try:
        duration = timedelta(**parts) if delta is None else read_duration(delta)
    except (TypeError, OverflowError) as error:
        raise TestKitError(f"advance() takes a timedelta, seconds, or parts such as hours=1: {error}") from error
    if delta is not None and parts:
        raise TestKitError("advance() takes a timedelta or parts such as hours=1, not both")
    _move(duration // timedelta(milliseconds=1), "advance()")


def travel_to(moment: datetime) -> None:
    """Move the time on to a moment, like advance().

    Args:
        moment: without a time zone it is in Django's current one.

    Raises:
        TestKitError: it is no datetime, or in the past.
        InvalidMessage: no message can be due then.
        NoServer, ConfigurationError, ConnectionLost: there is no usable server for tests.
    """
    if not isinstance(moment, datetime):
        raise TestKitError(f"travel_to() takes a datetime, not {repr_of(moment)}")
    _, due_ms = due(None, moment)
    assert due_ms is not None
    _move(due_ms - test_clock.now_ms(control_client()), "travel_to()")


def move_to(due_ms: int, *, schedules: bool) -> None:
    """Move the time on to a moment; nothing happens if that is over.

    Args:
        due_ms: in milliseconds since 1970.
        schedules: whether those fire that are due then.
    """
    _move(max(0, due_ms - test_clock.now_ms(control_client())), "", schedules=schedules)


def reset() -> None:
    """Set the time back to that of the machine."""
    if test_clock.is_moved():
        test_clock.reset(control_client())


def _move(by_ms: int, what: str, *, schedules: bool = True) -> None:
    if by_ms < 0:
        raise TestKitError(f"{what} cannot move the time back: it would be by {timedelta(milliseconds=-by_ms)}")
    if by_ms:
        if schedules:
            # A schedule begins when it is first seen.
            fire_due_schedules()
        test_clock.move(control_client(), by_ms)
        if schedules:
            fire_due_schedules()
        run_supervised()
