"""Figures over time, of all queues or of one: activity, depth by state, and what hosts and versions have handled.

A queue counts its messages by name. Once a minute `mq_django.observability.problem_watch` adds depths, and what
consumers have done by host and version, which is only known of all queues together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.core import clock
from mq_django.core.keys import HostKeys
from mq_django.errors import StoreError
from mq_django.inspector.action_log import Action, Criteria, search, undoable
from mq_django.inspector.queue_view import Activity, NameActivity, Period, activity_of
from mq_django.inspector.queues import activity_in, all_configs, transports_of, whole_configs
from mq_django.inspector.statistics import DEPTHS, counted
from mq_django.stores.counters import TOOK, WAITED, WHAT, added, counter_fields, read_versions, there
from mq_django.transport.connections import open_transport
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import fan_out, reply_or_raise

#: Counters of all queues that a page reads. With more of them it leaves out times, then depths.
MOST = 300_000
KINDS = ((*WHAT, *DEPTHS, *TOOK, *WAITED), (*WHAT, *DEPTHS), WHAT)

#: Minutes of steps: the shortest with which a period has at most STEPS is used.
MINUTES, HOURS, STEPS = (1, 2, 5, 10, 15, 30), (1, 2, 3, 6, 12, 24), 180
#: For how long minutes and hours are kept, less than in Redis: in ms.
MINUTES_KEPT, HOURS_KEPT = 25 * 3_600_000, 34 * 86_400_000
#: The latest pauses and resumes that are read.
MAX_SWITCHES = 1000


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of a period."""

    period: Period
    activity: Activity
    #: Of all queues: each of them, the busiest first. Of one: each name.
    rows: Sequence[NameActivity]
    #: Of all queues: those that could not be read, with their errors.
    errors: Mapping[str, str]


def period(since_ms: int, until_ms: int) -> Period:
    """Return a time in steps, of minutes if these are kept, bounded to what is kept and to now."""
    now_ms = clock.now_ms()
    until_ms = max(min(until_ms, now_ms), now_ms - HOURS_KEPT + 3_600_000)
    since_ms = max(min(since_ms, until_ms - 60_000), now_ms - HOURS_KEPT)
    in_minutes = since_ms >= now_ms - MINUTES_KEPT and until_ms - since_ms <= MINUTES[-1] * STEPS * 60_000 // 10
    slot, lengths = (1, MINUTES) if in_minutes else (60, HOURS)
    span_ms = until_ms - since_ms
    per = next((each for each in lengths if span_ms <= each * slot * STEPS * 60_000), lengths[-1])
    step_ms = per * slot * 60_000
    first, last = since_ms // step_ms, (until_ms - 1) // step_ms
    elapsed = now_ms % step_ms / step_ms if last == now_ms // step_ms else 1.0
    return Period(slot, first * per, per, last - first + 1, elapsed)


def measured() -> list[str]:
    """Return the names of all queues, groups and topics.

    Raises:
        StoreError: cannot reach Redis.
    """
    return sorted({*(config.name for config in whole_configs()), *get_config().topics})


