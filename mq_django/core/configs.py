"""The options of queues, topics and groups as frozen values. `mq_django.conf` reads them from the settings."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

from mq_django.core import rsmq_format
from mq_django.core.delivery_options import DeliveryOptions
from mq_django.core.keys import GROUP_SEPARATOR, GroupKeys, QueueKeys, TopicKeys, is_name
from mq_django.core.limits import Limit, Limits, Rate, Weights
from mq_django.core.options import (
    option,
    read_after_bury,
    read_concurrency,
    read_count,
    read_delay,
    read_fair,
    read_maxsize,
    read_optional_count,
    read_optional_period,
    read_period,
    read_rate_limit,
    read_result_ttl,
    read_rsmq_namespace,
    read_share,
    read_store,
    read_switch,
    read_vt,
)
from mq_django.core.rsmq_format import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mq_django.core.rsmq_keys import RsmqKeys
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
    keep_handled: timedelta | None = field(
        default=None,
        metadata=option(
            read_optional_period,
            "How long it is kept [what became of a message](howto/find-a-message.md) that was handled, expired or "
            "buried; `None`: not at all.",
        ),
    )
    keep_handled_count: int = field(
        default=100_000,
        metadata=option(read_count, "With `KEEP_HANDLED`: of how many messages that is kept, the latest ones."),
    )
    keep_handled_data: bool = field(
        default=False,
        metadata=option(
            read_switch,
            "With `KEEP_HANDLED`: keep also the data of the messages, up to 4 KiB of JSON each, with secrets replaced.",
        ),
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
    ordered: bool = field(
        default=False,
        metadata=option(
            read_switch,
            "The messages of a key are handled [in their order, one at a time](ordering.md).",
        ),
    )
    after_bury: str = field(
        default="continue",
        metadata=option(
            read_after_bury,
            'With `ORDERED`, when a message becomes a dead letter: with `"continue"` the next message of its key is '
            'handled; with `"hold"` the key waits until the dead letter is redriven, edited or deleted.',
        ),
    )
    fair: Weights | None = field(
        default=None,
        metadata=option(
            read_fair,
            "`True`: while messages wait, [keys take turns](ordering.md#fairness-between-keys), so that none waits for "
            'the many messages of another. `{"big-customer": 5}` gives a key five turns for each one of others.',
            shown="`False`",
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
        return Limits(
            rate=rate.queue,
            key_rate=rate.key,
            concurrency=at_once.queue,
            key_concurrency=1 if self.ordered else at_once.key,
            ordered=self.ordered,
            fair=self.fair,
        )

    def lacking(self, option: str) -> str | None:
        """See DeliveryOptions.lacking()."""
        if option == "priority" and (self.ordered or self.fair is not None):
            return "Queue {config.name!r} has ORDERED or FAIR, which priorities would break"
        return DeliveryOptions.lacking(self, option)

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
    keep_handled: timedelta | None = None
    keep_handled_count: int = 0
    keep_handled_data: bool = False
    rate_limit: Limit[Rate] = Limit()
    concurrency: Limit[int] = Limit()
    ordered: bool = False
    after_bury: str = "continue"
    fair: Weights | None = None

    has_schedules: ClassVar[bool] = False
    keeps_running: ClassVar[str] = "Queue {config.name!r} has RSMQ's format: only waiting messages can be cancelled"
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "priority": "Queue {config.name!r} has RSMQ's format, which has no priorities",
            "unique": "Queue {config.name!r} has RSMQ's format, which has no unique keys",
            "step": "Queue {config.name!r} has RSMQ's format, which has no steps of workflows",
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
        {
            "priority": "Topic {config.topic!r} is read in one order, so there are no priorities",
            "step": "{config.name!r} is a group of a topic, and steps of workflows are in queues",
        }
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
