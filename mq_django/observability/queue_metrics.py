"""The metrics of queues and topics, as Prometheus names them: all figures at one moment, and how they are read."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.errors import StoreError
from mq_django.inspector.dead_letters import groups_of_queues
from mq_django.inspector.outbox_views import OutboxView, outboxes, uses_outbox
from mq_django.inspector.problem_list import QueueProblem, problems_among
from mq_django.inspector.queue_view import STATES, QueueView
from mq_django.inspector.queues import overview, transports_of
from mq_django.inspector.topics import TopicView, topics
from mq_django.stores.counters import TOOK, WAITED, Totals, read_totals
from mq_django.stores.schedule_status import ScheduleStatus, Statuses, statuses_of
from mq_django.stores.schedules import MAX_SCHEDULES

# All figures of queues and topics at one moment, for monitoring software. A fixed number of round trips.
#
# And metrics of outboxes, with two queries to each database that has one.

#: Classes of errors that a queue shows. Dead letters of further ones are counted together.
MAX_ERRORS = 20
#: Stands for the class of the error of those, and of dead letters that have no error.
OTHER_ERRORS, NO_ERROR = "other", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """The figures of a queue or a group of a topic."""

    #: It has an error if the queue cannot be read; the other figures are empty then.
    view: QueueView
    #: Counts of events since counting began, by kind of counter. Empty if they cannot be read.
    totals: Totals
    #: Class of the error -> dead letters, as counted when they were buried.
    dead: Mapping[str, int]
    schedules: Sequence[ScheduleStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """The figures of a topic."""

    #: It has an error if the topic cannot be read.
    view: TopicView
    #: Messages published since counting began. Handling is counted by the groups.
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
    #: The rows in the outboxes of the databases, by destination.
    outboxes: Sequence[OutboxView] = ()
    problems: Sequence[QueueProblem] = ()


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
    dead = _dead_by_error({view.name: configs[view.name] for view in views if view.name in configs and view.dead})
    schedules = _statuses([whole for whole in wholes if whole.has_schedules])
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
        problems=problems_among(views, ()),
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


def _dead_by_error(parts: Mapping[str, Sequence[QueueConfig]]) -> Mapping[str, Mapping[str, int]]:
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


def _statuses(configs: Sequence[QueueConfig]) -> Mapping[str, Sequence[ScheduleStatus]]:
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


# The metrics of queues and topics: their names, labels and values. Names follow the rules of Prometheus.

#: Values of labels, and the value of the metric.
Sample = tuple[tuple[str, ...], float]

#: The upper bound of the first bucket in seconds. The next ones are twice as large each; the last one has no bound.
FIRST_HANDLING, FIRST_LATENCY = 1e-4, 1e-3


class Plain(NamedTuple):
    """A gauge or a counter."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Measurements], Iterable[Sample]]


class Histogram(NamedTuple):
    """A histogram over kinds of counters, which are its buckets."""

    name: str
    help: str
    buckets: tuple[str, ...]
    #: The upper bound of the first one, in seconds.
    first: float


def _readable(found: Measurements) -> Iterator[QueueFigures]:
    return (queue for queue in found.queues if not queue.view.error)


def _of_queue(name: str, about: str, value: Callable[[QueueFigures], float]) -> Plain:
    """Return the metric of one value of each queue that can be read."""
    return Plain(
        name, about, ("queue",), lambda found: [((queue.view.name,), value(queue)) for queue in _readable(found)]
    )


def _messages(found: Measurements) -> Iterator[Sample]:
    for queue in _readable(found):
        for state in STATES:
            yield (queue.view.name, state), getattr(queue.view, state)


def _dead(found: Measurements) -> Iterator[Sample]:
    return (((queue.view.name, error), count) for queue in found.queues for error, count in queue.dead.items())


def _problems(found: Measurements) -> Iterator[Sample]:
    # The outbox of a queue may have several.
    return ((labels, 1) for labels in dict.fromkeys((problem.queue, problem.kind) for problem in found.problems))


