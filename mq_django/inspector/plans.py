"""The schedules and limits of a queue, for display, and deleting the state of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig, get_config
from mq_django.core.jsontext import whole
from mq_django.core.limits import LimitChange, LimitName, Limits, read_changes
from mq_django.errors import StoreError
from mq_django.inspector.key_lines import KeyShare, noisy_keys
from mq_django.inspector.message_lists import in_indexes
from mq_django.inspector.message_views import MessageView
from mq_django.stores.activity import recorded
from mq_django.stores.line_store import LineStore
from mq_django.stores.schedule_status import (
    MAX_REASON,
    TAKEN,
    ListedSchedule,
    Origin,
    PlannedSchedule,
    SkippedTick,
    Statuses,
    listed_of,
    statuses,
)
from mq_django.stores.schedules import Schedules
from mq_django.transport.connections import open_transport, open_transports
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

# The usage of a queue's limits, and the keys with parked messages. Read-only.


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A key that has parked messages."""

    key: str
    parked: int
    #: Deliveries granted in the window that ends now; 0 when keys have no rate.
    granted: int
    #: Permits in use; 0 when keys have no rate and no concurrency.
    concurrent: int
    #: When its parked messages are checked next at the latest, in ms since 1970.
    next_check_ms: int
    #: The name of its line: see `mq_django.inspector.key_lines.line_of()`.
    hash: int


@dataclass(frozen=True, slots=True)
class LimitUse:
    """The usage of the limits of a queue, by the clock of Redis."""

    now_ms: int
    #: Deliveries granted in the window that ends now; 0 when the queue has no rate.
    granted: int
    #: Pending deliveries.
    concurrent: int
    #: Parked messages, and the number of their keys.
    parked: int
    keys: int
    #: The limits as they are now, and which of them have another value than in the settings.
    limits: Limits
    changes: Mapping[LimitName, LimitChange]
    #: A page of these keys, in the order of their next checks.
    page: Sequence[KeyUse]


def limit_uses(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], *, start: int = 0, count: int = 50
) -> list[LimitUse]:
    """Return the usage of limits, and `count` of the keys with parked messages from `start` on, of each queue.

    Each has its transport: one round trip per server.
    """
    pipelines = [
        [LineStore(config, transport).read_command(start, count)]
        for config, transport in zip(configs, transports, strict=True)
    ]
    replies = fan_out(transports, pipelines)
    return [_use(config.limits, reply) for config, (reply,) in zip(configs, replies, strict=True)]


def _use(limits: Limits, reply: Any) -> LimitUse:
    now_ms, granted, concurrent, parked, keys, changed, *rows = reply_or_raise(reply)
    read = read_changes(changed)
    changes = {name: read[name] for name in limits.changeable if name in read}
    page = [
        KeyUse(key.decode(errors="replace"), waits, used, held, next_check, whole(key_hash) or 0)
        for key, waits, used, held, next_check, key_hash in zip(*[iter(rows)] * 6, strict=True)
    ]
    return LimitUse(now_ms, granted, concurrent, parked, keys, limits.changed(changes), changes, page)


def summed_use(found: Sequence[LimitUse], of_whole: LimitUse, *, count: int) -> LimitUse:
    """Return the usage of the limits of a queue with partitions."""
    page = sorted((key for each in found for key in each.page), key=lambda key: key.next_check_ms)
    return replace(
        of_whole,
        now_ms=max(each.now_ms for each in found),
        concurrent=sum(each.concurrent for each in found),
        parked=sum(each.parked for each in found),
        keys=sum(each.keys for each in found),
        page=page[:count],
    )


# The schedules of a queue, for display, and deleting the state of one.

__all__ = ["MAX_REASON", "TAKEN", "ListedSchedule", "Origin", "PlannedSchedule", "SkippedTick", "Statuses"]


