"""The schedules and limits of a queue, for display, and actions on schedules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.utils import timezone

from mq_django.conf import QueueConfig, get_config
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.schedules import Scheduled
from mq_django.inspector.limit_use import KeyUse, LimitUse, limit_use
from mq_django.stores.schedule_state import Schedules, scheduled
from mq_django.transport.connections import open_wire
from mq_django.transport.sessions import Wire, reply_or_raise

__all__ = ["KeyUse", "LimitUse", "Planned", "find", "fire", "forget", "limits", "schedules", "switch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A schedule and its state. Times are in ms since 1970, by the clock of Redis."""

    name: str
    queue: str
    #: None: it was removed from code and settings, and only its state is left.
    entry: Scheduled | None
    #: Ticks up to this time have fired; None: no consumer has run it yet.
    last_ms: int | None
    #: When its message was last published.
    fired_ms: int | None
    paused: bool
    #: The next tick that publishes; in the past if no consumer fired it. None while paused.
    next_ms: int | None


def schedules(name: str) -> tuple[int, Sequence[Planned]]:
    """Return now in ms since 1970, and the schedules of a queue by name; groups and queues in RSMQ's format have none.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    config, wire = get_config().queue(name), open_wire("inspect")
    return planned(config, wire) if config.has_schedules else (0, [])


def planned(config: QueueConfig, wire: Wire) -> tuple[int, list[Planned]]:
    """Return now, and every schedule that publishes to a queue or once did, by name."""
    time, flat = (reply_or_raise(reply) for reply in wire.trip([("TIME",), ("HGETALL", config.keys.schedules)]))
    now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
    states: dict[str, dict[str, bytes]] = {}
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        kind, _, name = field.decode(errors="replace").partition(":")
        states.setdefault(name, {})[kind] = value
    entries = {entry.name: entry for entry in scheduled() if entry.queue == config.name}
    names = sorted({*entries, *states})
    return now_ms, [_planned(name, config.name, entries.get(name), states.get(name, {}), now_ms) for name in names]


def _planned(name: str, queue: str, entry: Scheduled | None, state: Mapping[str, bytes], now_ms: int) -> Planned:
    last_ms, paused = whole(state.get("last"), LAST_MS), "paused" in state
    return Planned(
        name=name,
        queue=queue,
        entry=entry,
        last_ms=last_ms,
        fired_ms=whole(state.get("fired"), LAST_MS),
        paused=paused,
        next_ms=None if entry is None or paused else _next_ms(entry, last_ms or now_ms),
    )


def _next_ms(entry: Scheduled, after_ms: int) -> int | None:
    try:
        return entry.next_ms(after_ms, timezone.get_default_timezone())
    except (ValueError, OverflowError):
        # The stored time is after the last possible date.
        return None


def find(name: str, schedule: str) -> Planned | None:
    """Return a schedule of a queue, or None."""
    return next((plan for plan in schedules(name)[1] if plan.name == schedule), None)


def switch(plan: Planned, *, paused: bool) -> None:
    """Pause a schedule, or resume it from its next tick on."""
    store = _schedules(plan)
    if paused:
        store.pause(plan.name)
    else:
        store.resume(plan.name)


def fire(entry: Scheduled) -> str:
    """Publish the message of a schedule now, even if it is paused, and return its id.

    Raises:
        QueueFull: the queue is at its MAX_DEPTH.
        StoreError: cannot reach Redis.
    """
    return _schedules(entry).fire_now(entry)


def forget(plan: Planned) -> None:
    """Delete the state of a schedule. One that is still in code or settings starts anew."""
    _schedules(plan).forget(plan.name)


def limits(name: str, *, count: int) -> LimitUse | None:
    """Return the usage of a queue's limits with up to `count` keys with parked messages; None without limits."""
    config = get_config().queue(name)
    return limit_use(config, open_wire("inspect"), count=count) if config.limits else None


def _schedules(plan: Planned | Scheduled) -> Schedules:
    return Schedules(get_config().queue(plan.queue), open_wire("inspect"))
