"""The metrics of queues and topics: their names, labels and values. Names follow the rules of Prometheus."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from mq_django.inspector.measurements import Measurements, QueueFigures
from mq_django.stores.counters import TOOK, WAITED

#: Values of labels, and the value of the metric.
Sample = tuple[tuple[str, ...], float]

#: The upper bound of the first bucket in seconds. The next ones are twice as large each; the last one has no bound.
FIRST_HANDLING, FIRST_LATENCY = 1e-4, 1e-3

PLACES = ("ready", "pending", "delayed", "unhandled", "parked", "dead")


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


def _of_queues(value: Callable[[QueueFigures], float]) -> Callable[[Measurements], Iterable[Sample]]:
    """Return the reader of one value of each queue that can be read."""
    return lambda found: [((queue.view.name,), value(queue)) for queue in _readable(found)]


def _messages(found: Measurements) -> Iterator[Sample]:
    for queue in _readable(found):
        for place in PLACES:
            yield (queue.view.name, place), getattr(queue.view, place)


def _dead(found: Measurements) -> Iterator[Sample]:
    return (((queue.view.name, error), count) for queue in found.queues for error, count in queue.dead.items())


def _problems(found: Measurements) -> Iterator[Sample]:
    return (((queue.view.name, problem), 1) for queue in found.queues for problem in queue.view.problems())


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


def _groups(value: Callable[[Any], float | None]) -> Callable[[Measurements], Iterable[Sample]]:
    """Return the reader of one value of each group of each topic; groups without it are left out."""

    def read(found: Measurements) -> Iterator[Sample]:
        for topic in found.topics:
            for group in topic.view.groups:
                if group.subscribed and (figure := value(group)) is not None:
                    yield (topic.view.name, group.name), figure

    return read


def _topics(value: Callable[[Any], float]) -> Callable[[Measurements], Iterable[Sample]]:
    return lambda found: [((topic.view.name,), value(topic.view)) for topic in found.topics if not topic.view.error]


def _databases(found: Measurements) -> dict[str, bool]:
    """Return the databases with outboxes that have messages, and whether they can be read."""
    return {one.database: not one.error for one in found.outboxes}


def _in_outbox(found: Measurements) -> Iterator[Sample]:
    for one in found.outboxes:
        if not one.error:
            yield (one.database, one.destination, "waiting"), one.waiting
            yield (one.database, one.destination, "set_aside"), one.set_aside
            yield (one.database, one.destination, "retained"), one.retained


def _total(kind: str) -> Callable[[Measurements], Iterable[Sample]]:
    return lambda found: [((queue.view.name,), queue.totals[kind]) for queue in found.queues if queue.totals]


GAUGES = (
    Plain(
        "mq_django_queue_up",
        "Whether the queue can be read.",
        ("queue",),
        lambda found: [((queue.view.name,), not queue.view.error) for queue in found.queues],
    ),
    Plain("mq_django_queue_messages", "Messages by state.", ("queue", "state"), _messages),
    Plain(
        "mq_django_queue_oldest_ready_age_seconds",
        "For how long the oldest message that is ready, or was fetched and has not started, has waited; 0 without any.",
        ("queue",),
        _of_queues(lambda queue: (queue.view.waited_ms or 0) / 1000),
    ),
    Plain(
        "mq_django_queue_not_started_messages",
        "Messages that wait for a handler: ready ones, and pending ones that have not started.",
        ("queue",),
        _of_queues(lambda queue: queue.view.not_started),
    ),
    Plain(
        "mq_django_queue_paused",
        "Whether the queue is paused.",
        ("queue",),
        _of_queues(lambda queue: queue.view.paused),
    ),
    Plain(
        "mq_django_queue_consumers",
        "Live consumer processes that handle the queue.",
        ("queue",),
        _of_queues(lambda queue: queue.view.alive),
    ),
    Plain("mq_django_queue_problem", "1 for each problem that the queue has now.", ("queue", "problem"), _problems),
    Plain(
        "mq_django_queue_dead_letters",
        "Dead letters by the class of their error, as counted when they were buried.",
        ("queue", "error"),
        _dead,
    ),
    Plain("mq_django_schedules", "Schedules by state.", ("queue", "state"), _schedules),
    Plain(
        "mq_django_schedule_lateness_seconds",
        "By how much the latest schedule of the queue is overdue.",
        ("queue",),
        _of_queues(_lateness),
    ),
    Plain("mq_django_topic_messages", "Messages in the log of the topic.", ("topic",), _topics(lambda one: one.length)),
    Plain(
        "mq_django_topic_bytes",
        "Approximate memory of the log of the topic in Redis.",
        ("topic",),
        _topics(lambda one: one.size),
    ),
    Plain(
        "mq_django_topic_group_lag",
        "Messages of the log that were not delivered to the group yet.",
        ("topic", "group"),
        _groups(lambda group: group.lag),
    ),
    Plain(
        "mq_django_topic_group_lag_seconds",
        "For how long the first of these messages has been in the log.",
        ("topic", "group"),
        _groups(lambda group: group.lag_ms / 1000 if group.lag else 0),
    ),
    Plain(
        "mq_django_topic_group_retention_ratio",
        "Share of the retention of the topic that the group uses. From 1 on it loses messages.",
        ("topic", "group"),
        _groups(lambda group: group.share),
    ),
    Plain(
        "mq_django_outbox_up",
        "Whether the outbox of the database can be read.",
        ("database",),
        lambda found: [((name,), up) for name, up in _databases(found).items()],
    ),
    Plain(
        "mq_django_outbox_messages",
        "Messages in the outbox: waiting; set aside, because they cannot be published; kept until they are handled.",
        ("database", "destination", "state"),
        _in_outbox,
    ),
    Plain(
        "mq_django_outbox_oldest_age_seconds",
        "For how long the oldest waiting message of the outbox has waited; 0 without any.",
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
    Plain("mq_django_messages_published", "Messages published.", ("queue",), _total("published")),
    Plain("mq_django_messages_handled", "Messages handled successfully.", ("queue",), _total("handled")),
    Plain("mq_django_messages_retried", "Attempts that failed and will be retried.", ("queue",), _total("retried")),
    Plain("mq_django_messages_buried", "Messages that became dead letters.", ("queue",), _total("buried")),
    Plain("mq_django_messages_expired", "Messages discarded because they had expired.", ("queue",), _total("expired")),
    Plain(
        "mq_django_messages_recovered",
        "Messages of dead consumers that other consumers got.",
        ("queue",),
        _total("recovered"),
    ),
    Plain(
        "mq_django_topic_messages_published",
        "Messages published to the topic.",
        ("topic",),
        lambda found: [((topic.view.name,), topic.totals["published"]) for topic in found.topics if topic.totals],
    ),
    Plain(
        "mq_django_topic_group_lost_messages",
        "Messages of the log that were trimmed before they were delivered to the group.",
        ("topic", "group"),
        _groups(lambda group: group.lost),
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
    for place, kind in enumerate(histogram.buckets):
        so_far += totals[kind]
        is_last = place == len(histogram.buckets) - 1
        found.append(("+Inf" if is_last else f"{histogram.first * 2**place:.10g}", float(so_far)))
    return found
