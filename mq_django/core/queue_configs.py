"""The options of queues as frozen values. `mq_django.conf` reads them from the settings."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from mq_django.core import ids, options, rsmq_format
from mq_django.core.breakers import Breaker
from mq_django.core.keys import GROUP_SEPARATOR, GroupKeys, PartitionKeys, QueueKeys, RsmqKeys, TopicKeys, is_name
from mq_django.core.limits import Limit, Limits, Rate, Weights
from mq_django.core.options import History, StreamLimits, option
from mq_django.core.partitions import (
    SEPARATOR,
    in_turn,
    number_in_id,
    partition_name,
    partition_of,
    public_name,
    tag_of,
)
from mq_django.core.retries import RetryPolicy
from mq_django.core.rsmq_format import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError

# The options that queues and topics share, and their partitions, as a frozen value.


def own_keys() -> Any:
    """Return the field for the Redis keys of a queue or a topic, which __post_init__ fills."""
    return field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """The options that queues and topics share: how their messages are handled.

    A partition is a complete queue or topic with the same options, named `name.number`.
    """

    name: str
    namespace: str = "mq"
    connection: str = field(
        default="",
        metadata=option(
            options.read_own_connection,
            "A server of its own, as the `CONNECTION` of the project.",
            shown="that of the project",
        ),
    )
    durability: str = field(
        default="master",
        metadata=option(
            options.read_durability,
            'With `"replica"` a publish [waits for a replica](reliability.md#durability), and raises `NotReplicated` '
            "if none has the message after half a second.",
        ),
    )
    max_attempts: int = field(
        default=25,
        metadata=option(
            options.read_count, "The number of failed deliveries after which a message becomes a dead letter."
        ),
    )
    retry: RetryPolicy = field(
        default=RetryPolicy(),
        metadata=option(
            options.read_retry,
            "A `RetryPolicy`, whose `max_attempts` goes before `MAX_ATTEMPTS`, or a dict of its arguments: "
            "`delay` (1 s), `factor` (2), `max_delay` (1 h), `jitter` (0.25), `max_attempts`, `bury_on`.",
            shown="`{}`",
        ),
    )
    timeout: timedelta | None = field(
        default=None, metadata=option(options.read_optional_period, "How long a handler may run.")
    )
    breaker: Breaker | None = field(
        default=None,
        metadata=option(
            options.read_breaker,
            "A [`Breaker`](howto/wait-for-a-partner.md): messages wait while what they need is "
            'down. Or a dict of its arguments: `on`, `share` (0.5), `of` (20), `within` (60 s), `by` (`"name"`), '
            "`probe` (30 s).",
        ),
    )
    visibility_timeout: timedelta = field(
        default=timedelta(seconds=5),
        metadata=option(
            options.read_visibility_timeout,
            "When a supervisor has sent no heartbeat for this long, the messages of its consumers are reassigned. 1 s "
            "to a day. It does not limit how long a handler runs. Supervisors may have different values.",
        ),
    )
    stream: StreamLimits | None = field(
        default=None,
        metadata=option(
            options.read_stream,
            "`True`: handlers may [stream](howto/stream-answers.md) to readers. Or a dict of what a stream keeps: "
            "`entries` (10,000), `bytes` (1 MiB) and `ttl`, how long after its end (1 h).",
        ),
    )
    max_size: int = field(
        default=256 * 1024,
        metadata=option(options.read_size, "The maximum size of a message's data, as JSON.", is_bytes=True),
    )
    on_expire: str = field(
        default="discard",
        metadata=option(
            options.read_on_expire,
            "A message that was not handled before its `expires` is discarded, and its id is kept for a week; with "
            '`"bury"` it becomes a dead letter.',
        ),
    )

    partitions: int = field(
        default=1,
        metadata=option(
            options.read_partitions,
            "The number of [partitions](partitions.md), which a Redis Cluster spreads over its nodes. It is recorded "
            "in Redis: change that of a queue with `manage.py mq repartition`.",
        ),
    )
    outbox: bool | Literal["handled"] = field(
        default=False,
        metadata=option(
            options.read_outbox,
            "Each publish writes a row of the [outbox](transactions.md#outbox) in the same transaction, which a relay "
            'publishes after the commit. With `{"KEEP_UNTIL": "handled"}`, for queues, [rows stay until their messages '
            "are handled](transactions.md#rows-that-stay-until-the-message-is-handled).",
        ),
    )
    #: The number of a partition, from 0; -1 if this is none.
    number: int = -1
    keys: PartitionKeys = own_keys()
    #: Its partitions; none if there is only one, or this is one.
    parts: tuple[Self, ...] = own_keys()

    #: Options of a publish that are not supported, and the text of the error. "step" are steps of workflows.
    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: In the error that Redis has another number of partitions: where the number is set.
    counted_as: ClassVar[str] = "Queue {config.public_name!r}"
    #: In the same error: what to do.
    other_count: ClassVar[str] = "run `manage.py mq repartition {config.public_name} {config.partitions}`"
    #: The pattern of ids; None: any text.
    id_form: ClassVar[re.Pattern[str] | None] = None
    #: The name of messages whose text is sent as it is, without attributes; None: there are none.
    text_name: ClassVar[str | None] = None

    @property
    def public_name(self) -> str:
        """Return the name that handlers and publishers use: of a partition that of its queue."""
        return public_name(self.name)

    @property
    def each_part(self) -> Sequence[Self]:
        """Return the partitions, or this itself if it has none: what has messages and consumers."""
        return self.parts or (self,)

    @property
    def is_partition(self) -> bool:
        """Return whether this is a partition."""
        return self.number >= 0

    @property
    def id_end(self) -> str:
        """Return how new ids end: in a partition with a dot and its number, else with nothing."""
        return f"{SEPARATOR}{self.number}" if self.is_partition else ""

    def new_id(self) -> str:
        """Return a new id of a message. It names the partition, if this is one."""
        return ids.new_id() + self.id_end

    def new_ids(self, count: int) -> list[str]:
        """Return new ids of messages."""
        return ids.new_ids(count, self.id_end)

    def partition_for(self, *, key: str | None, unique: str | None = None, message_id: str | None = None) -> Self:
        """Return where a new message belongs: this, or the one of its partitions.

        It is chosen by the key, else by the unique key, else by a given id, else in turn.
        """
        if not self.parts:
            return self
        named = key or unique
        if named is None and message_id is not None:
            # An id that was generated here names a partition, in which it is looked for.
            return self.partitions_for_id(message_id)[0]
        return self.parts[in_turn(len(self.parts)) if named is None else partition_of(named, len(self.parts))]

    def partitions_for_id(self, message_id: str) -> Sequence[Self]:
        """Return the partitions in which a message may be, the likely one first: that which its id names.

        It may be in another one since the number of partitions was changed.
        """
        likely, number = self.partitions_for_name(message_id), number_in_id(message_id)
        if number is None or number >= len(self.parts):
            return likely
        named = self.parts[number]
        return named, *(part for part in likely if part is not named)

    def partitions_for_name(self, name: str) -> Sequence[Self]:
        """Return the partitions in which the message with a unique key or a given id may be, the likely one first."""
        if not self.parts:
            return (self,)
        likely = partition_of(name, len(self.parts))
        return self.parts[likely], *self.parts[:likely], *self.parts[likely + 1 :]

    def why_unsupported(self, option: str) -> str | None:
        """Return why an option of a publish is not supported, as a template of the error; None: it is."""
        return self.unsupported.get(option)

    @property
    def keeps_rows(self) -> bool:
        """Return whether the rows of the outbox are kept until their messages are handled."""
        return self.outbox == "handled"

    @property
    def keeps_results(self) -> bool:
        """Return whether the results of tasks are kept."""
        return False

    @property
    def _tag(self) -> str:
        """The part of its keys that is in braces."""
        return tag_of(self.public_name, self.number, self.partitions) if self.is_partition else self.name

    def _make_parts(self) -> tuple[Self, ...]:
        if self.partitions == 1 or self.is_partition:
            return ()
        shared = self._of_a_part()
        return tuple(
            replace(self, **shared, number=number, **self._names_of(number)) for number in range(self.partitions)
        )

    def _names_of(self, number: int) -> dict[str, Any]:
        """Return the options with the name of a partition."""
        return {"name": partition_name(self.name, number)}

    def _of_a_part(self) -> dict[str, Any]:
        """Return the options in which partitions differ from the whole."""
        return {}


STORE = option(
    options.read_store,
    'The format of the queue in Redis: `"rsmq"` for [queues shared with other programs](#queues-in-rsmqs-format).',
)

#: Cached, because configs may be made again, and making the keys takes 5 µs.
queue_keys = cache(QueueKeys)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig(DeliveryOptions):
    """The options of one queue."""

    max_depth: int | None = field(
        default=None,
        metadata=option(
            options.read_optional_count,
            "At this number of ready, pending, delayed, parked and unhandled messages a publish raises `QueueFull`, "
            "and ticks of schedules wait.",
        ),
    )
    result_ttl: timedelta = field(
        default=timedelta(days=1),
        metadata=option(options.read_result_ttl, "How long a task's result is kept; 0: no results are kept."),
    )
    history: History | None = field(
        default=None,
        metadata=option(
            options.read_history,
            "How long the queue keeps [what became of a message](troubleshooting.md#what-became-of-a-message). Or a "
            'dict: `"AGE"` is this duration; `"COUNT"` (100,000) is the maximum number of messages; with `"DATA": '
            "True` their data and headers are kept, too.",
        ),
    )
    rate_limit: Limit[Rate] = field(
        default=Limit(),
        metadata=option(
            options.read_rate_limit,
            '`"10/s"`, `"100/m"`, `"5/10s"`: maximum deliveries in any such period, of all consumers together. '
            '`{"queue": "100/s", "key": "10/s"}` limits each key, too.',
        ),
    )
    concurrency: Limit[int] = field(
        default=Limit(),
        metadata=option(
            options.read_concurrency,
            'Maximum deliveries at once, of all consumers together: `5`, or `{"queue": 20, "key": 1}`.',
        ),
    )
    ordered: bool = field(
        default=False,
        metadata=option(
            options.read_switch,
            "The messages of a key are handled [in their order, one at a time](ordering.md).",
        ),
    )
    on_dead_letter: str = field(
        default="continue",
        metadata=option(
            options.read_on_dead_letter,
            'With `ORDERED`, after a dead letter: `"continue"` handles the next message of its key; `"hold"` lets the '
            "key wait until the dead letter is redriven, edited or deleted.",
        ),
    )
    fair: Weights | None = field(
        default=None,
        metadata=option(
            options.read_fair,
            "`True`: [keys take turns](ordering.md#fairness-between-keys) while messages wait. "
            '`{"big-customer": 5}` gives a key five turns for each one of others.',
            shown="`False`",
        ),
    )
    priority_ageing: timedelta | None = field(
        default=None,
        metadata=option(
            options.read_ageing,
            "How long a message waits until it goes before one with a priority that is 1 higher: see [priorities that "
            "age](howto/priorities.md#nothing-starves). `None`: priorities are strict.",
        ),
    )
    external: bool = field(
        default=False,
        metadata=option(
            options.read_switch,
            "`True`: [other programs handle this queue](#queues-that-other-programs-handle). `runconsumer` does only "
            "its housekeeping.",
        ),
    )
    store: str = field(default="stream", metadata=STORE)
    keys: QueueKeys = own_keys()

    #: Whether schedules may publish to such a queue.
    has_schedules: ClassVar[bool] = True
    #: Why its running messages cannot be cancelled; "" if they can.
    keeps_running: ClassVar[str] = ""
    #: Whether its messages can be held.
    can_hold: ClassVar[bool] = True

    @property
    def keeps_results(self) -> bool:
        """See DeliveryOptions.keeps_results."""
        return bool(self.result_ttl)

    @property
    def ageing_ms(self) -> int:
        """Return the milliseconds of waiting that are worth a step of priority; 0: priorities are strict."""
        return 0 if self.priority_ageing is None else self.priority_ageing // timedelta(milliseconds=1)

    @property
    def limits(self) -> Limits:
        """Return all limits as one value."""
        rate, at_once = self.rate_limit, self.concurrency
        return Limits(
            rate=rate.queue,
            key_rate=rate.key,
            concurrency=at_once.queue,
            key_concurrency=1 if self.ordered else at_once.key,
            ordered=self.ordered,
            fair=self.fair,
        )

    def why_unsupported(self, option: str) -> str | None:
        """See DeliveryOptions.why_unsupported()."""
        if option == "priority" and (self.ordered or self.fair is not None):
            return "Queue {config.name!r} has ORDERED or FAIR, which priorities would break"
        return DeliveryOptions.why_unsupported(self, option)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", self._make_keys())
        object.__setattr__(self, "parts", self._make_parts())

    def _make_keys(self) -> QueueKeys:
        return queue_keys(self.namespace, self._tag)

    def _of_a_part(self) -> dict[str, Any]:
        """See DeliveryOptions. Limits of the whole are in its own slot: see `mq_django.stores.line_store`."""
        return {
            "rate_limit": Limit(key=self.rate_limit.key),
            "concurrency": Limit(key=self.concurrency.key),
            "max_depth": None if self.max_depth is None else -(-self.max_depth // self.partitions),
        }


# The options of queues in RSMQ's format, as a frozen value.

rsmq_keys = cache(RsmqKeys)


@dataclass(frozen=True, slots=True, kw_only=True)
class RsmqConfig(QueueConfig):
    """The options of a queue in RSMQ's format, shared with programs in other languages."""

    namespace: str = field(
        default="rsmq",
        metadata=option(
            options.read_rsmq_namespace, 'RSMQ\'s `ns`. On a Redis Cluster it carries the hash tag: `"{rsmq}"`.'
        ),
    )
    visibility_timeout: timedelta = field(
        default=timedelta(seconds=DEFAULT_VT),
        metadata=option(
            options.read_vt,
            "Seconds from 1: the `vt` of a new queue, and how long our consumers hide the messages that they take.",
            name="VT",
        ),
    )
    delay: int = field(
        default=DEFAULT_DELAY,
        metadata=option(options.read_delay, "Seconds: the `delay` of a new queue."),
    )
    maxsize: int = field(
        default=DEFAULT_MAXSIZE,
        metadata=option(options.read_maxsize, "UTF-16 units, or -1: the `maxsize` of a new queue."),
    )
    realtime: bool = field(
        default=False,
        metadata=option(
            options.read_switch, "Publish on RSMQ's channel after each send, and rely on other programs to do so."
        ),
    )
    store: str = field(default="rsmq", metadata=STORE)
    keys: RsmqKeys = own_keys()
    # An RSMQ queue does not have these options.
    breaker: Breaker | None = None
    max_size: int = 1024 * 1000
    result_ttl: timedelta = timedelta(0)
    history: History | None = None
    rate_limit: Limit[Rate] = Limit()
    concurrency: Limit[int] = Limit()
    ordered: bool = False
    on_dead_letter: str = "continue"
    fair: Weights | None = None
    priority_ageing: timedelta | None = None
    partitions: int = 1
    outbox: bool = False

    has_schedules: ClassVar[bool] = False
    can_hold: ClassVar[bool] = False
    keeps_running: ClassVar[str] = "Queue {config.name!r} has RSMQ's format: only waiting messages can be cancelled"
    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "priority": "Queue {config.name!r} has RSMQ's format, which has no priorities",
            "unique": "Queue {config.name!r} has RSMQ's format, which has no unique keys",
            "outbox": "Queue {config.name!r} has RSMQ's format, which has no outbox",
            "step": "Queue {config.name!r} has RSMQ's format, which has no steps of workflows",
            "message_id": "Queue {config.name!r} has RSMQ's format, which has no ids such as {value!r}: "
            "they have 32 letters and digits",
        }
    )
    id_form: ClassVar[re.Pattern[str] | None] = rsmq_format.MESSAGE_ID
    text_name: ClassVar[str | None] = rsmq_format.TEXT

    def new_id(self) -> str:
        """See DeliveryOptions.new_id(): an id as RSMQ makes them."""
        return rsmq_format.new_id()

    def new_ids(self, count: int) -> list[str]:
        """See DeliveryOptions.new_ids()."""
        return [rsmq_format.new_id() for _ in range(count)]

    def _make_keys(self) -> RsmqKeys:
        return rsmq_keys(self.namespace, self.name)

    @property
    def vt(self) -> int:
        """Return the visibility timeout in whole seconds, RSMQ's unit."""
        return math.ceil(self.visibility_timeout.total_seconds())


