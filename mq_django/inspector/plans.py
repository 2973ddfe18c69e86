"""The schedules and limits of a queue, for display, and deleting the state of one."""

from mq_django.conf import default_time_zone, get_config
from mq_django.core.schedules import NEVER
from mq_django.inspector.limit_use import KeyUse, LimitUse, limit_uses, summed_use
from mq_django.stores.schedule_state import Schedules
from mq_django.stores.schedule_status import TAKEN, Origin, PlannedSchedule, SkippedTick, Statuses, statuses
from mq_django.transport.connections import open_wire, open_wires

__all__ = [
    "TAKEN",
    "KeyUse",
    "LimitUse",
    "Origin",
    "PlannedSchedule",
    "SkippedTick",
    "Statuses",
    "find",
    "forget",
    "limits",
    "next_ticks",
    "schedules",
]


def schedules(name: str, *, limit: int | None = None) -> Statuses:
    """Return the schedules of a queue by name; groups and queues in RSMQ's format have none.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    config = get_config().queue(name)
    wire = open_wire("inspect", config.connection)
    return statuses(config, wire, limit=limit) if config.has_schedules else Statuses(0, [], 0)


def find(name: str, schedule: str, *origins: Origin) -> PlannedSchedule | None:
    """Return a schedule of a queue, or None; with origins, only one of these."""
    config = get_config().queue(name)
    wire = open_wire("inspect", config.connection)
    found = statuses(config, wire, name=schedule).found if config.has_schedules else []
    return next((plan for plan in found if not origins or plan.origin in origins), None)


def next_ticks(name: str, schedule: str, *, count: int) -> list[int]:
    """Return the next times at which a schedule fires, in ms since 1970; none while it is paused or cannot fire.

    Skipped ticks are left out.
    """
    plan = find(name, schedule)
    ticks: list[int] = []
    if plan is None or plan.entry is None or plan.next_ms is None:
        return ticks
    tick, skipped = plan.next_ms, {each.tick_ms for each in plan.skips}
    while tick != NEVER and len(ticks) < count:
        ticks.append(tick)
        tick = plan.entry.next_ms(tick, default_time_zone(), skipped)
    return ticks


def forget(plan: PlannedSchedule) -> None:
    """Delete the state of a schedule of code or settings. One that is still there starts anew."""
    config = get_config().queue(plan.home)
    Schedules(config, open_wire("inspect", config.connection)).forget(plan.name)


def limits(name: str, *, count: int) -> LimitUse | None:
    """Return the usage of a queue's limits with up to `count` keys with parked messages; None without limits."""
    config = get_config().queue(name)
    if not config.limits:
        return None
    # The grants of a rate of the queue as a whole are in its own slot.
    configs = [config] if not config.parts else [*config.parts, config]
    found = limit_uses(configs, open_wires("inspect", [each.connection for each in configs]), count=count)
    return found[0] if len(found) == 1 else summed_use(found[:-1], found[-1], count=count)
