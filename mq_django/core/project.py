"""All settings of a project as one frozen value, with the kinds of problems. `mq_django.conf` reads them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

from mq_django.core import options
from mq_django.core.clock import MAX_DELAY, read_duration
from mq_django.core.ids import is_text
from mq_django.core.keys import GROUP_SEPARATOR, instead_of, is_name
from mq_django.core.options import option, options_of
from mq_django.core.partitions import number_in, public_name
from mq_django.core.queue_configs import QueueConfig, TopicConfig
from mq_django.core.schedules import Scheduled
from mq_django.core.texts import listing, repr_of
from mq_django.errors import ConfigurationError, UnknownQueue, UnknownTopic

#: The possible problems of a queue, the worst first. Those of outboxes, schedules and runs of workflows are found in
#: `mq_django.inspector.problem_list`, the others by `QueueView.problems()`.
Problem = Literal[
    "unreadable",
    "unconsumed",
    "unattended",
    "outbox",
    "stalled",
    "lost",
    "retention",
    "held",
    "breaker",
    "starved",
    "unhandled",
    "schedule",
    "stuck",
    "growing",
    "buried",
    "late",
    "paused",
    "hold",
    "ready",
    "dead",
]

#: How bad a problem is; of all those from one of these kinds on.
Severity = Literal["critical", "warning", "notice"]
_FIRST: Mapping[Problem, Severity] = {"unreadable": "critical", "retention": "warning", "paused": "notice"}


def severity_of(kind: Problem) -> Severity:
    """Return how bad a problem is."""
    kinds: tuple[Problem, ...] = get_args(Problem)
    return next(_FIRST[each] for each in reversed(kinds[: kinds.index(kind) + 1]) if each in _FIRST)


#: Causes that a queue with partitions has if one of them has it. The others are found from the sums.
OF_PARTS: frozenset[Problem] = frozenset(
    {"unreadable", "unconsumed", "unattended", "stalled", "paused", "late"},
)


def _read_age(value: Any) -> float | None:
    if value is None:
        return None
    words = "a timedelta or a number of seconds from 0, or None for no limit"
    try:
        seconds = min(read_duration(value), MAX_DELAY).total_seconds()
    except TypeError as error:
        raise TypeError(words) from error
    if seconds < 0:
        raise TypeError(words)
    return seconds


def _read_count(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise TypeError("a whole number from 0, or None for no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The figures above which a queue has a problem. None: no figure is a problem.

    Raises ConfigurationError if one is no such figure.
    """

    #: Seconds for which the oldest message that is ready, or was fetched and has not started, has waited.
    max_age: float | None = field(
        default=60,
        metadata=option(_read_age, "How long the oldest message that has not started has waited.", shown="60 s"),
    )
    #: Ready messages, and those that were fetched and have not started.
    max_ready: int | None = field(
        default=None, metadata=option(_read_count, "Messages that have not started.", shown="no limit")
    )
    #: Dead letters, however old.
    max_dead: int | None = field(
        default=None, metadata=option(_read_count, "Dead letters, however old.", shown="no limit")
    )
    #: Messages that became dead letters in the last half hour.
    max_buried: int | None = field(
        default=0, metadata=option(_read_count, "Messages that became dead letters in the last half hour.")
    )
    #: Messages without a handler in any consumer.
    max_unhandled: int | None = field(
        default=0, metadata=option(_read_count, "Messages without a handler in any consumer.")
    )
    #: Messages by which the queue has grown in ten minutes. Growth that is not steady, or below 100, counts as 0.
    max_growth: int | None = field(
        default=0,
        metadata=option(
            _read_count,
            "Messages by which the queue has grown in ten minutes. Growth that is not steady, or below 100, counts as "
            "0.",
        ),
    )
    #: Seconds for which the oldest message in an outbox has waited for its publication.
    max_outbox_age: float | None = field(
        default=60,
        metadata=option(
            _read_age,
            "How long the oldest message in an [outbox](transactions.md) has waited for its publication.",
            shown="60 s",
        ),
    )

    def __post_init__(self) -> None:
        for each in options_of(type(self)).values():
            value = getattr(self, each.attribute)
            try:
                object.__setattr__(self, each.attribute, each.read(value))
            except TypeError as error:
                raise ConfigurationError(
                    f"Thresholds.{each.attribute} must be {error}, not {repr_of(value)}"
                ) from error


def exceeds(figure: float, most: float | None) -> bool:
    """Return whether a figure is above its threshold."""
    return most is not None and figure > most


# Digests of options, by which processes notice that they run with different settings without showing these.

#: Options that need no digest: processes with another one are not on the same keys, or announce the value itself.
_LEFT_OUT = frozenset({"CONNECTION", "NAMESPACE", "STORE", "VISIBILITY_TIMEOUT", "VT"})


