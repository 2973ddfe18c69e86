"""Topics as people see them: their logs, where the groups are in them, and moving the groups."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from mq_django.conf import TopicConfig, get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import Place, before, parse
from mq_django.errors import StoreError, UnknownGroup
from mq_django.inspector.activity import NONE, WINDOW, Activity, activity_of_hour
from mq_django.inspector.queue_looks import MAX_COUNTED
from mq_django.inspector.queue_view import RECENT
from mq_django.inspector.seek_preview import SeekPreview, seek_preview
from mq_django.registry import groups
from mq_django.stores.log import Log, retention_share
from mq_django.stores.topic_stats import GroupStats, TopicStats, topic_stats
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

__all__ = ["GroupView", "SeekPreview", "TopicView", "preview", "seek", "topic", "topics", "unsubscribe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group of a topic: where it is in the log, and how near that is to the end of the retention."""

    topic: str
    name: str
    #: The last entry that it was given; `0-0` when it was given none.
    offset: str = "0-0"
    #: Messages of the log that its consumers hold.
    pending: int = 0
    #: Messages of the log that it was not given, and how long the oldest of them has been there.
    lag: int = 0
    lag_ms: int = 0
    #: There are more than `lag`: Redis could not tell, and counting them all would take long.
    at_least: bool = False
    #: Changes with every seek.
    generation: int = 0
    #: Messages from the oldest that it holds, or else was not given, to the newest; and that one's age in ms.
    behind: int = 0
    behind_ms: int = 0
    #: How much of the retention that is: at 1 it begins to lose messages, or to hold up the trimming by what it holds.
    #: None: the topic keeps everything.
    share: float | None = None
    #: The percentage at which it was found to be too far behind, while it is.
    alarm: int | None = None
    #: Messages that retention took before it was given them, since it subscribed.
    lost: int = 0
    #: It is in Redis: a group in code is so from when its first consumer starts.
    subscribed: bool = True
    #: This project has a subscriber of it; else it is of another program, or of code that is gone.
    in_code: bool = True

    @property
    def queue(self) -> str:
        """Return what the runtime calls the group: its retries and dead letters are those of this queue."""
        return f"{self.topic}{GROUP_SEPARATOR}{self.name}"

    @property
    def offset_ms(self) -> int | None:
        """Return when the last message that it was given was published, in ms since 1970."""
        return parse(self.offset)[0] or None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic: what its log holds and keeps, and its groups by name."""

    name: str
    now_ms: int = 0
    length: int = 0
    #: Bytes of Redis' memory, about.
    size: int = 0
    #: Entries of the log; `0-0` when it is empty.
    first: str = "0-0"
    last: str = "0-0"
    retention: timedelta | None = None
    retention_count: int | None = None
    retention_bytes: int | None = None
    #: The share of the retention from which it is an alarm that a group is so far behind.
    retention_alarm: float = 0.8
    groups: tuple[GroupView, ...] = ()
    #: What was published; what became of it, each group counts for itself.
    activity: Activity = NONE
    #: Why it cannot be read; empty when it can.
    error: str = ""

    @property
    def first_ms(self) -> int | None:
        """Return when the oldest message was published, in ms since 1970; None when there is none."""
        return parse(self.first)[0] or None

    @property
    def last_ms(self) -> int | None:
        """Return when the newest message was published, in ms since 1970; None when there is none."""
        return parse(self.last)[0] or None

    def group(self, name: str) -> GroupView:
        """Return one of its groups; one that nobody knows is not subscribed."""
        found = (group for group in self.groups if group.name == name)
        return next(found, GroupView(topic=self.name, name=name, subscribed=False, in_code=False))


def topics() -> list[TopicView]:
    """Return all topics by name, with what was published in the last half hour; what cannot be read says why.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreError: Redis is away.
    """
    return _views([config for _, config in sorted(get_config().topics.items())], minutes=RECENT + 1)


def topic(name: str) -> TopicView:
    """Return a topic, with what was published in the last hour.

    Raises:
        UnknownTopic: it is not configured.
        StoreError: Redis is away.
    """
    (view,) = _views([get_config().topic(name)], minutes=WINDOW + 1)
    return view


def preview(name: str, group: str, place: Place) -> SeekPreview:
    """Return how many messages a group would be given again, or never, when it were moved to a place.

    Raises:
        UnknownTopic, UnknownGroup: there is none of that name.
        InvalidOffset: it is no place in a log.
        StoreError: Redis is away.
    """
    keys, wire = get_config().topic(name).keys, Pooled(get_client("inspect"))
    found = seek_preview(keys, wire, group, before(place))
    if found is None:
        raise UnknownGroup(f"Topic {name!r} has no group {group!r}")
    return found


def seek(name: str, group: str, place: Place) -> None:
    """Move a group, while consumers run; see preview() for what it raises, and mq_django.topics for what it means."""
    _log(name).seek(group, place)


def unsubscribe(name: str, group: str) -> bool:
    """Remove a group with its retries, dead letters, counters and alarm; tell whether it was there."""
    return _log(name).unsubscribe(group, now=time.time())


def _log(name: str) -> Log:
    return Log(get_config().topic(name), Pooled(get_client("inspect")))


def _views(configs: Sequence[TopicConfig], *, minutes: int) -> list[TopicView]:
    wire = Pooled(get_client("inspect"))
    found = topic_stats([config.keys for config in configs], wire, minutes=minutes, at_most=MAX_COUNTED)
    return [
        TopicView(name=config.name, error=str(seen)) if isinstance(seen, StoreError) else _view(config, seen)
        for config, seen in zip(configs, found, strict=True)
    ]


def _view(config: TopicConfig, found: TopicStats) -> TopicView:
    in_code = {name.partition(GROUP_SEPARATOR)[2] for name in groups(config.name)}
    bytes_each = found.size / max(1, found.info.length)
    there = {seen.place.name: _group(config, seen, bytes_each, in_code) for seen in found.groups}
    missing = {name: GroupView(topic=config.name, name=name, subscribed=False) for name in in_code - set(there)}
    return TopicView(
        name=config.name,
        now_ms=found.info.now_ms,
        length=found.info.length,
        size=found.size,
        first=found.info.first,
        last=found.info.last,
        retention=config.retention,
        retention_count=config.retention_count,
        retention_bytes=config.retention_bytes,
        retention_alarm=config.retention_alarm,
        groups=tuple(view for _, view in sorted({**there, **missing}.items())),
        activity=activity_of_hour(found.this_hour, found.last_hour, hour=found.hour, now_ms=found.info.now_ms),
    )


def _group(config: TopicConfig, seen: GroupStats, bytes_each: float, in_code: set[str]) -> GroupView:
    place = seen.place
    behind, behind_ms = place.lag + seen.held, max(place.lag_ms, seen.held_ms)
    return GroupView(
        topic=config.name,
        name=place.name,
        offset=place.offset,
        pending=place.pending,
        lag=place.lag,
        lag_ms=place.lag_ms,
        at_least=seen.more,
        generation=place.generation,
        share=retention_share(config, behind, behind_ms, bytes_each),
        behind=behind,
        behind_ms=behind_ms,
        alarm=place.alarm,
        lost=place.lost,
        in_code=place.name in in_code,
    )
