"""Skip single ticks of schedules."""

from datetime import UTC, datetime

from mq_django.core.numbers import LAST_MS
from mq_django.core.schedule_options import read_moment
from mq_django.core.wire import moment
from mq_django.errors import InvalidSchedule, ScheduleChanged
from mq_django.stores.schedule_state import MAX_SKIPS, Schedules
from mq_django.stores.schedule_status import PlannedSchedule


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