def option_digests(*configs: QueueConfig | TopicConfig) -> dict[str, str]:
    """Return a digest of each option that is not the default, by its name."""
    found = {}
    for config in configs:
        defaults = {field.name: field.default for field in fields(config)}
        for name, declared in options.options_of(type(config)).items():
            value = getattr(config, declared.attribute)
            if name not in _LEFT_OUT and value != defaults[declared.attribute]:
                found[name] = sha256(repr(value).encode()).hexdigest()[:8]
    return found


EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All of `settings.MQ_DJANGO`."""

    connection: str = field(
        default=EMBEDDED,
        metadata=options.option(
            options.read_connection,
            "A URL: `redis://`, `rediss://` or `unix://`; for Sentinels `redis+sentinel://`, `rediss+sentinel://`; for "
            "a [Redis Cluster](howto/redis-cluster.md) `redis+cluster://`, `rediss+cluster://`. Or a django-redis "
            'alias of `CACHES` that only queues use. Or `"embedded"`: a private server for development, shared by all '
            "processes of the project.",
        ),
    )
    namespace: str = field(
        default="mq",
        metadata=options.option(
            options.read_namespace,
            "The prefix of all keys. Projects on one database need different ones, or they share their queues.",
        ),
    )
    release: str = field(
        default="",
        metadata=options.option(
            options.read_release,
            "The version of the project's code, such as the hash of its commit. Consumers announce it: the admin's "
            "metrics mark when a new one began, and count by it.",
        ),
    )
    embedded_directory: Path = field(
        default_factory=lambda: Path.cwd() / ".mq_django",
        metadata=options.option(
            options.read_directory,
            "The directory of the embedded server's data. Keep it out of version control. Its file `socket` has the "
            "path of the server's Unix socket.",
            shown='`BASE_DIR / ".mq_django"`',
        ),
    )
    defaults: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=options.option(
            options.read_options,
            "[Options](#options-of-a-queue) for queues that do not set them. Not for topics, nor for `STORE` and "
            "`CONNECTION`.",
        ),
    )
    queues: Mapping[str, QueueConfig] = field(
        metadata=options.option(
            options.read_options_by_name,
            "Queue names to options. Names are letters, digits, `_` and `-`.",
            shown='`{"default": {}}`',
        )
    )
    topics: Mapping[str, TopicConfig] = field(
        default_factory=dict,
        metadata=options.option(
            options.read_options_by_name,
            "Topic names to [options of a topic](#options-of-a-topic). A queue and a topic may not share a name.",
        ),
    )
    signals: tuple[Mapping[str, Any], ...] = field(
        default=(),
        metadata=options.option(options.read_signals, "[Triggers without code](#triggers-without-code).", shown="`[]`"),
    )
    middleware: tuple[str, ...] = field(
        default=(),
        metadata=options.option(
            options.read_paths,
            "Dotted paths of functions that run [around handlers and publishing](#middleware).",
            shown="`[]`",
        ),
    )
    discover: bool = field(
        default=True,
        metadata=options.option(
            options.read_switch,
            "Whether to [find modules](#modules) with tasks, handlers or subscribers in installed apps. With `False` "
            "only `tasks.py`, `handlers.py`, `triggers.py` and `MODULES` are imported.",
        ),
    )
    modules: tuple[str, ...] = field(
        default=(),
        metadata=options.option(
            options.read_modules,
            "Dotted paths of further [modules](#modules) with tasks, handlers or subscribers.",
            shown="`[]`",
        ),
    )
    schedules: Mapping[str, Scheduled] = field(
        default_factory=dict,
        metadata=options.option(
            options.read_options_by_name,
            'Name to [schedule](#schedules): `"cron"` (with `"timezone"`) or `"every"`, and `"message"` with `"data"`, '
            'or `"task"` with `"args"` and `"kwargs"`; also `"queue"`, `"priority"`, `"key"`, `"expires"`, and '
            '`"starts"` and `"ends"`, the first and the last time for a tick.',
        ),
    )
    thresholds: Thresholds = field(
        default=Thresholds(),
        metadata=options.option(
            options.read_options,
            "[Thresholds](#thresholds) above which a queue [has a problem](health.md#problems).",
            shown="`{}`",
        ),
    )
    inbox_retention: timedelta = field(
        default=timedelta(days=30),
        metadata=options.option(
            options.read_positive_duration,
            "How long the [inbox](exactly-once.md) remembers a message that a handler with `@exactly_once` has "
            "handled. Must exceed the time that a message may wait, be retried, or stay in a topic that is replayed.",
        ),
    )
    stream_readers: int = field(
        default=2000,
        metadata=options.option(
            options.read_count,
            "How many readers of streams [the view](howto/stream-answers.md#read-it) serves in a process. Under WSGI "
            "each occupies a thread.",
        ),
    )
    test_connection: str = field(
        default="",
        metadata=options.option(
            options.read_test,
            '`{"CONNECTION": ...}`: the server that [tests](testing.md) use in place of all others. The default is '
            "the environment variable `MQ_REDIS_URL`, or else a private server. With a URL, each test process uses "
            "its own database.",
            name="TEST",
            shown="`{}`",
        ),
    )

    def where_is(self, connection: str) -> str:
        """Return the setting that names a connection, for messages; "": the project's own."""
        for what, configs in (("QUEUES", self.queues), ("TOPICS", self.topics)):
            for name, config in configs.items():
                if connection and config.connection == connection:
                    return f'MQ_DJANGO["{what}"][{repr_of(name)}]["CONNECTION"]'
        is_for_tests = connection and connection == self.test_connection
        return 'MQ_DJANGO["TEST"]["CONNECTION"]' if is_for_tests else 'MQ_DJANGO["CONNECTION"]'

    def connections(self) -> list[str]:
        """Return the connections of all queues and topics, each once; "" for that of the project."""
        own = [] if self.connection == EMBEDDED else [""]
        used = [found.connection for found in (*self.queues.values(), *self.topics.values())]
        return list(dict.fromkeys((*own, *used)))

    def queue(self, name: str) -> QueueConfig:
        """Return the options of a queue, of a partition by `queue.number`, or of a group by `topic:group`.

        Raises:
            UnknownQueue, UnknownTopic: there is none with this name.
        """
        known_as = _text(name)
        topic, separator, group = known_as.partition(GROUP_SEPARATOR)
        if separator and is_name(group):
            return self.topic(topic).group(group)
        part: QueueConfig | None = _part(self.queues, known_as)
        if part is not None:
            return part
        try:
            return self.queues[known_as]
        except KeyError:
            known = listing(self.queues) + (instead_of(known_as) if public_name(known_as) not in self.queues else "")
            if known_as in self.topics:
                known += f". {name!r} is a topic: use topics[{name!r}], or one of its groups, such as '{name}:billing'"
            raise UnknownQueue(f'No queue {repr_of(name)} in MQ_DJANGO["QUEUES"]; configured: {known}') from None

    def whole_queue(self, name: str) -> QueueConfig:
        """Return the options of a queue or group as queue() does; of a partition raise UnknownQueue."""
        found = self.queue(name)
        if found.public_name != found.name:
            raise UnknownQueue(f"{repr_of(name)} is a partition: publish to {found.public_name!r}, which chooses one")
        return found

    def each_part(self) -> list[QueueConfig]:
        """Return the queues that have messages and consumers: in the place of a queue with partitions, these."""
        return [part for queue in self.queues.values() for part in queue.each_part]

    def partitions_for_id(self, message_id: str, names: Collection[str] = ()) -> list[QueueConfig]:
        """Return where a message may be whose queue is not known: all queues, and some of their partitions.

        Args:
            message_id: its id. A generated id that names a partition leaves out the others. One that
                no message can have is nowhere.
            names: only these queues; none: all of them.
        """
        if not is_text(message_id):
            return []
        queues = [queue for name, queue in self.queues.items() if not names or name in names]
        return [partition for queue in queues for partition in queue.partitions_for_id(message_id)]

    def digests_of(self, queue: QueueConfig) -> dict[str, str]:
        """Return digests of the options of a queue, and for a group also of its topic: see option_digests()."""
        topic, separator, _ = queue.name.partition(GROUP_SEPARATOR)
        return option_digests(queue, *([self.topic(topic)] if separator else []))

    def whole_topic(self, name: str) -> TopicConfig:
        """Return the options of a topic as topic() does; of a partition raise UnknownTopic."""
        found = self.topic(name)
        if found.is_partition:
            raise UnknownTopic(
                f"{repr_of(name)} is a partition: use the topic {found.public_name!r}, which chooses one"
            )
        return found

    def topic(self, name: str) -> TopicConfig:
        """Return the options of a topic, or of a partition by `topic.number`.

        Raises:
            UnknownTopic: there is none with this name.
        """
        known_as = _text(name)
        part: TopicConfig | None = _part(self.topics, known_as)
        if part is not None:
            return part
        try:
            return self.topics[known_as]
        except KeyError:
            known = listing(self.topics) + (instead_of(known_as) if public_name(known_as) not in self.topics else "")
            if known_as in self.queues:
                known += f". {name!r} is a queue"
            raise UnknownTopic(f'No topic {repr_of(name)} in MQ_DJANGO["TOPICS"]; configured: {known}') from None


def _text(name: object) -> str:
    return name if isinstance(name, str) else ""


def _part(wholes: Mapping[str, Any], name: str) -> Any:
    """Return the partition of this name; None if there is none."""
    whole, number = wholes.get(public_name(name)), number_in(name)
    if whole is None or number is None or number >= len(whole.parts):
        return None
    # Not `payments.1.3`, whose public name is the same.
    found = whole.parts[number]
    return found if found.name == name else None