def _holds(found: Measurements) -> Iterator[Sample]:
    for queue in _readable(found):
        states = Counter(hold.state for hold in (*queue.view.held_by_people, *queue.view.open_breakers))
        for state in ("held", "open", "ramp"):
            yield (queue.view.name, state), states[state]


def _schedules(found: Measurements) -> Iterator[Sample]:
    for queue in _readable(found):
        paused = sum(schedule.paused for schedule in queue.schedules)
        broken = sum(bool(schedule.problem) and not schedule.paused for schedule in queue.schedules)
        active = sum(schedule.next_ms is not None and not schedule.problem for schedule in queue.schedules)
        for state, count in (("active", active), ("paused", paused), ("broken", broken)):
            yield (queue.view.name, state), count


def _lateness(queue: QueueFigures) -> float:
    """Return by how many seconds the latest schedule of a queue is overdue."""
    due = [schedule.next_ms for schedule in queue.schedules if schedule.next_ms is not None and not schedule.problem]
    return max(0, queue.view.now_ms - min(due)) / 1000 if due else 0.0


def _of_group(name: str, about: str, value: Callable[[Any], float | None]) -> Plain:
    """Return the metric of one value of each group of each topic; groups without it are left out."""

    def read(found: Measurements) -> Iterator[Sample]:
        for topic in found.topics:
            for group in topic.view.groups:
                if group.subscribed and (figure := value(group)) is not None:
                    yield (topic.view.name, group.name), figure

    return Plain(name, about, ("topic", "group"), read)


def _of_topic(name: str, about: str, value: Callable[[Any], float]) -> Plain:
    def read(found: Measurements) -> Iterable[Sample]:
        return [((topic.view.name,), value(topic.view)) for topic in found.topics if not topic.view.error]

    return Plain(name, about, ("topic",), read)


def _in_outbox(found: Measurements) -> Iterator[Sample]:
    for one in found.outboxes:
        if not one.error:
            yield (one.database, one.destination, "waiting"), one.waiting
            yield (one.database, one.destination, "set_aside"), one.set_aside
            yield (one.database, one.destination, "retained"), one.retained


def _total(name: str, about: str) -> Plain:
    """Return the metric of what has happened in each queue, which is the end of its name."""
    kind = name.rpartition("_")[2]

    def read(found: Measurements) -> Iterable[Sample]:
        return [((queue.view.name,), queue.totals[kind]) for queue in found.queues if queue.totals]

    return Plain(name, about, ("queue",), read)


