"""Skip and fire single ticks of schedules, and override their times."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mq_django.conf import default_time_zone
from mq_django.core import clock
from mq_django.core.jsontext import LAST_MS
from mq_django.core.message_format import moment
from mq_django.core.schedules import NEVER, Scheduled, overridden, override_of, read_moment
from mq_django.core.texts import line, repr_of, truncate
from mq_django.errors import ConfigurationError, InvalidSchedule, MissingDependency, ScheduleChanged
from mq_django.producers.queues import Queue
from mq_django.producers.sinks import announce
from mq_django.stores.schedule_status import MAX_REASON, Origin, PlannedSchedule
from mq_django.stores.schedules import MAX_SKIPS, Firing, Schedules, scheduled


def check_time(entry: Scheduled) -> None:
    """Raise TypeError if a schedule never fires."""
    try:
        if entry.next_ms(clock.now_ms(), default_time_zone()) != NEVER:
            return
    except (ValueError, OverflowError) as error:
        raise TypeError("its first tick would be after the year 9999") from error
    raise TypeError("it would never fire: it has no tick before it ends")


# Skip single ticks of schedules.


def skip(store: Schedules, found: PlannedSchedule, tick: datetime | str | None, *, who: str) -> datetime:
    """Skip a tick of a schedule, or the next one, and return it. See ScheduleCollection.skip()."""
    called = f"Schedule {found.name!r} of queue {found.queue!r}"
    if found.entry is None:
        raise InvalidSchedule(f"{called} is not valid: {found.problem}")
    tick_ms = found.upcoming_ms if tick is None else _tick_ms(tick)
    if tick_ms is None:
        raise InvalidSchedule(f"{called} has ended: it has no tick any more")
    following = found.next_tick_ms(tick_ms - 1)
    if following != tick_ms:
        after = "none" if following is None else moment(following)
        raise InvalidSchedule(f"{called} has no tick at {moment(tick_ms)}; the next one after that is {after}")
    match store.skip(found.entry, tick_ms, who=who):
        case "PASSED":
            raise _passed(called, tick_ms)
        case "FULL":
            raise InvalidSchedule(f"{called} skips {MAX_SKIPS} ticks already, the most that it may skip: pause it")
        case "CHANGED":
            raise ScheduleChanged(f"Somebody else has just changed schedule {found.name!r} of queue {found.queue!r}")
    return _datetime(tick_ms)


def unskip(store: Schedules, found: PlannedSchedule, tick: datetime | str | None) -> datetime | None:
    """Let a skipped tick of a schedule fire, or the first one, and return it. See ScheduleCollection.unskip()."""
    first_ms = found.skips[0].tick_ms if found.skips else None
    tick_ms = first_ms if tick is None else _tick_ms(tick)
    if tick_ms is None:
        return None
    result = store.unskip(found.name, tick_ms)
    if result == "PASSED":
        raise _passed(f"Schedule {found.name!r} of queue {found.queue!r}", tick_ms)
    return _datetime(tick_ms) if result == "FIRES" else None


def _passed(called: str, tick_ms: int) -> InvalidSchedule:
    return InvalidSchedule(f"{called}: the tick of {moment(tick_ms)} has passed")


def _tick_ms(tick: datetime | str) -> int:
    try:
        return min(LAST_MS, round(read_moment("tick", tick).timestamp() * 1000))
    except TypeError as error:
        raise InvalidSchedule(str(error)) from error


def _datetime(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def fire_now(store: Schedules, found: PlannedSchedule) -> str:
    """Publish the message of a schedule, and return its id. See ScheduleCollection.fire()."""
    called = f"Schedule {found.name!r} of queue {found.queue!r}"
    if found.entry is None:
        raise InvalidSchedule(f"{called} is not valid: {found.problem}")
    made = store.fire_now(found.entry)
    if made is None:
        raise ScheduleChanged(f"Somebody else has just changed schedule {found.name!r} of queue {found.queue!r}")
    announce(Queue, made, made.message.id)
    return made.message.id


# Override the times of schedules in code and settings.


def checked_override(found: PlannedSchedule, times: Mapping[str, Any], reason: object) -> bytes:
    """Return the text that overrides the times of a schedule.

    Raises:
        InvalidSchedule: it was created at run time, no schedule can have these times, or it would never fire.
        MissingDependency: croniter is not installed.
    """
    called = f"Schedule {found.name!r} of queue {found.queue!r}"
    code = found.override.code if found.override is not None else found.when
    own = next((entry for entry in scheduled() if (entry.queue, entry.name) == (found.queue, found.name)), None)
    if found.origin is Origin.RUNTIME or own is None or code is None:
        raise InvalidSchedule(f"{called} was created at run time: change it, there is nothing to override")
    if not isinstance(reason, str):
        raise InvalidSchedule(f"reason must be text, not {repr_of(reason)}")
    try:
        override = override_of(times, code=code, reason=truncate(line(reason.strip()), MAX_REASON))
        check_time(overridden(own, override))
    except MissingDependency:
        raise
    except (TypeError, ConfigurationError) as error:
        raise InvalidSchedule(f"{called}: {error}") from error
    return override


def set_override(store: Schedules, found: PlannedSchedule, override: bytes, *, who: str) -> bool:
    """Override the times of a schedule, or remove that, and return whether it was as it had been read.

    A tick of the times until now that is due fires before, as it would in a consumer: due by the clock of Redis, when
    `found` was read.

    Raises:
        InvalidMessage: that tick cannot be published.
        QueueFull: the queue is at its MAX_DEPTH, so that it cannot fire.
    """
    due_ms = None if found.paused or found.entry is None else found.next_tick_ms(found.last_ms or found.now_ms)
    result = store.override(
        found.name, override, before=found.definition, last_ms=found.last_ms, due_ms=due_ms, who=who
    )
    if result == "DUE" and found.entry is not None and due_ms is not None:
        fired = store.fire_last(found.entry, due_ms, found.now_ms)
        if fired.firing is Firing.FIRED:
            announce(Queue, fired.made, fired.made.message.id)
    return result == "DONE"
