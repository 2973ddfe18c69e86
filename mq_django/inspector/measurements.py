"""All figures of queues and topics at one moment, for monitoring software. A fixed number of round trips.

And those of outboxes, with two queries to each database that has one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.errors import StoreError
from mq_django.inspector.dead_letters import groups_of_queues
from mq_django.inspector.outbox_views import OutboxView, outboxes, uses_outbox
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import overview, transports_of
from mq_django.inspector.topics import TopicView, topics
from mq_django.stores.counters import Totals, read_totals
from mq_django.stores.schedules import MAX_SCHEDULES, ScheduleStatus, Statuses, statuses_of

#: Classes of errors that a queue shows. Dead letters of further ones are counted together.
MAX_ERRORS = 20
#: Stands for the class of the error of those, and of dead letters that have no error.
OTHER_ERRORS, NO_ERROR = "other", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """The figures of a queue or a group of a topic."""

    #: It has an error if the queue cannot be read; the other figures are empty then.
    view: QueueView
    #: What happened since counting began, by kind of counter. Empty if they cannot be read.
    totals: Totals
    #: Class of the error -> dead letters, as counted when they were buried.
    dead: Mapping[str, int]
    schedules: Sequence[ScheduleStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """The figures of a topic."""

    #: It has an error if the topic cannot be read.
    view: TopicView
    #: What was published since counting began. Handling is counted by the groups.
    totals: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The figures of all queues, groups of topics and topics, by name."""

    queues: Sequence[QueueFigures]
    topics: Sequence[TopicFigures]
    #: Live consumers, their threads, and how many threads and coroutines run a handler.
    consumers: int
    threads: int
    busy_threads: int
    coroutines: int
    #: What the outboxes of the databases have, by destination.
    outboxes: Sequence[OutboxView] = ()


def measure() -> Measurements:
    """Return the figures of all queues and topics.

    Reading adds the counters of hours that are over to the totals, because these counters expire.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreError: no server can be reached.
    """
    views, found_topics = overview(), topics()
    now_ms = max([*(view.now_ms for view in views), *(view.now_ms for view in found_topics)], default=0)
    wholes = [get_config().queue(view.name) for view in views if not view.error]
    configs = {whole.name: whole.each_part for whole in wholes}
    topic_configs = {view.name: view.config.each_part for view in found_topics if not view.error}
    # A queue and a topic never have the same name.
    totals = _totals({**configs, **topic_configs}, now_ms)
    dead = _dead({view.name: configs[view.name] for view in views if view.name in configs and view.dead})
    schedules = _schedules([whole for whole in wholes if whole.has_schedules])
    return Measurements(
        queues=[
            QueueFigures(
                view=view,
                totals=totals.get(view.name, {}),
                dead=dead.get(view.name, {}),
                schedules=schedules.get(view.name, ()),
            )
            for view in views
        ],
        topics=[TopicFigures(view=view, totals=totals.get(view.name, {})) for view in found_topics],
        outboxes=outboxes(at_most=None) if uses_outbox() else (),
        **_slots(views),
    )


#: Queue or topic -> its partitions, or itself.
Parts = Mapping[str, Sequence[QueueConfig | TopicConfig]]


def _totals(parts: Parts, now_ms: int) -> Mapping[str, Totals]:
    """Return what happened in each queue and topic; without those that cannot be read, or of which a part cannot."""
    chosen = [config for configs in parts.values() for config in configs]
    read = iter(read_totals([config.keys for config in chosen], transports_of(chosen), now_ms=now_ms))
    found = {}
    for name, configs in parts.items():
        each = list(islice(read, len(configs)))
        if not any(isinstance(totals, StoreError) for totals in each):
            found[name] = _sum(totals for totals in each if not isinstance(totals, StoreError))
    return found


def _sum(each: Iterable[Totals]) -> Totals:
    found: Counter[str] = Counter()
    for totals in each:
        found.update(totals)
    return found


def _dead(parts: Mapping[str, Sequence[QueueConfig]]) -> Mapping[str, Mapping[str, int]]:
    """Return the dead letters of queues by class of the error: of each queue the most frequent classes."""
    chosen = [config for configs in parts.values() for config in configs]
    read = iter(groups_of_queues(chosen, transports_of(chosen)))
    found = {}
    for name, configs in parts.items():
        counted: Counter[str] = Counter()
        for groups in islice(read, len(configs)):
            for each in () if isinstance(groups, StoreError) else groups:
                counted[OTHER_ERRORS if each.group is None else each.group.error or NO_ERROR] += each.count
        shown = dict(counted.most_common(MAX_ERRORS))
        if rest := counted.total() - sum(shown.values()):
            shown[OTHER_ERRORS] = shown.get(OTHER_ERRORS, 0) + rest
        found[name] = shown
    return found


def _schedules(configs: Sequence[QueueConfig]) -> Mapping[str, Sequence[ScheduleStatus]]:
    found: list[Statuses | StoreError] = statuses_of(configs, transports_of(configs), limit=MAX_SCHEDULES)
    return {
        config.name: each.found for config, each in zip(configs, found, strict=True) if not isinstance(each, StoreError)
    }


def _slots(views: Sequence[QueueView]) -> dict[str, int]:
    """Return the live consumers: each is listed by all of its queues."""
    live = {one.id: one for view in views for one in view.consumers if one.alive and one.is_process}
    return {
        "consumers": len(live),
        "threads": sum(one.threads or 0 for one in live.values()),
        "busy_threads": sum(one.busy or 0 for one in live.values()),
        "coroutines": sum(one.coroutines for one in live.values()),
    }
