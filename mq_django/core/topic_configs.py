"""The options of topics and their groups, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

from mq_django.core.keys import GROUP_SEPARATOR, GroupKeys, TopicKeys, is_name
from mq_django.core.options import option, read_optional_count, read_optional_period, read_period, read_share
from mq_django.core.partitions import partition_name, public_name, tag_of
from mq_django.core.queue_configs import DeliveryOptions, QueueConfig, own_keys
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError

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
            "The maximum memory of the log in Redis, as `MEMORY USAGE` estimates it.",
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
