"""What the settings say, as frozen values; `mq_django.conf` reads them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from mq_django.core.keys import GROUP_SEPARATOR, NAME, GroupKeys, QueueKeys, RsmqKeys, TopicKeys
from mq_django.core.limits import Limits
from mq_django.core.retries import RetryPolicy
from mq_django.core.rsmq_format import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mq_django.core.schedules import Scheduled
from mq_django.errors import ConfigurationError, UnknownQueue, UnknownTopic

EMBEDDED = "embedded"

#: A publish asks several times, and spelling a queue's keys takes 5 microseconds.
queue_keys = cache(QueueKeys)
group_keys = cache(GroupKeys)
rsmq_keys = cache(RsmqKeys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """What queues and topics have in common: how their messages are handled, each option with its default."""

    name: str
    namespace: str = "mq"
    #: After this long without a heartbeat of its supervisor, a delivery goes to somebody else.
    visibility_timeout: timedelta = timedelta(seconds=10)
    #: Deliveries that may fail before a message is buried.
    max_attempts: int = 25
    retry: RetryPolicy = RetryPolicy()
    #: How long a handler may run; None: without end.
    timeout: timedelta | None = None
    #: Bytes of JSON that a message's data may have.
    max_size: int = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig(Handling):
    """The options of one queue."""

    store: str = "stream"
    #: Messages ready, waiting and pending together, from which a publish raises QueueFull; None: no limit.
    max_depth: int | None = None
    #: How long a task's result is kept; zero: not at all.
    result_ttl: timedelta = timedelta(days=1)
    limits: Limits = Limits()

    @property
    def keys(self) -> QueueKeys:
        """Return the queue's Redis keys."""
        return queue_keys(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RsmqConfig(QueueConfig):
    """The options of a queue in RSMQ's format, which programs in other languages share."""

    namespace: str = "rsmq"
    store: str = "rsmq"
    #: What the queue is created with; seconds as in RSMQ, and UTF-16 units, or -1.
    delay: int = DEFAULT_DELAY
    maxsize: int = DEFAULT_MAXSIZE
    #: Publish on RSMQ's channel after a send, and expect that of others.
    realtime: bool = False
    #: RSMQ's vt. Consumers of ours keep hidden what they hold.
    visibility_timeout: timedelta = timedelta(seconds=DEFAULT_VT)
    max_size: int = 1024 * 1000
    result_ttl: timedelta = timedelta(0)

    @property
    def keys(self) -> RsmqKeys:
        """Return the queue's Redis keys."""
        return rsmq_keys(self.namespace, self.name)

    @property
    def vt(self) -> int:
        """Return the visibility timeout as RSMQ has it, in whole seconds."""
        return math.ceil(self.visibility_timeout.total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(QueueConfig):
    """A group of a topic, as a queue of its own: named `topic:group`."""

    store: str = "topic"
    topic: str
    group: str

    @property
    def keys(self) -> GroupKeys:
        """Return the group's Redis keys."""
        return group_keys(self.namespace, self.topic, subscriber=self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(Handling):
    """The options of one topic; those of handling are its groups'."""

    #: How long a message is kept; None: for ever, unless one of the next two says otherwise.
    retention: timedelta | None = timedelta(days=7)
    #: How many messages are kept, and how many bytes of Redis' memory they may take.
    retention_count: int | None = None
    retention_bytes: int | None = None
    #: The share of the retention that a group may be behind before that is an alarm.
    retention_alarm: float = 0.8
    #: How long a message's id is remembered, so that publishing it again adds nothing.
    duplicate_window: timedelta = timedelta(minutes=5)

    @property
    def keys(self) -> TopicKeys:
        """Return the topic's Redis keys."""
        return TopicKeys(self.namespace, self.name)

    def group(self, name: str) -> GroupConfig:
        """Return the options of one of its groups."""
        if not NAME.fullmatch(name):
            raise ConfigurationError(f"A group's name is 1 to 160 letters, digits, _ and -, not {name!r:.200}")
        shared = {option.name: getattr(self, option.name) for option in fields(Handling)}
        own = {"name": f"{self.name}{GROUP_SEPARATOR}{name}", "topic": self.name, "group": name}
        return GroupConfig(**{**shared, **own})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All of `settings.MQ_DJANGO`."""

    #: A django-redis alias, a URL, or `embedded`.
    connection: str = EMBEDDED
    namespace: str = "mq"
    #: Where the embedded server keeps its data.
    directory: Path = field(default_factory=lambda: Path.cwd() / ".mq_django")
    queues: Mapping[str, QueueConfig]
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    #: Triggers without code: see `mq_django.triggers`.
    signals: tuple[Mapping[str, Any], ...] = ()
    #: Schedules without code, by name.
    schedules: Mapping[str, Scheduled] = field(default_factory=dict)

    def queue(self, name: str) -> QueueConfig:
        """Return the options of a queue, or of a group of a topic by `topic:group`; else raise UnknownQueue."""
        topic, separator, group = str(name).partition(GROUP_SEPARATOR)
        if separator and NAME.fullmatch(group):
            return self.topic(topic).group(group)
        try:
            return self.queues[name]
        except (KeyError, TypeError):
            known = ", ".join(sorted(self.queues)) or "none"
            raise UnknownQueue(f'No queue {name!r} in MQ_DJANGO["QUEUES"]; configured: {known}') from None

    def topic(self, name: str) -> TopicConfig:
        """Return the options of a topic, or raise UnknownTopic."""
        try:
            return self.topics[name]
        except (KeyError, TypeError):
            known = ", ".join(sorted(self.topics)) or "none"
            raise UnknownTopic(f'No topic {name!r} in MQ_DJANGO["TOPICS"]; configured: {known}') from None
