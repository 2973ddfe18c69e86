"""Topics for display: their logs, the offsets of their groups, and moving the groups."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from mq_django.conf import TopicConfig, get_config
from mq_django.core import clock
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import Offset, before, parse
from mq_django.core.texts import repr_of
from mq_django.errors import ConnectionLost, ConnectionRejected, StoreError, UnknownGroup
from mq_django.inbox.once import seek as move_group
from mq_django.inspector.queue_view import NONE, RECENT, WINDOW, Activity, activity_of_hour
from mq_django.inspector.statistics import MAX_COUNTED
from mq_django.registry import groups
from mq_django.stores import open_log
from mq_django.stores.activity import Given, recorded
from mq_django.stores.log import Log, PartitionedLog
from mq_django.stores.topic_stats import MAX_NAMES, GroupStats, TopicStats, count_between, topic_stats
from mq_django.transport.connections import open_transport, open_transports
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

# Preview the effect of moving a group of a topic. Read-only.

#: The most messages that are counted, because a user waits for it.
MAX_PREVIEWED = 50_000
#: The most pending deliveries of a log that are counted.
HELD = 1000


class SeekPreview(NamedTuple):
    """The effect of moving a group."""

    #: The entry after which the group would continue.
    after: str
    #: Delivered messages that would be delivered again.
    replayed: int
    #: Undelivered messages that would be skipped.
    skipped: int
    #: The count reached `MAX_PREVIEWED`, and there are more.
    more: bool
    #: Pending deliveries. Their outcomes are ignored after the move.
    pending: int
    #: The pending deliveries that would not be delivered again, up to HELD of each log.
    given_up: int


def seek_preview(config: TopicConfig, name: str, after: str, transport: Transport) -> SeekPreview:
    """Return the effect of moving a group to after an entry, `0` or `$`: of a topic with partitions in all of them.

    Raises:
        UnknownGroup: the group does not exist.
        StoreError: cannot reach Redis.
    """
    parts = config.each_part
    logs = topic_stats(parts, [transport] * len(parts), at_most=MAX_PREVIEWED)
    there: list[tuple[TopicConfig, TopicStats, GroupStats]] = []
    for part, log in zip(parts, logs, strict=True):
        if isinstance(log, StoreError):
            raise log
        group = log.group(name)
        if group is not None:
            there.append((part, log, group))
    if not there:
        raise UnknownGroup(f"Topic {config.name!r} has no group {repr_of(name)}")
    thens = [log.generated if after == "$" else after for _, log, _ in there]
    held = [[("XPENDING", part.keys.log, name, "-", then, HELD)] for (part, *_), then in zip(there, thens, strict=True)]
    pending = fan_out([transport] * len(held), held)
    each = [
        _preview(*found, then, len(reply_or_raise(reply)), transport)
        for found, then, (reply,) in zip(there, thens, pending, strict=True)
    ]
    return SeekPreview(
        after=max((found.after for found in each), key=parse),
        replayed=sum(found.replayed for found in each),
        skipped=sum(found.skipped for found in each),
        more=any(found.more for found in each),
        pending=sum(found.pending for found in each),
        given_up=sum(found.given_up for found in each),
    )


def _preview(
    config: TopicConfig, log: TopicStats, group: GroupStats, then: str, given_up: int, transport: Transport
) -> SeekPreview:
    """Return the effect in one log of moving a group to after an entry."""
    now = group.offset
    backwards = parse(then) < parse(now)
    if parse(then) < parse(log.first) and not group.at_least:
        count, more = log.length - group.lag, False
    elif parse(then) >= parse(log.last):
        count, more = group.lag, group.at_least
    else:
        begins, ends = (then, now) if backwards else (now, then)
        count, more = count_between(config.keys, transport, begins, ends, at_most=MAX_PREVIEWED)
    return SeekPreview(then, count if backwards else 0, 0 if backwards else count, more, group.pending, given_up)


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


def topics(names: Callable[[str], bool] = lambda _name: True) -> list[TopicView]:
    """Return topics by name with the activity of the last half hour; those that cannot be read have an error.

    Args:
        names: whether to read a topic, by its name.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreError: cannot reach Redis, and no queue is on another server.
    """
    configs = [config for name, config in sorted(get_config().topics.items()) if names(name)]
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


def preview(name: str, group: str, position: Offset) -> SeekPreview:
    """Return how many messages would be delivered again or skipped if a group were moved.

    Raises:
        UnknownTopic, UnknownGroup: it does not exist.
        InvalidOffset: `position` is invalid.
        StoreError: cannot reach Redis.
    """
    config = get_config().topic(name)
    return seek_preview(config, group, before(position), open_transport("inspect", config.connection))


def _group(given: Given) -> str:
    return f"{given['name']}{GROUP_SEPARATOR}{given['group']}"


@recorded("seek", queue=_group, about="position")
def seek(name: str, group: str, position: Offset, *, repeat: bool = False) -> None:
    """Move a group; consumers may be running. Raises the same errors as preview().

    With `repeat` the effects of subscribers with `@exactly_once` happen again; it raises ConfigurationError if there is
    none.
    """
    move_group(_log(name), get_config().topic(name).group(group), position, repeat=repeat)


@recorded("unsubscribe", queue=_group)
def unsubscribe(name: str, group: str) -> bool:
    """Remove a group with its retries, dead letters, counters and alarm; return whether it existed."""
    return _log(name).unsubscribe(group, now=clock.now())


def _log(name: str) -> Log | PartitionedLog:
    config = get_config().topic(name)
    return open_log(config, open_transport("inspect", config.connection))


def _views(configs: Sequence[TopicConfig], *, minutes: int) -> list[TopicView]:
    transports = open_transports("inspect", [config.connection for config in configs])
    found = topic_stats(configs, transports, minutes=minutes, at_most=MAX_COUNTED, max_groups=MAX_NAMES)
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
