"""The schedules and limits of a queue as people see them, and what they do to schedules."""

from collections.abc import Sequence

from mq_django.conf import get_config
from mq_django.inspector.limit_use import KeyUse, LimitUse, limit_use
from mq_django.inspector.readers import reader_of
from mq_django.stores.schedule_state import Planned, Schedules, ScheduleState, planned
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

__all__ = ["KeyUse", "LimitUse", "Planned", "ScheduleState", "find", "fire", "forget", "limits", "schedules", "switch"]


def schedules(name: str) -> tuple[int, Sequence[Planned]]:
    """Return now in ms since 1970, and the schedules of a queue by name; groups and RSMQ's queues have none.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    config, wire = get_config().queue(name), Pooled(get_client("inspect"))
    return planned(config, wire) if reader_of(config, wire).has_schedules else (0, [])


def find(name: str, schedule: str) -> Planned | None:
    """Return a schedule of a queue, or None."""
    return next((plan for plan in schedules(name)[1] if plan.name == schedule), None)


def switch(plan: Planned, *, paused: bool) -> None:
    """Let the ticks of a schedule pass without a message, or fire again from the next one on."""
    store = _schedules(plan)
    if paused:
        store.pause(plan.name)
    else:
        store.resume(plan.name)


def fire(plan: Planned) -> str | None:
    """Publish the message of a schedule at once, paused or not, and return its id; None: it has left the code."""
    return None if plan.entry is None else _schedules(plan).fire_now(plan.entry)


def forget(plan: Planned) -> None:
    """Forget what is known of a schedule that has left the code; one that is there begins anew."""
    _schedules(plan).forget(plan.name)


def limits(name: str, *, count: int) -> LimitUse | None:
    """Return how far a queue's limits are used, with `count` of the keys that wait; None when it has no limits."""
    config = get_config().queue(name)
    return limit_use(config, Pooled(get_client("inspect")), count=count) if config.limits else None


def _schedules(plan: Planned) -> Schedules:
    return Schedules(get_config().queue(plan.queue), Pooled(get_client("inspect")))