def queue_metrics(name: str, period: Period, *, of: str = "") -> Metrics:
    """Return the figures of a queue or topic, or of its messages with a name.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    project = get_config()
    found = activity_in(project.topics.get(name) or project.queue(name), period, of=of)
    return Metrics(period, found, found.names, {})


def all_metrics(period: Period) -> Metrics:
    """Return the figures of all queues, groups and topics together, and of each.

    One round trip per server.

    Raises:
        StoreError: cannot reach any server.
    """
    topics = [part for topic in get_config().topics.values() for part in topic.each_part]
    configs: list[QueueConfig | TopicConfig] = [*all_configs(), *topics]
    slots = period.slots()
    count = len(configs) * sum(map(len, slots))
    kinds = next((each for each in KINDS if count * len(each) <= MOST), WHAT)
    fields = [counter_fields(each, kinds) for each in slots]
    pipelines: list[list[Command]] = [
        [("HMGET", key, *asked) for key, asked in zip(period.keys(config.keys), fields, strict=True)]
        for config in configs
    ]
    found: list[list[Mapping[bytes, bytes]]] = [[] for _ in slots]
    errors = {}
    for config, replies in zip(configs, fan_out(transports_of(configs), pipelines), strict=True):
        read = _read(fields, replies)
        if isinstance(read, StoreError):
            errors[config.public_name] = str(read)
            continue
        for each, total in zip(found, read, strict=True):
            each += [total, _named(total, config.public_name.encode())]
    activity = activity_of(period.by_start([added(each) for each in found]), period)
    return Metrics(period, activity, activity.names, errors)


@readable
def _read(fields: Sequence[Sequence[bytes]], replies: Sequence[Any]) -> list[Mapping[bytes, bytes]]:
    return [there(asked, reply_or_raise(reply)) for asked, reply in zip(fields, replies, strict=True)]


def _named(totals: Mapping[bytes, bytes], name: bytes) -> Mapping[bytes, bytes]:
    """Return the totals of a queue as counters of a name."""
    return {field + name: value for field, value in totals.items() if b"|depth." not in field}


def host_metrics(period: Period) -> Activity:
    """Return what the consumers of all queues have handled; its names are `host|version`.

    Raises:
        StoreError: cannot reach Redis.
    """
    keys, transport = HostKeys(get_config().namespace), open_transport("inspect", "")
    found = counted([period.keys(keys)], [transport], slots=period.size)
    return replace(activity_of(period.by_start(found.hashes), period), names_left_out=found.names_left_out)


def deploys(period: Period) -> list[tuple[int, str]]:
    """Return when versions of the project began in a period, and which: not the first one that is known.

    Raises:
        StoreError: cannot reach Redis.
    """
    known = read_versions(open_transport("inspect", ""), HostKeys(get_config().namespace))
    return [(ms, version) for version, ms in list(known.items())[1:] if period.since_ms <= ms < period.until_ms]


class PausedTime(NamedTuple):
    """A time in which queues were paused."""

    #: The pause, with who did it and why.
    action: Action
    #: When these queues were resumed, in ms since 1970; None if they still are paused.
    until_ms: int | None
    #: As far as the activity names them.
    queues: list[str]


def paused_times(period: Period, queue: str = "") -> list[PausedTime]:
    """Return the times in a period in which a queue, or any queue, was paused, by the activity, the earliest first.

    A pause is left out if its end is not recorded.

    Raises:
        StoreError: cannot reach Redis.
    """
    open_by: dict[str, Action] = {}
    found: dict[tuple[str, int | None], PausedTime] = {}
    for each in reversed(search(Criteria(verbs=("pause", "resume")), limit=MAX_SWITCHES).rows):
        for name in _switched(each, queue):
            if each.verb == "pause":
                open_by.setdefault(name, each)
            elif name in open_by:
                _add(found, open_by.pop(name), each.ms, name)
    for name, began in open_by.items():
        _add(found, began, None, name)
    left = [each.action for each in found.values() if each.until_ms is None]
    still = undoable(left, {}) if left else ()
    shown = (each for each in found.values() if each.until_ms is not None or each.action.id in still)
    return sorted((each for each in shown if _overlaps(each, period)), key=lambda each: each.action.ms)


def _add(found: dict[tuple[str, int | None], PausedTime], began: Action, until_ms: int | None, name: str) -> None:
    found.setdefault((began.id, until_ms), PausedTime(began, until_ms, [])).queues.append(name)


def _switched(found: Action, queue: str) -> Sequence[str]:
    """Return the queues that were paused or resumed: an action on very many does not name all."""
    if queue:
        return [queue] if queue in found.queues or found.more else ()
    return found.queues


def _overlaps(found: PausedTime, period: Period) -> bool:
    return found.action.ms < period.until_ms and (found.until_ms is None or found.until_ms > period.since_ms)