# The options of topics and their groups, as frozen values.

#: See DeliveryOptions. The entries of a log, and the positions of groups in it, cannot be moved to other logs.
_COUNTED_AS = "Topic {config.%s!r}"
_OTHER_COUNT = "publish to a topic with another name, because the number of a topic does not change"

#: Cached, because the config of a group is made at each access, and making the keys takes 5 µs.
group_keys = cache(GroupKeys)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(QueueConfig):
    """A group of a topic as a queue, named `topic:group`."""

    store: str = "topic"
    topic: str
    group: str
    keys: GroupKeys = own_keys()

    counted_as: ClassVar[str] = _COUNTED_AS % "public_topic"
    other_count: ClassVar[str] = _OTHER_COUNT
    has_schedules: ClassVar[bool] = False
    keeps_running: ClassVar[str] = "{config.name!r} is a group of a topic: only waiting messages can be cancelled"
    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "priority": "Topic {config.topic!r} is read in one order, so there are no priorities",
            "outbox": "{config.name!r} is a group of a topic, and only whole topics have an outbox",
            "step": "{config.name!r} is a group of a topic, and steps of workflows are in queues",
        }
    )

    @property
    def public_topic(self) -> str:
        """Return the name of the topic; of a partition that of the whole."""
        return public_name(self.topic)

    def _make_keys(self) -> GroupKeys:
        return group_keys(self.namespace, self._tag, subscriber=self.group)

    @property
    def _tag(self) -> str:
        """See DeliveryOptions: that of the topic."""
        return tag_of(self.public_topic, self.number, self.partitions) if self.is_partition else self.topic

    def _names_of(self, number: int) -> dict[str, Any]:
        """See DeliveryOptions: `topic.number:group`."""
        topic = partition_name(self.topic, number)
        return {"topic": topic, "name": f"{topic}{GROUP_SEPARATOR}{self.group}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(DeliveryOptions):
    """The options of one topic. Those of DeliveryOptions apply to its groups."""

    retention: timedelta | None = field(
        default=timedelta(days=7),
        metadata=option(
            options.read_optional_period,
            "How long a message is kept; `None`: for ever, unless one of the next two options limits it.",
        ),
    )
    retention_count: int | None = field(
        default=None, metadata=option(options.read_optional_count, "How many messages are kept.")
    )
    retention_bytes: int | None = field(
        default=None,
        metadata=option(
            options.read_optional_count,
            "The maximum memory of the log in Redis, as `MEMORY USAGE` estimates it.",
            is_bytes=True,
        ),
    )
    retention_alarm: float = field(
        default=0.8,
        metadata=option(
            options.read_share, "The share of the retention that a group may lag behind before an alarm is raised."
        ),
    )
    duplicate_window: timedelta = field(
        default=timedelta(minutes=5),
        metadata=option(
            options.read_period,
            "How long a `message_id=` is remembered, so that publishing it again has no effect.",
        ),
    )
    keys: TopicKeys = own_keys()

    counted_as: ClassVar[str] = _COUNTED_AS % "public_name"
    other_count: ClassVar[str] = _OTHER_COUNT
    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "priority": "Topic {config.name!r} is read in one order, so there are no priorities",
            "delay": "Topic {config.name!r} is read in one order, so there are no delays",
            "unique": "Topic {config.name!r} is read in one order, so there are no unique keys",
        }
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", TopicKeys(self.namespace, self._tag))
        object.__setattr__(self, "parts", self._make_parts())

    def group(self, name: str) -> GroupConfig:
        """Return the options of one of its groups."""
        if not is_name(name):
            raise ConfigurationError(f"A group's name is 1 to 160 letters, digits, _ and -, not {repr_of(name, 200)}")
        shared = {option.name: getattr(self, option.name) for option in fields(DeliveryOptions) if option.init}
        own = {"name": f"{self.name}{GROUP_SEPARATOR}{name}", "topic": self.name, "group": name, "outbox": False}
        return GroupConfig(**{**shared, **own})

    def _of_a_part(self) -> dict[str, Any]:
        """See DeliveryOptions. The retention of the whole is divided, as its messages are."""
        counts = {"retention_count": self.retention_count, "retention_bytes": self.retention_bytes}
        return {name: None if count is None else -(-count // self.partitions) for name, count in counts.items()}