def schedules(name: str, *, limit: int | None = None, bounded: bool = False) -> Statuses:
    """Return the schedules of a queue by name; groups and queues in RSMQ's format have none.

    Args:
        name: the queue.
        limit: at most so many, the first ones.
        bounded: only some of very many, for a page.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    config = get_config().queue(name)
    transport = open_transport("inspect", config.connection)
    if not config.has_schedules:
        return Statuses(0, [], 0)
    return statuses(config, transport, limit=limit, bounded=bounded)


class AllSchedules(NamedTuple):
    """The schedules of all queues, by queue and name."""

    found: Sequence[ListedSchedule]
    #: The queues whose schedules cannot be read, and the ones that have more than were read.
    unread: Sequence[str]
    partly: Sequence[str]


def all_schedules(now_ms: int) -> AllSchedules:
    """Return the schedules of all queues.

    Raises:
        StoreError: no server can be reached.
    """
    configs = [config for config in get_config().queues.values() if config.has_schedules]
    found = listed_of(configs, open_transports("inspect", [config.connection for config in configs]), now_ms=now_ms)
    read = {config.name: each for config, each in zip(configs, found, strict=True) if not isinstance(each, StoreError)}
    return AllSchedules(
        found=[each for listed, _ in read.values() for each in listed],
        unread=[config.name for config in configs if config.name not in read],
        partly=[name for name, (_, is_part) in read.items() if is_part],
    )


#: Ticks that are shown of a schedule.
COMING = 10


def coming(plan: PlannedSchedule) -> list[tuple[int, bool]]:
    """Return the next ticks of a schedule in ms since 1970, also while it is paused, and whether each is skipped."""
    found, skipped, tick_ms = list[tuple[int, bool]](), {each.tick_ms for each in plan.skips}, plan.upcoming_ms
    while tick_ms is not None and len(found) < COMING:
        found.append((tick_ms, tick_ms in skipped))
        tick_ms = plan.next_tick_ms(tick_ms)
    return found


class Published(NamedTuple):
    """A message of a schedule."""

    ms: int
    id: str
    #: Where it is, or what became of it; None: that is not known.
    view: MessageView | None


def latest(plan: PlannedSchedule) -> list[Published]:
    """Return the latest messages of a schedule with what became of them, as far as indexes know: nothing is scanned.

    Raises:
        StoreError: cannot reach Redis.
    """
    found = []
    for ms, message_id in plan.recent:
        # One that became a dead letter, and was redriven, may wait again.
        views = list(in_indexes(plan.home, message_id, by_unique=False))
        found.append(Published(ms, message_id, views[0] if views else None))
    return found


def find(name: str, schedule: str, *origins: Origin) -> PlannedSchedule | None:
    """Return a schedule of a queue, or None; with origins, only one of these."""
    config = get_config().queue(name)
    transport = open_transport("inspect", config.connection)
    found = statuses(config, transport, name=schedule).found if config.has_schedules else []
    return next((plan for plan in found if not origins or plan.origin in origins), None)


def next_ticks(name: str, schedule: str, *, count: int) -> list[int]:
    """Return the next times at which a schedule fires, in ms since 1970; none while it is paused or cannot fire.

    Skipped ticks are left out.
    """
    plan = find(name, schedule)
    ticks: list[int] = []
    if plan is None or plan.entry is None:
        return ticks
    tick, skipped = plan.next_ms, {each.tick_ms for each in plan.skips}
    while tick is not None and len(ticks) < count:
        ticks.append(tick)
        tick = plan.next_tick_ms(tick, skipped=skipped)
    return ticks


@recorded(
    "forget schedule",
    queue=lambda given: given["plan"].queue,
    about=lambda given: [given["plan"].name],
)
def forget(plan: PlannedSchedule) -> None:
    """Delete the state of a schedule of code or settings. One that is still there starts anew."""
    config = get_config().queue(plan.home)
    Schedules(config, open_transport("inspect", config.connection)).forget(plan.name)


def limits(name: str, *, count: int) -> LimitUse | None:
    """Return the usage of a queue's limits with up to `count` keys with parked messages; None without limits."""
    config = get_config().queue(name)
    if not config.limits:
        return None
    # The grants of a rate of the queue as a whole are in its own slot.
    configs = [config] if not config.parts else [*config.parts, config]
    found = limit_uses(configs, open_transports("inspect", [each.connection for each in configs]), count=count)
    return found[0] if len(found) == 1 else summed_use(found[:-1], found[-1], count=count)


def noisiest(name: str) -> Sequence[KeyShare]:
    """Return the keys that have most of the parked messages of a queue; of one with partitions none."""
    config = get_config().queue(name)
    if config.parts or not config.limits.of_keys:
        return ()
    return noisy_keys(config, open_transport("inspect", config.connection))
