"""Topics as people see them: their logs, where the groups are in them, and moving the groups."""

import time
from dataclasses import dataclass
from datetime import timedelta

from mq_django.conf import TopicConfig, get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import Place, parse
from mq_django.errors import StoreError
from mq_django.registry import groups
from mq_django.stores.lag import Leap, LogInfo
from mq_django.stores.log import Log, Standing
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

__all__ = ["GroupView", "Leap", "TopicView", "preview", "seek", "topic", "topics", "unsubscribe"]


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


def topics() -> list[TopicView]:
    """Return all topics by name; what cannot be read says why.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    return [_view_or_error(config) for _, config in sorted(get_config().topics.items())]


def topic(name: str) -> TopicView:
    """Return a topic.

    Raises:
        UnknownTopic: it is not configured.
    """
    return _view_or_error(get_config().topic(name))


def preview(name: str, group: str, place: Place) -> Leap:
    """Return how many messages a group would be given again, or never, when it were moved to a place.

    Raises:
        UnknownTopic, UnknownGroup: there is none of that name.
        InvalidOffset: it is no place in a log.
        StoreError: Redis is away.
    """
    return _log(name).preview(group, place)


def seek(name: str, group: str, place: Place) -> None:
    """Move a group, while consumers run; see preview() for what it raises, and mq_django.topics for what it means."""
    _log(name).seek(group, place)


def unsubscribe(name: str, group: str) -> bool:
    """Remove a group with its retries, dead letters, counters and alarm; tell whether it was there."""
    return _log(name).unsubscribe(group, now=time.time())


def _log(name: str) -> Log:
    return Log(get_config().topic(name), Pooled(get_client("inspect")))


def _view_or_error(config: TopicConfig) -> TopicView:
    log = Log(config, Pooled(get_client("inspect")))
    try:
        info, size = log.info()
        standings = log.standings()
    except StoreError as error:
        return TopicView(name=config.name, error=str(error))
    return _view(config, info, size, standings)


def _view(config: TopicConfig, info: LogInfo, size: int, standings: list[Standing]) -> TopicView:
    in_code = {name.partition(GROUP_SEPARATOR)[2] for name in groups(config.name)}
    there = {standing.place.name: _group(config.name, standing, in_code) for standing in standings}
    missing = {name: GroupView(topic=config.name, name=name, subscribed=False) for name in in_code - set(there)}
    return TopicView(
        name=config.name,
        now_ms=info.now_ms,
        length=info.length,
        size=size,
        first=info.first,
        last=info.last,
        retention=config.retention,
        retention_count=config.retention_count,
        retention_bytes=config.retention_bytes,
        retention_alarm=config.retention_alarm,
        groups=tuple(view for _, view in sorted({**there, **missing}.items())),
    )


def _group(name: str, standing: Standing, in_code: set[str]) -> GroupView:
    place = standing.place
    return GroupView(
        topic=name,
        name=place.name,
        offset=place.offset,
        pending=place.pending,
        lag=place.lag,
        lag_ms=place.lag_ms,
        generation=place.generation,
        share=standing.share,
        behind=standing.behind,
        behind_ms=standing.behind_ms,
        alarm=place.alarm,
        lost=place.lost,
        in_code=place.name in in_code,
    )
