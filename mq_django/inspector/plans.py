"""The schedules and limits of a queue, for display, and actions on schedules."""

from mq_django.conf import get_config
from mq_django.inspector.limit_use import KeyUse, LimitUse, limit_use
from mq_django.stores.runtime_schedules import RuntimeSchedules
from mq_django.stores.schedule_state import Schedules
from mq_django.stores.schedule_status import Origin, PlannedSchedule, Statuses, statuses
from mq_django.transport.connections import open_wire

__all__ = [
    "KeyUse",
    "LimitUse",
    "Origin",
    "PlannedSchedule",
    "Statuses",
    "find",
    "fire",
    "forget",
    "limits",
    "schedules",
    "switch",
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


def switch(plan: PlannedSchedule, *, paused: bool, who: str) -> bool:
    """Pause a schedule, or resume it from its next tick on; return whether that changed anything."""
    store = _schedules(plan)
    return store.pause(plan.name, who=who) if paused else store.resume(plan.name)


def fire(plan: PlannedSchedule) -> str | None:
    """Publish the message of a schedule now, even if it is paused, and return its id.

    None: it was removed or changed meanwhile.

    Raises:
        QueueFull: the queue is at its MAX_DEPTH.
        StoreError: cannot reach Redis.
    """
    return None if plan.entry is None else _schedules(plan).fire_now(plan.entry)


def forget(plan: PlannedSchedule) -> None:
    """Delete the state of a schedule. One that is still in code or settings starts anew."""
    _schedules(plan).forget(plan.name)


def limits(name: str, *, count: int) -> LimitUse | None:
    """Return the usage of a queue's limits with up to `count` keys with parked messages; None without limits."""
    config = get_config().queue(name)
    return limit_use(config, open_wire("inspect", config.connection), count=count) if config.limits else None


def _schedules(plan: PlannedSchedule) -> Schedules:
    kind = RuntimeSchedules if plan.origin is Origin.RUNTIME else Schedules
    config = get_config().queue(plan.queue)
    return kind(config, open_wire("inspect", config.connection))
