"""Handle also what is due later, and fire the schedules on the way."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.service import by_server, connection_of
from mq_django.consumers.supervisor.scheduler import Scheduler
from mq_django.core import clock
from mq_django.core.clock import Duration, check_aware, read_duration
from mq_django.core.publish_checks import due
from mq_django.core.schedules import NEVER
from mq_django.core.texts import repr_of
from mq_django.errors import EndlessRun, TestKitError
from mq_django.inspector.queue_view import limits_of
from mq_django.inspector.queues import quick_stats
from mq_django.stores import open_store
from mq_django.testing import runs
from mq_django.testing.looking import delayed
from mq_django.testing.recording import run_supervised
from mq_django.testing.runs import BATCH, LIMIT, Handled, configs_of, mostly, run_into
from mq_django.transport import test_server
from mq_django.transport.connections import open_transport
from mq_django.transport.test_server import control_client


def run_until_idle(
    queues: Sequence[str] = (),
    *,
    advance_to: Callable[[int], None],
    schedules: bool = False,
    raise_errors: bool = True,
    limit: int = LIMIT,
) -> list[Handled]:
    """Handle everything until no message is ready or delayed: move the time from one due message to the next.

    With `schedules` those fire whose ticks are on the way. The time stops at each tick. A tick alone does not move the
    time, and neither do messages that come from ticks.

    Args:
        queues: see run().
        advance_to: moves the time to a moment, in milliseconds since 1970.
        schedules: whether schedules fire.
        raise_errors: see run().
        limit: maximum messages, and maximum moves of the time.

    Returns:
        What was handled, in this order.

    Raises:
        EndlessRun: more than `limit` messages became ready, or the time was moved more often.
        UnknownQueue, SynchronousOnlyOperation: see run().
    """
    handled: list[Handled] = []
    with runs.noted():
        for _ in range(limit + 1):
            tick_ms = fire_due_schedules() if schedules else None
            run_into(handled, queues, raise_errors=raise_errors, limit=limit)
            due_ms = next_due_ms(queues, but=runs.ids())
            if due_ms is None:
                return handled
            advance_to(due_ms if tick_ms is None else min(due_ms, tick_ms))
    raise EndlessRun(
        f"The time was moved {limit} times, and there are still delayed messages: they are delayed endlessly, "
        f"schedules fire often on the way, or limit= is too low. {mostly(handled)}"
    )


def next_due_ms(queues: Sequence[str] = (), *, but: Collection[str] = ()) -> int | None:
    """Return when the next message becomes due that is delayed or held back by a rate limit; None if there is none.

    Queues that are paused are left out. What is due becomes ready.

    Args:
        queues: see run().
        but: the ids of messages that do not count.
    """
    return min((due for config in configs_of(queues) for due in _moments(config, but)), default=None)


def fire_due_schedules() -> int | None:
    """Fire the ticks that are due, as a supervisor does, and return when the next tick is; None if there is none.

    A schedule begins when it is first seen, so this must be called before the time moves, and after.

    Returns:
        Milliseconds since 1970.
    """
    found = []
    for queues in by_server([config for config in get_config().each_part() if config.has_schedules]).values():
        scheduler = Scheduler.of(queues, open_transport("chores", connection_of(queues)))
        with runs.firing():
            scheduler.run_once()
        found.append(scheduler.next_tick_ms())
    tick = min(found, default=NEVER)
    return None if tick == NEVER else tick


def _moments(config: QueueConfig, but: Collection[str]) -> Iterator[int]:
    """Yield when messages of a queue may become ready."""
    store = open_store(config, open_transport("consume", config.connection))
    promoted, depths = store.promote(limit=BATCH), store.depths()
    limits = limits_of(quick_stats(config.name)) if config.limits else config.limits
    now = clock.now() * 1000
    if promoted.paused:
        return
    if promoted.moved:
        yield math.floor(now)
    # RSMQ hides messages without a handler, which are not delayed.
    if depths.delayed and but:
        waiting = (each for each in delayed(config.name) if each.message is None or each.message.id not in but)
        yield from (math.ceil(each.due.timestamp() * 1000) for each in waiting if each.due is not None)
    elif depths.delayed and promoted.next_us is not None:
        yield math.ceil(now + promoted.next_us / 1000)
    if depths.ready and limits.rate:
        yield math.ceil(now + limits.rate.micros / 1000)
    if depths.parked and limits.key_rate:
        yield math.ceil(now + limits.key_rate.micros / 1000)


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
        moment: an aware datetime; without `USE_TZ`, a naive one is in the time zone of the project.

    Raises:
        TestKitError: it is not such a datetime, or in the past.
        NoServer, ConfigurationError, ConnectionLost: there is no usable server for tests.
    """
    try:
        _, due_ms = due(None, check_aware(moment))
    except TypeError as error:
        raise TestKitError(f"The moment of travel_to() must be {error}, not {repr_of(moment)}") from error
    assert due_ms is not None
    _move(due_ms - test_server.now_ms(control_client()), "travel_to()")


def move_to(due_ms: int, *, schedules: bool) -> None:
    """Move the time on to a moment; nothing happens if that is over.

    Args:
        due_ms: in milliseconds since 1970.
        schedules: whether those fire that are due then.
    """
    _move(max(0, due_ms - test_server.now_ms(control_client())), "", schedules=schedules)


def reset() -> None:
    """Set the time back to that of the machine."""
    if test_server.is_moved():
        test_server.reset(control_client())


def _move(by_ms: int, what: str, *, schedules: bool = True) -> None:
    if by_ms < 0:
        raise TestKitError(f"{what} cannot move the time back: it would be by {timedelta(milliseconds=-by_ms)}")
    if by_ms:
        if schedules:
            # A schedule begins when it is first seen.
            fire_due_schedules()
        test_server.move(control_client(), by_ms)
        if schedules:
            fire_due_schedules()
        run_supervised()
