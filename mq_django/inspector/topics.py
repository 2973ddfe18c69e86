"""Topics for display: their logs, the offsets of their groups, and moving the groups."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from mq_django.conf import TopicConfig, get_config
from mq_django.core import clock
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import Offset, before, parse
from mq_django.errors import ConnectionLost, ConnectionRejected, StoreError
from mq_django.inbox.seeking import seek as move_group
from mq_django.inspector.activity import NONE, WINDOW, Activity, activity_of_hour
from mq_django.inspector.queue_looks import MAX_COUNTED
from mq_django.inspector.queue_view import RECENT
from mq_django.inspector.seek_preview import SeekPreview, seek_preview
from mq_django.registry import groups
from mq_django.stores import open_log
from mq_django.stores.log import Log
from mq_django.stores.partitioned_log import PartitionedLog
from mq_django.stores.topic_stats import topic_stats
from mq_django.stores.topic_values import GroupStats, TopicStats
from mq_django.transport.connections import open_wire, open_wires

__all__ = ["GroupStats", "SeekPreview", "TopicView", "preview", "seek", "topic", "topics", "unsubscribe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic: its log, and its groups by name."""

    config: TopicConfig
    now_ms: int = 0
    length: int = 0
    #: Approximate bytes of memory in Redis.
    size: int = 0
    #: Entries of the log; `0-0` when it is empty.
    first: str = "0-0"
    last: str = "0-0"
    groups: tuple[GroupStats, ...] = ()
    #: The names of the groups with a subscriber in this project. The others belong to other programs or removed code.
    in_code: Set[str] = frozenset()
    #: Only published messages. Handled ones are counted by each group.
    activity: Activity = NONE
    #: Why it cannot be read; empty when it can.
    error: str = ""
    #: Its partitions, by number.
    parts: "tuple[TopicView, ...]" = ()
    #: How many more groups it has, which are not shown.
    left_out: int = 0

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self.config.name

    @property
    def first_ms(self) -> int | None:
        """Return when the oldest message was published, in ms since 1970; None without messages."""
        return parse(self.first)[0] or None

    @property
    def last_ms(self) -> int | None:
        """Return when the newest message was published, in ms since 1970; None without messages."""
        return parse(self.last)[0] or None

    def group(self, name: str) -> GroupStats:
        """Return one of its groups; an unknown one is not subscribed."""
        found = (group for group in self.groups if group.name == name)
        return next(found, GroupStats(topic=self.name, name=name, subscribed=False))


def topics() -> list[TopicView]:
    """Return all topics by name with the activity of the last half hour; those that cannot be read have an error.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreError: cannot reach Redis, and no queue is on another server.
    """
    configs = [config for _, config in sorted(get_config().topics.items())]
    try:
        return _views(configs, minutes=RECENT + 1)
    except (ConnectionLost, ConnectionRejected) as error:
        # The queues may be on another server.
        if len(get_config().connections()) == 1:
            raise
        return [TopicView(config=config, error=str(error)) for config in configs]


def topic(name: str) -> TopicView:
    """Return a topic with the activity of the last hour.

    Raises:
        UnknownTopic: the topic is not configured.
        StoreError: cannot reach Redis.
    """
    (view,) = _views([get_config().topic(name)], minutes=WINDOW + 1)
    return view


def preview(name: str, group: str, place: Offset) -> SeekPreview:
    """Return how many messages would be delivered again or skipped if a group were moved.

    Raises:
        UnknownTopic, UnknownGroup: it does not exist.
        InvalidOffset: `place` is invalid.
        StoreError: cannot reach Redis.
    """
    config = get_config().topic(name)
    return seek_preview(config, group, before(place), open_wire("inspect", config.connection))


def seek(name: str, group: str, place: Offset, *, repeat: bool = False) -> None:
    """Move a group; consumers may be running. Raises the same errors as preview().

    With `repeat` the effects of subscribers with `@exactly_once` happen again; it raises ConfigurationError if there is
    none.
    """
    move_group(_log(name), get_config().topic(name).group(group), place, repeat=repeat)


def unsubscribe(name: str, group: str) -> bool:
    """Remove a group with its retries, dead letters, counters and alarm; return whether it existed."""
    return _log(name).unsubscribe(group, now=clock.now())


def _log(name: str) -> Log | PartitionedLog:
    config = get_config().topic(name)
    return open_log(config, open_wire("inspect", config.connection))


def _views(configs: Sequence[TopicConfig], *, minutes: int) -> list[TopicView]:
    wires = open_wires("inspect", [config.connection for config in configs])
    found = topic_stats(configs, wires, minutes=minutes, at_most=MAX_COUNTED)
    return [
        TopicView(config=config, error=str(seen)) if isinstance(seen, StoreError) else _view(config, seen)
        for config, seen in zip(configs, found, strict=True)
    ]


def _view(config: TopicConfig, found: TopicStats) -> TopicView:
    in_code = {name.partition(GROUP_SEPARATOR)[2] for name in groups(config.public_name)}
    missing = in_code.difference(group.name for group in found.groups)
    every = [*found.groups, *(GroupStats(topic=config.name, name=name, subscribed=False) for name in missing)]
    return TopicView(
        config=config,
        now_ms=found.now_ms,
        length=found.length,
        size=found.size,
        first=found.first,
        last=found.last,
        groups=tuple(sorted(every, key=lambda group: group.name)),
        in_code=in_code,
        activity=activity_of_hour(found.this_hour, found.last_hour, now_ms=found.counted_ms),
        parts=tuple(map(_view, config.parts, found.parts)),
        left_out=found.left_out,
    )
