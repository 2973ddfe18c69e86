"""Queues as people see them: numbers, consumers, and what is wrong."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.core.keys import GROUP_SEPARATOR, QueueKeys, TopicKeys
from mq_django.errors import StoreError
from mq_django.inspector.activity import NONE, Activity, activity_of, activity_of_days, counts
from mq_django.inspector.consumers import ConsumerView, consumers_of
from mq_django.inspector.queue_looks import Look, counted, hours_of, look, look_closely
from mq_django.registry import groups
from mq_django.stores.counters import WHAT
from mq_django.stores.topic_stats import group_names
from mq_django.transport.connections import get_client
from mq_django.transport.failures import readable
from mq_django.transport.sessions import Pooled, Wire

#: From this age of its oldest ready message a queue is shown as late.
LATE_MS = 60_000

#: Counters that one page reads; of more only those of all names together.
MAX_COUNTERS = 30_000

#: Minutes of which dead letters are news.
RECENT = 30

#: From this share on errors are set off.
MANY_ERRORS = 0.05

#: Minutes over which a queue is seen to grow, and by how many messages it must.
GROWING, MIN_GROWTH = 10, 100

#: What may be wrong with a queue, the worst first.
Problem = Literal["unreadable", "unconsumed", "paused", "unhandled", "growing", "buried", "late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue: how many messages are where, who consumes it, what happened in the last hour."""

    name: str
    now_ms: int = 0
    ready: int = 0
    pending: int = 0
    delayed: int = 0
    unhandled: int = 0
    #: Over the limit of their key.
    parked: int = 0
    dead: int = 0
    #: How long the oldest ready message has been so, in ms; None when none is ready.
    oldest_ms: int | None = None
    #: Milliseconds until the first delayed message is due; None when none is delayed.
    next_due_ms: int | None = None
    paused: bool = False
    #: The living first.
    consumers: tuple[ConsumerView, ...] = ()
    activity: Activity = NONE
    #: Why it cannot be read; empty when it can.
    error: str = ""

    @property
    def depth(self) -> int:
        """Return ready + waiting + pending."""
        return self.ready + self.pending + self.delayed + self.unhandled + self.parked

    @property
    def alive(self) -> int:
        """Return how many consumers live."""
        return sum(consumer.alive and consumer.is_process for consumer in self.consumers)

    @property
    def recently_buried(self) -> int:
        """Return how many messages became dead letters in the last half hour, of those that still are."""
        return min(self.dead, sum(self.activity.buried[-RECENT:]))

    @property
    def error_share(self) -> float | None:
        """Return the share of what ran in the last half hour that failed, 0 to 1; None when nothing ran."""
        failed = sum(self.activity.retried[-RECENT:]) + sum(self.activity.buried[-RECENT:])
        ran = failed + sum(self.activity.handled[-RECENT:])
        return failed / ran if ran else None

    @property
    def fails_often(self) -> bool:
        """Tell whether the share of errors is one to look into."""
        return (self.error_share or 0.0) >= MANY_ERRORS

    @property
    def growth(self) -> int:
        """Return how many more messages came than went in the last whole minutes, if that goes on and they wait.

        A burst that is being worked off came in one half of that time, and does not count; nor do messages that are
        published with a delay. 0 when it does not grow.
        """
        halves = [self._surplus(-GROWING - 1, -GROWING // 2 - 1), self._surplus(-GROWING // 2 - 1, -1)]
        total = sum(halves)
        enough = max(MIN_GROWTH, sum(self.activity.published[-GROWING - 1 : -1]) // 10)
        return total if min(halves) > 0 and total >= enough and self.ready >= total // 2 else 0

    def _surplus(self, first: int, last: int) -> int:
        gone = sum(self.activity.handled[first:last]) + sum(self.activity.buried[first:last])
        return sum(self.activity.published[first:last]) - gone

    def problems(self) -> list[Problem]:
        """Return what is wrong, the worst first."""
        wrong: dict[Problem, bool] = {
            "unreadable": bool(self.error),
            "unconsumed": not self.alive and self.depth > 0,
            "paused": self.paused,
            "unhandled": self.unhandled > 0,
            "growing": self.alive > 0 and not self.paused and self.growth > 0,
            "buried": self.recently_buried > 0,
            "late": self.alive > 0 and not self.paused and (self.oldest_ms or 0) >= LATE_MS,
        }
        return [problem for problem, there in wrong.items() if there]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All queues together: what happened today and yesterday, and what is there now."""

    published: int
    handled: int
    retried: int
    buried: int
    #: Were too old to be handled, and are gone.
    expired: int
    ready: int
    pending: int
    delayed: int
    unhandled: int
    dead: int


def overview() -> list[QueueView]:
    """Return all queues and groups of topics, by name, with what happened in the last half hour in all.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreError: Redis is away.
    """
    wire = Pooled(get_client("inspect"))
    chosen = _all(wire)
    looks = look(chosen, wire, minutes=RECENT + 1)
    return [_view_or_error(config, found) for config, found in zip(chosen, looks, strict=True)]


def groups_of(topic: str) -> list[QueueView]:
    """Return the groups of a topic as overview() does.

    Raises:
        UnknownTopic: it is not configured.
        StoreError: Redis is away.
    """
    wire, config = Pooled(get_client("inspect")), get_config().topic(topic)
    chosen = [get_config().queue(name) for name in sorted(_groups([config], wire))]
    looks = look(chosen, wire, minutes=RECENT + 1) if chosen else []
    return [_view_or_error(config, found) for config, found in zip(chosen, looks, strict=True)]


def queue(name: str, *, of: str = "") -> QueueView:
    """Return a queue, with what happened in the last hour, by name and in all, or to messages named `of`.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    config = get_config().queue(name)
    return _view_or_error(config, look_closely(config, Pooled(get_client("inspect")), longest=MAX_COUNTERS), of=of)


def activity(name: str, *, hours: int, of: str = "") -> Activity:
    """Return what happened in a queue in the last hours, an hour a count; of messages named `of` only, if it is given.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    return activity_in(get_config().queue(name).keys, hours=hours, of=of)


def activity_in(keys: QueueKeys | TopicKeys, *, hours: int, of: str = "") -> Activity:
    """Return what the counters under some keys say about the last hours; see activity()."""
    now_ms = int(time.time() * 1000)
    today = now_ms // 86_400_000
    days = range(today - (hours + 23) // 24, today + 1)
    wire, longest = Pooled(get_client("inspect")), MAX_COUNTERS
    found = counted([keys.hours(day) for day in days], wire, slots=24, longest=longest)
    return activity_of_days(dict(zip(days, found, strict=True)), now_ms=now_ms, hours=hours, of=of)


def quick_stats(name: str, *, minutes: int = 0) -> QueueView:
    """Return a queue as it is now, with what happened in the last minutes in all.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    config = get_config().queue(name)
    (found,) = look([config], Pooled(get_client("inspect")), minutes=minutes)
    return _view_or_error(config, found)


def totals() -> Totals:
    """Return the sums over all queues.

    Raises:
        StoreError: Redis is away, or a queue cannot be read.
    """
    wire = Pooled(get_client("inspect"))
    configs, today = _all(wire), int(time.time()) // 86400
    happened = dict.fromkeys(WHAT, 0)
    # What is published to a topic is counted once, by the topic; what its groups do with it, by each.
    for fields in hours_of((today - 1, today), [*configs, *get_config().topics.values()], wire):
        for _, what, _, count in counts(fields):
            if what in happened:
                happened[what] += count
    looks = [_or_raise(found) for found in look(configs, wire, minutes=0)]
    return Totals(
        **happened,
        ready=sum(found.ready for found in looks),
        pending=sum(found.pending for found in looks),
        delayed=sum(found.delayed for found in looks),
        unhandled=sum(found.unhandled for found in looks),
        dead=sum(found.dead for found in looks),
    )


def _all(wire: Wire) -> list[QueueConfig]:
    """Return all queues, and the groups that topics have."""
    config = get_config()
    return [config.queue(name) for name in sorted({*config.queues, *_groups(list(config.topics.values()), wire)})]


def _groups(topics: Sequence[TopicConfig], wire: Wire) -> set[str]:
    """Return the groups that topics have, whether in code or, of other programs, in Redis, as `topic:group`.

    A topic that cannot be read hides no other: its own page says why.
    """
    known = {topic.name for topic in topics}
    found = {name for name in groups() if name.partition(GROUP_SEPARATOR)[0] in known}
    there = group_names([topic.keys for topic in topics], wire)
    for topic, names in zip(topics, there, strict=True):
        if not isinstance(names, StoreError):
            found |= {f"{topic.name}{GROUP_SEPARATOR}{name}" for name in names}
    return found


def _or_raise(found: Look | StoreError) -> Look:
    if isinstance(found, StoreError):
        raise found
    return found


def _view_or_error(config: QueueConfig, found: Look | StoreError, *, of: str = "") -> QueueView:
    view = found if isinstance(found, StoreError) else _view(config, found, of)
    return QueueView(name=config.name, error=str(view)) if isinstance(view, StoreError) else view


@readable
def _view(config: QueueConfig, found: Look, of: str) -> QueueView:
    now = found.now_ms
    return QueueView(
        name=config.name,
        now_ms=now,
        ready=found.ready,
        pending=found.pending,
        delayed=found.delayed,
        unhandled=found.unhandled,
        parked=found.parked,
        dead=found.dead,
        oldest_ms=None if found.oldest_ms is None else max(0, now - found.oldest_ms),
        next_due_ms=None if found.next_due_ms is None else max(0, found.next_due_ms - now),
        paused=found.paused,
        consumers=consumers_of(found.membership, now_ms=now),
        activity=activity_of(found, of=of),
    )
