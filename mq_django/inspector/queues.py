"""Queues as people see them: numbers, consumers, and what is wrong."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mq_django.conf import QueueConfig, get_config
from mq_django.core.keys import GROUP_SEPARATOR, QueueKeys, TopicKeys
from mq_django.errors import StoreError
from mq_django.inspector.activity import NONE, Activity, activity_of, activity_of_days, counts
from mq_django.registry import groups
from mq_django.stores.counters import WHAT
from mq_django.stores.lag import groups_of as named_groups
from mq_django.stores.pages import Look, counted, hours_of, look, look_closely
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled, Wire

#: A supervisor that was not heard of for this long is shown as gone: three of its heartbeats.
ALIVE_MS = 7500

#: From this age of its oldest ready message a queue is shown as late.
LATE_MS = 60_000

#: Counters that one page reads; of more only those of all names together.
MAX_COUNTERS = 50_000

#: Minutes of which dead letters are news.
RECENT = 30

#: What may be wrong with a queue, the worst first.
Problem = Literal["unreadable", "unconsumed", "paused", "unhandled", "buried", "late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerView:
    """A consumer of a queue."""

    id: str
    supervisor: str
    host: str
    pid: int | None
    version: str
    threads: int | None
    #: Milliseconds since 1970; None when it did not say.
    since_ms: int | None
    #: Milliseconds since its supervisor's last heartbeat; None when there was none.
    seen_ms_ago: int | None

    @property
    def alive(self) -> bool:
        """Tell whether its supervisor was heard of lately."""
        return self.seen_ms_ago is not None and self.seen_ms_ago <= ALIVE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue: how many messages are where, who consumes it, what happened in the last hour."""

    name: str
    now_ms: int = 0
    ready: int = 0
    pending: int = 0
    delayed: int = 0
    unhandled: int = 0
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
        return self.ready + self.pending + self.delayed + self.unhandled

    @property
    def alive(self) -> int:
        """Return how many consumers live."""
        return sum(consumer.alive for consumer in self.consumers)

    @property
    def recently_buried(self) -> int:
        """Return how many messages became dead letters in the last half hour, of those that still are."""
        return min(self.dead, sum(self.activity.buried[-RECENT:]))

    def problems(self) -> list[Problem]:
        """Return what is wrong, the worst first."""
        wrong: dict[Problem, bool] = {
            "unreadable": bool(self.error),
            "unconsumed": not self.alive and self.depth > 0,
            "paused": self.paused,
            "unhandled": self.unhandled > 0,
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
    found = {name for name in groups() if name.partition(GROUP_SEPARATOR)[0] == topic}
    chosen = [get_config().queue(name) for name in sorted({*found, *named_groups([config.keys], wire)})]
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


def glance(name: str) -> QueueView:
    """Return a queue as it is now, without what happened before.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    config = get_config().queue(name)
    (found,) = look([config], Pooled(get_client("inspect")), minutes=0)
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
    """Return all queues, and the groups that topics have, whether in code or, of other programs, in Redis."""
    config = get_config()
    found = {name for name in groups() if name.partition(GROUP_SEPARATOR)[0] in config.topics}
    found |= set(named_groups([topic.keys for topic in config.topics.values()], wire))
    return [config.queue(name) for name in sorted({*config.queues, *found})]


def _or_raise(found: Look | StoreError) -> Look:
    if isinstance(found, StoreError):
        raise found
    return found


def _view_or_error(config: QueueConfig, found: Look | StoreError, *, of: str = "") -> QueueView:
    if isinstance(found, StoreError):
        return QueueView(name=config.name, error=str(found))
    return _view(config, found, of)


def _view(config: QueueConfig, found: Look, of: str) -> QueueView:
    now = found.now_ms
    return QueueView(
        name=config.name,
        now_ms=now,
        ready=found.ready,
        pending=found.pending,
        delayed=found.delayed,
        unhandled=found.unhandled,
        dead=found.dead,
        oldest_ms=None if found.oldest_ms is None else max(0, now - found.oldest_ms),
        next_due_ms=None if found.next_due_ms is None else max(0, found.next_due_ms - now),
        paused=found.paused,
        consumers=tuple(sorted(_consumers(found), key=lambda consumer: (not consumer.alive, consumer.id))),
        activity=activity_of(found, of=of),
    )


def _consumers(found: Look) -> Iterable[ConsumerView]:
    roll = found.roll
    for name, told in roll.consumers.items():
        supervisor = str(told.get("supervisor", ""))
        seen = roll.seen_ms.get(supervisor)
        says = {**roll.supervisors.get(supervisor, {}), **told}
        yield ConsumerView(
            id=name,
            supervisor=supervisor,
            host=str(says.get("host", "")),
            pid=_number(says, "pid"),
            version=str(says.get("version", "")),
            threads=_number(says, "threads"),
            since_ms=_number(says, "since_ms"),
            seen_ms_ago=None if seen is None else max(0, found.now_ms - seen),
        )


def _number(says: Mapping[str, Any], name: str) -> int | None:
    value = says.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
