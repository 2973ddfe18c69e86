"""The statistics of a topic and its groups as values, and their sums over partitions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import parse
from mq_django.stores.counters import added


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """A group of a topic: its offset, its lag, and how much of the retention it uses."""

    topic: str
    name: str
    #: The last delivered entry; `0-0` for none.
    offset: str = "0-0"
    #: Entries of the log that its consumers hold.
    pending: int = 0
    #: Undelivered messages of the log, and the age of the oldest of them in ms.
    lag: int = 0
    lag_ms: int = 0
    #: The lag is larger: Redis did not report it, and counting stopped at a limit.
    at_least: bool = False
    #: Changes with every seek. Receipts of another generation are invalid.
    generation: int = 0
    #: Messages from the oldest pending or undelivered one to the newest, and the age of the oldest in ms.
    behind: int = 0
    behind_ms: int = 0
    #: Share of the retention. From 1 on the group loses messages, or its pending ones delay trimming. None: the topic
    #: has no retention.
    share: float | None = None
    #: The percentage of the retention when the alarm was raised; None: no alarm.
    alarm: int | None = None
    #: Messages trimmed before delivery, since it subscribed.
    lost: int = 0
    #: It exists in Redis. A group in code is created when its first consumer starts.
    subscribed: bool = True

    @property
    def queue(self) -> str:
        """Return the name of the group's own queue, which has its retries and dead letters."""
        return f"{self.topic}{GROUP_SEPARATOR}{self.name}"

    @property
    def offset_ms(self) -> int | None:
        """Return when its last delivered message was published, in ms since 1970."""
        return parse(self.offset)[0] or None


class TopicStats(NamedTuple):
    """A log and its groups."""

    #: By the server's clock.
    now_ms: int
    length: int
    #: Ids of the first and last entry, and of the last one ever added; `0-0` for none.
    first: str
    last: str
    generated: str
    #: The largest id of a deleted entry, if the server reports it.
    deleted: str
    #: Approximate bytes of memory in Redis.
    size: int
    #: Counters of this hour and of the one before, and the time when they were read, by the clock of this machine.
    this_hour: Mapping[bytes, bytes]
    last_hour: Mapping[bytes, bytes]
    counted_ms: int
    groups: Sequence[GroupStats] = ()
    #: Those of its partitions, by number.
    parts: "Sequence[TopicStats]" = ()
    #: How many more groups it has, which were not read.
    left_out: int = 0

    def group(self, name: str) -> GroupStats | None:
        """Return one of its groups, or None."""
        return next((group for group in self.groups if group.name == name), None)


def summed(name: str, parts: Sequence[TopicStats]) -> TopicStats:
    """Return the statistics of a topic with this name from those of its partitions: sums, and the extremes of times."""
    return TopicStats(
        now_ms=max(part.now_ms for part in parts),
        length=sum(part.length for part in parts),
        first=min((part.first for part in parts if part.length), key=parse, default="0-0"),
        last=_latest(part.last for part in parts),
        generated=_latest(part.generated for part in parts),
        deleted=_latest(part.deleted for part in parts),
        size=sum(part.size for part in parts),
        this_hour=added(part.this_hour for part in parts),
        last_hour=added(part.last_hour for part in parts),
        counted_ms=parts[0].counted_ms,
        groups=_groups(name, [group for part in parts for group in part.groups]),
        parts=tuple(parts),
        left_out=max(part.left_out for part in parts),
    )


def _latest(entries: Iterable[str]) -> str:
    return max(entries, key=parse)


def _groups(topic: str, found: Sequence[GroupStats]) -> Sequence[GroupStats]:
    by_name: dict[str, list[GroupStats]] = {}
    for group in found:
        by_name.setdefault(group.name, []).append(group)
    return [_group(topic, name, parts) for name, parts in by_name.items()]


def _group(topic: str, name: str, parts: Sequence[GroupStats]) -> GroupStats:
    # The place of a group is an entry in each partition. The one that is furthest behind stands for them.
    last = max(parts, key=lambda part: (part.behind_ms, parse(part.offset)))
    return GroupStats(
        topic=topic,
        name=name,
        offset=last.offset,
        pending=sum(part.pending for part in parts),
        lag=sum(part.lag for part in parts),
        lag_ms=max(part.lag_ms for part in parts),
        at_least=any(part.at_least for part in parts),
        generation=max(part.generation for part in parts),
        behind=sum(part.behind for part in parts),
        behind_ms=max(part.behind_ms for part in parts),
        share=max((part.share for part in parts if part.share is not None), default=None),
        alarm=max((part.alarm for part in parts if part.alarm is not None), default=None),
        lost=sum(part.lost for part in parts),
    )
