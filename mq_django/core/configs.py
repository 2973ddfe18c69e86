"""The options of queues, topics and groups as frozen values. `mq_django.conf` reads them from the settings."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

from mq_django.core import ids, rsmq_format
from mq_django.core.keys import GROUP_SEPARATOR, GroupKeys, QueueKeys, RsmqKeys, TopicKeys, is_name
from mq_django.core.limits import Limit, Limits, Rate
from mq_django.core.options import (
    option,
    read_concurrency,
    read_count,
    read_delay,
    read_expired,
    read_maxsize,
    read_optional_count,
    read_optional_period,
    read_own_connection,
    read_period,
    read_rate_limit,
    read_result_ttl,
    read_retry,
    read_rsmq_namespace,
    read_share,
    read_size,
    read_store,
    read_switch,
    read_visibility_timeout,
    read_vt,
)
from mq_django.core.retries import RetryPolicy
from mq_django.core.rsmq_format import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mq_django.errors import ConfigurationError

STORE = option(
    read_store,
    'The format of the queue in Redis: `"rsmq"` for [queues shared with other programs](#queues-in-rsmqs-format).',
)

#: Cached, because the config of a group is made at each access, and making the keys takes 5 µs.
queue_keys = cache(QueueKeys)
group_keys = cache(GroupKeys)
rsmq_keys = cache(RsmqKeys)


def _own_keys() -> Any:
    """Return the field for the Redis keys of a queue or a topic, which __post_init__ fills."""
    return field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """The options that queues and topics share: how their messages are handled."""

    name: str
    namespace: str = "mq"
    connection: str = field(
        default="",
        metadata=option(
            read_own_connection,
            "A server of its own: a value as for the `CONNECTION` of the project, which is the default.",
            shown="that of the project",
        ),
    )
    max_attempts: int = field(
        default=25,
        metadata=option(read_count, "The number of failed deliveries after which a message becomes a dead letter."),
    )
    retry: RetryPolicy = field(
        default=RetryPolicy(),
        metadata=option(
            read_retry,
            "A `RetryPolicy`, or a dict of its arguments: `delay` (1 s), `factor` (2), `max_delay` (1 h), "
            "`jitter` (0.25), `max_attempts`, `bury_on`.",
            shown="`{}`",
        ),
    )
    timeout: timedelta | None = field(
        default=None, metadata=option(read_optional_period, "How long a handler may run.")
    )
    visibility_timeout: timedelta = field(
        default=timedelta(seconds=10),
        metadata=option(
            read_visibility_timeout,
            "When a supervisor has sent no heartbeat for this long, the messages of its consumers are reassigned. 1 s "
            "to a day. How long a handler runs does not matter. Each supervisor announces its own value, so values may "
            "differ, as in a rolling deploy.",
        ),
    )
    max_size: int = field(
        default=256 * 1024,
        metadata=option(read_size, "The most bytes of JSON of a message's data.", is_bytes=True),
    )
    expired: str = field(
        default="discard",
        metadata=option(
            read_expired,
            'What becomes of a message that was not handled before its `expires`: with `"discard"` only its id is '
            'kept, for a week; with `"bury"` it becomes a dead letter.',
        ),
    )

    #: Options of a publish that are not supported -> the text of the error.
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: The pattern of ids; None: any text.
    id_form: ClassVar[re.Pattern[str] | None] = None
    #: The name of messages whose text is sent as it is, without attributes; None: there are none.
    text_name: ClassVar[str | None] = None
    #: Makes the ids of messages.
    new_id = staticmethod(ids.new_id)

    @property
    def keeps_results(self) -> bool:
        """Return whether the results of tasks are kept."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig(DeliveryOptions):
    """The options of one queue."""

    max_depth: int | None = field(
        default=None,
        metadata=option(
            read_optional_count,
            "The number of ready, waiting and pending messages from which a publish raises `QueueFull`, and ticks "
            "of schedules wait.",
        ),
    )
    result_ttl: timedelta = field(
        default=timedelta(days=1),
        metadata=option(read_result_ttl, "How long a task's result is kept; 0: no results are kept."),
    )
    rate_limit: Limit[Rate] = field(
        default=Limit(),
        metadata=option(
            read_rate_limit,
            '`"10/s"`, `"100/m"`, `"5/10s"`: deliveries in any period of this length, of all consumers together. '
            '`{"queue": "100/s", "key": "10/s"}` limits each key, too.',
        ),
    )
    concurrency: Limit[int] = field(
        default=Limit(),
        metadata=option(
            read_concurrency,
            'Deliveries at once, of all consumers together: `5`, or `{"queue": 20, "key": 1}`.',
        ),
    )
    consume: bool = field(
        default=True,
        metadata=option(
            read_switch,
            "`False`: [other programs handle this queue](#queues-that-other-programs-handle). `runconsumer` does only "
            "its housekeeping.",
        ),
    )
    store: str = field(default="stream", metadata=STORE)
    keys: QueueKeys = _own_keys()

    #: Schedules may publish to such a queue. Why its running messages cannot be cancelled; "": they can.
    has_schedules: ClassVar[bool] = True
    keeps_running: ClassVar[str] = ""

    @property
    def keeps_results(self) -> bool:
        """See DeliveryOptions.keeps_results."""
        return bool(self.result_ttl)

    @property
    def limits(self) -> Limits:
        """Return all limits as one value."""
        rate, at_once = self.rate_limit, self.concurrency
        return Limits(rate=rate.queue, key_rate=rate.key, concurrency=at_once.queue, key_concurrency=at_once.key)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", self._make_keys())

    def _make_keys(self) -> QueueKeys:
        return queue_keys(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RsmqConfig(QueueConfig):
    """The options of a queue in RSMQ's format, shared with programs in other languages."""

    namespace: str = field(
        default="rsmq",
        metadata=option(read_rsmq_namespace, 'RSMQ\'s `ns`. On a Redis Cluster it carries the hash tag: `"{rsmq}"`.'),
    )
    visibility_timeout: timedelta = field(
        default=timedelta(seconds=DEFAULT_VT),
        metadata=option(
            read_vt,
            "Seconds from 1: the `vt` of a new queue, and how long our consumers hide the messages that they take.",
            name="VT",
        ),
    )
    delay: int = field(
        default=DEFAULT_DELAY,
        metadata=option(read_delay, "Seconds: the `delay` of a new queue."),
    )
    maxsize: int = field(
        default=DEFAULT_MAXSIZE,
        metadata=option(read_maxsize, "UTF-16 units, or -1: the `maxsize` of a new queue."),
    )
    realtime: bool = field(
        default=False,
        metadata=option(read_switch, "Publish on RSMQ's channel after each send, and rely on other programs to do so."),
    )
    store: str = field(default="rsmq", metadata=STORE)
    keys: RsmqKeys = _own_keys()
    # An RSMQ queue does not have these options.
    max_size: int = 1024 * 1000
    result_ttl: timedelta = timedelta(0)
    rate_limit: Limit[Rate] = Limit()
    concurrency: Limit[int] = Limit()

    has_schedules: ClassVar[bool] = False
    keeps_running: ClassVar[str] = "Queue {config.name!r} has RSMQ's format: only waiting messages can be cancelled"
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "priority": "Queue {config.name!r} has RSMQ's format, which has no priorities",
            "unique": "Queue {config.name!r} has RSMQ's format, which has no unique keys",
            "message_id": "Queue {config.name!r} has RSMQ's format, which has no ids such as {value!r}: "
            "they have 32 letters and digits",
        }
    )
    id_form: ClassVar[re.Pattern[str] | None] = rsmq_format.MESSAGE_ID
    text_name: ClassVar[str | None] = rsmq_format.TEXT
    new_id = staticmethod(rsmq_format.new_id)

    def _make_keys(self) -> RsmqKeys:
        return rsmq_keys(self.namespace, self.name)

    @property
    def vt(self) -> int:
        """Return the visibility timeout in whole seconds, RSMQ's unit."""
        return math.ceil(self.visibility_timeout.total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(QueueConfig):
    """A group of a topic as a queue, named `topic:group`."""

    store: str = "topic"
    topic: str
    group: str
    keys: GroupKeys = _own_keys()

    has_schedules: ClassVar[bool] = False
    keeps_running: ClassVar[str] = "{config.name!r} is a group of a topic: only waiting messages can be cancelled"
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"priority": "Topic {config.topic!r} is read in one order, so there are no priorities"}
    )

    def _make_keys(self) -> GroupKeys:
        return group_keys(self.namespace, self.topic, subscriber=self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(DeliveryOptions):
    """The options of one topic. Those of DeliveryOptions apply to its groups."""

    retention: timedelta | None = field(
        default=timedelta(days=7),
        metadata=option(
            read_optional_period,
            "How long a message is kept; `None`: for ever, unless one of the next two options limits it.",
        ),
    )
    retention_count: int | None = field(
        default=None, metadata=option(read_optional_count, "How many messages are kept.")
    )
    retention_bytes: int | None = field(
        default=None,
        metadata=option(
            read_optional_count,
            "The most memory of the log in Redis, as `MEMORY USAGE` estimates it.",
            is_bytes=True,
        ),
    )
    retention_alarm: float = field(
        default=0.8,
        metadata=option(
            read_share, "The share of the retention that a group may lag behind before an alarm is raised."
        ),
    )
    duplicate_window: timedelta = field(
        default=timedelta(minutes=5),
        metadata=option(
            read_period,
            "How long a `message_id=` is remembered, so that publishing it again has no effect.",
        ),
    )
    keys: TopicKeys = _own_keys()

    lacks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "priority": "Topic {config.name!r} is read in one order, so there are no priorities",
            "delay": "Topic {config.name!r} is read in one order, so there are no delays",
            "unique": "Topic {config.name!r} is read in one order, so there are no unique keys",
        }
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", TopicKeys(self.namespace, self.name))

    def group(self, name: str) -> GroupConfig:
        """Return the options of one of its groups."""
        if not is_name(name):
            raise ConfigurationError(f"A group's name is 1 to 160 letters, digits, _ and -, not {name!r:.200}")
        shared = {option.name: getattr(self, option.name) for option in fields(DeliveryOptions)}
        own = {"name": f"{self.name}{GROUP_SEPARATOR}{name}", "topic": self.name, "group": name}
        return GroupConfig(**{**shared, **own})