GAUGES = (
    Plain(
        "mq_django_queue_up",
        "Whether the queue can be read.",
        ("queue",),
        lambda found: [((queue.view.name,), not queue.view.error) for queue in found.queues],
    ),
    Plain("mq_django_queue_messages", "Messages by state.", ("queue", "state"), _messages),
    _of_queue(
        "mq_django_queue_oldest_ready_age_seconds",
        "Age of the oldest message that has not started; 0 without any.",
        lambda queue: (queue.view.waited_ms or 0) / 1000,
    ),
    _of_queue(
        "mq_django_queue_not_started_messages",
        "Ready messages, and pending ones that have not started.",
        lambda queue: queue.view.not_started,
    ),
    _of_queue("mq_django_queue_paused", "Whether the queue is paused.", lambda queue: queue.view.paused),
    Plain(
        "mq_django_queue_holds",
        "What is held of the queue: by people, or by a breaker that is open or lets more and more through.",
        ("queue", "state"),
        _holds,
    ),
    _of_queue(
        "mq_django_queue_consumers", "Live consumer processes that handle the queue.", lambda queue: queue.view.alive
    ),
    Plain("mq_django_queue_problem", "1 for each problem that the queue has now.", ("queue", "problem"), _problems),
    Plain(
        "mq_django_queue_dead_letters",
        "Dead letters by the class of their error.",
        ("queue", "error"),
        _dead,
    ),
    Plain("mq_django_schedules", "Schedules by state.", ("queue", "state"), _schedules),
    _of_queue("mq_django_schedule_lateness_seconds", "By how much the latest schedule is overdue.", _lateness),
    _of_topic("mq_django_topic_messages", "Messages in the log of the topic.", lambda one: one.length),
    _of_topic("mq_django_topic_bytes", "Approximate memory of the log in Redis.", lambda one: one.size),
    _of_group(
        "mq_django_topic_group_lag",
        "Messages of the log not yet delivered to the group.",
        lambda group: group.lag,
    ),
    _of_group(
        "mq_django_topic_group_lag_seconds",
        "Age of the first of these messages.",
        lambda group: group.lag_ms / 1000 if group.lag else 0,
    ),
    _of_group(
        "mq_django_topic_group_retention_ratio",
        "Share of the topic's retention that the group uses. From 1 on it loses messages.",
        lambda group: group.share,
    ),
    Plain(
        "mq_django_outbox_up",
        "Whether the outbox of the database can be read.",
        ("database",),
        lambda found: [((name,), up) for name, up in {one.database: not one.error for one in found.outboxes}.items()],
    ),
    Plain(
        "mq_django_outbox_messages",
        "Messages in the outbox: waiting, set aside because they cannot be published, or kept until they are handled.",
        ("database", "destination", "state"),
        _in_outbox,
    ),
    Plain(
        "mq_django_outbox_oldest_age_seconds",
        "Age of the oldest waiting message of the outbox; 0 without any.",
        ("database", "destination"),
        lambda found: [
            ((one.database, one.destination), (one.waited_ms or 0) / 1000) for one in found.outboxes if not one.error
        ],
    ),
    Plain("mq_django_consumers", "Live consumer processes.", (), lambda found: [((), found.consumers)]),
    Plain(
        "mq_django_slots", "Threads of all live consumers that run handlers.", (), lambda found: [((), found.threads)]
    ),
    Plain(
        "mq_django_slots_busy",
        "Threads and coroutines that run a handler.",
        ("kind",),
        lambda found: [(("threads",), found.busy_threads), (("coroutines",), found.coroutines)],
    ),
)

COUNTERS = (
    _total("mq_django_messages_published", "Messages published."),
    _total("mq_django_messages_handled", "Messages handled successfully."),
    _total("mq_django_messages_retried", "Attempts that failed and will be retried."),
    _total("mq_django_messages_buried", "Messages that became dead letters."),
    _total("mq_django_messages_expired", "Messages discarded because they had expired."),
    _total("mq_django_messages_recovered", "Messages of dead consumers that other consumers got."),
    Plain(
        "mq_django_topic_messages_published",
        "Messages published to the topic.",
        ("topic",),
        lambda found: [((topic.view.name,), topic.totals["published"]) for topic in found.topics if topic.totals],
    ),
    _of_group(
        "mq_django_topic_group_lost_messages",
        "Messages trimmed from the log before their delivery to the group.",
        lambda group: group.lost,
    ),
)

HISTOGRAMS = (
    Histogram("mq_django_queue_handling_seconds", "Run times of handlers.", TOOK, FIRST_HANDLING),
    Histogram(
        "mq_django_queue_latency_seconds", "Times from ready to the start of the handler.", WAITED, FIRST_LATENCY
    ),
)


def buckets_of(histogram: Histogram, totals: Mapping[str, int]) -> list[tuple[str, float]]:
    """Return the upper bounds of the buckets of a queue as text, each with the number of values up to it."""
    found, so_far = [], 0
    for index, kind in enumerate(histogram.buckets):
        so_far += totals[kind]
        is_last = index == len(histogram.buckets) - 1
        found.append(("+Inf" if is_last else f"{histogram.first * 2**index:.10g}", float(so_far)))
    return found
