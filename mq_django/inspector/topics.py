"""Topics as people see them: their logs, where the groups are in them, and moving the groups."""

import time
from collections.abc import Sequence, Set
from dataclasses import dataclass

from mq_django.conf import TopicConfig, get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import Place, before, parse
from mq_django.errors import StoreError
from mq_django.inspector.activity import NONE, WINDOW, Activity, activity_of_hour
from mq_django.inspector.queue_looks import MAX_COUNTED
from mq_django.inspector.queue_view import RECENT
from mq_django.inspector.seek_preview import SeekPreview, seek_preview
from mq_django.registry import groups
from mq_django.stores.log import Log
from mq_django.stores.topic_stats import GroupStats, TopicStats, topic_stats
from mq_django.transport.connections import open_wire

__all__ = ["GroupStats", "SeekPreview", "TopicView", "preview", "seek", "topic", "topics", "unsubscribe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic: what its log holds, and its groups by name."""

    config: TopicConfig
    now_ms: int = 0
    length: int = 0
    #: Bytes of Redis' memory, about.
    size: int = 0
    #: Entries of the log; `0-0` when it is empty.
    first: str = "0-0"
    last: str = "0-0"
    groups: tuple[GroupStats, ...] = ()
    #: The names of those groups that this project has a subscriber of; others are of other programs, or of code that
    #: is gone.
    in_code: Set[str] = frozenset()
    #: What was published; what became of it, each group counts for itself.
    activity: Activity = NONE
    #: Why it cannot be read; empty when it can.
    error: str = ""

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self.config.name

    @property
    def first_ms(self) -> int | None:
        """Return when the oldest message was published, in ms since 1970; None when there is none."""
        return parse(self.first)[0] or None

    @property
    def last_ms(self) -> int | None:
        """Return when the newest message was published, in ms since 1970; None when there is none."""
        return parse(self.last)[0] or None

    def group(self, name: str) -> GroupStats:
        """Return one of its groups; one that nobody knows is not subscribed."""
        found = (group for group in self.groups if group.name == name)
        return next(found, GroupStats(topic=self.name, name=name, subscribed=False))


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
    return seek_preview(get_config().topic(name), group, before(place), open_wire("inspect"))


def seek(name: str, group: str, place: Place) -> None:
    """Move a group, while consumers run; see preview() for what it raises, and mq_django.topics for what it means."""
    _log(name).seek(group, place)


def unsubscribe(name: str, group: str) -> bool:
    """Remove a group with its retries, dead letters, counters and alarm; tell whether it was there."""
    return _log(name).unsubscribe(group, now=time.time())


def _log(name: str) -> Log:
    return Log(get_config().topic(name), open_wire("inspect"))


def _views(configs: Sequence[TopicConfig], *, minutes: int) -> list[TopicView]:
    found = topic_stats(configs, open_wire("inspect"), minutes=minutes, at_most=MAX_COUNTED)
    return [
        TopicView(config=config, error=str(seen)) if isinstance(seen, StoreError) else _view(config, seen)
        for config, seen in zip(configs, found, strict=True)
    ]


def _view(config: TopicConfig, found: TopicStats) -> TopicView:
    in_code = {name.partition(GROUP_SEPARATOR)[2] for name in groups(config.name)}
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
        activity=activity_of_hour(found.this_hour, found.last_hour, hour=found.hour, now_ms=found.now_ms),
    )
