"""Statistics of topics: logs, and the offset and lag of their groups. Read-only, few round trips for many topics."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, NamedTuple

from mq_django.conf import TopicConfig
from mq_django.core import clock
from mq_django.core.jsontext import whole
from mq_django.core.keys import GROUP_SEPARATOR, NAME, TopicKeys
from mq_django.core.offsets import before, parse
from mq_django.core.partitions import public_name
from mq_django.errors import StoreError
from mq_django.registry import groups
from mq_django.stores.counters import added, minute_fields, there
from mq_django.transport import scripts
from mq_django.transport.failures import readable, translate
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

# The statistics of a topic and its groups as values, and their sums over partitions.


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
    #: Messages trimmed before delivery since it subscribed, or was last moved.
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
    """Return the statistics of a topic with this name from its partitions': sums, and the extremes of times."""
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
    return [_group_of_partitions(topic, name, parts) for name, parts in by_name.items()]


def _group_of_partitions(topic: str, name: str, parts: Sequence[GroupStats]) -> GroupStats:
    # The position of a group is an entry in each partition. The one that is furthest behind stands for them.
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


#: Entries that a script call counts. This blocks Redis for about 2 ms.
PAGE = 5000
#: Entries counted at most from the oldest pending entry of a group.
MAX_HELD = 50_000
#: Groups that a page reads, of all topics and partitions together. Groups with a subscriber here are always read.
MAX_GROUPS = 300

#: Groups of a log from which on a page does not read them: with 20,000 it would take longer than a page may.
MAX_NAMES = 5000

#: The counters of a topic. All others are counted by its groups.
PUBLISHED = ("published",)


def topic_stats(
    configs: Sequence[TopicConfig],
    transports: Sequence[Transport],
    *,
    minutes: int = 0,
    at_most: float = math.inf,
    max_groups: int = 0,
) -> list[TopicStats | StoreError]:
    """Return the statistics of topics with the counters of the last minutes; an error for a topic that cannot be read.

    Those of a topic with partitions are sums. Each topic has its transport. Two round trips. If Redis does not say the
    lag of a group, its messages are counted, 5000 per round trip, up to about `at_most`; beyond that `behind` is
    estimated by time. A log with more than `max_groups` is an error, unless that is 0.
    """
    now_ms = clock.now_ms()
    parts, part_transports = _parts(configs, transports)
    names = _names(parts, part_transports, max_groups)
    pipelines = [
        [] if isinstance(read, StoreError) else [_command(config.keys, read, now_ms, minutes)]
        for config, read in zip(parts, shares(parts, names), strict=True)
    ]
    each = iter(
        found
        if isinstance(found, StoreError)
        else _with_rest(_topic_stats(config, transport, replies[0], now_ms, minutes, at_most), found)
        for config, transport, found, replies in zip(
            parts, part_transports, names, fan_out(part_transports, pipelines), strict=True
        )
    )
    return [_whole(config, list(islice(each, len(config.each_part)))) for config in configs]


def groups_of(config: TopicConfig, transport: Transport, *, at_most: float = math.inf) -> Sequence[GroupStats]:
    """Return all groups of a topic; see topic_stats().

    Raises:
        StoreError: the topic cannot be read.
    """
    (found,) = topic_stats([config], [transport], at_most=at_most)
    if isinstance(found, StoreError):
        raise found
    return found.groups


def stats_of_group(keys: TopicKeys, name: str, transport: Transport) -> TopicStats:
    """Return a log with only the given group, if it exists, without its share of the retention."""
    now_ms = clock.now_ms()
    (reply,) = transport.pipeline([_command(keys, [name], now_ms, 0)])
    log, groups = _log(reply, now_ms, 0)
    return log._replace(groups=[_group(keys, transport, log, row, math.inf) for row in groups])


def group_names(
    configs: Sequence[TopicConfig], transports: Sequence[Transport], *, max_groups: int = 0
) -> list[list[str] | StoreError]:
    """Return the names of the groups of topics, each with its transport; an error for a topic that cannot be read.

    For a topic with partitions they are of the partitions that can be read. See topic_stats() for `max_groups`.
    """
    each = iter(_names(*_parts(configs, transports), max_groups))
    return [_union(list(islice(each, len(config.each_part)))) for config in configs]


def shares(configs: Sequence[TopicConfig], names: Sequence[list[str] | StoreError]) -> list[list[str] | StoreError]:
    """Return which of the groups of topics or partitions one look reads: as many of each, and all with a subscriber."""
    lengths = sorted(
        len(found)
        for config, found in zip(configs, names, strict=True)
        if not isinstance(found, StoreError)
        for _ in config.each_part
    )
    left = share = MAX_GROUPS
    # What one with few groups does not need is for the others.
    for number, length in enumerate(lengths):
        share = left // (len(lengths) - number)
        if length > share:
            break
        left -= length
    return [
        found if isinstance(found, StoreError) else found[: max(share, sum(_in_code(config, found)))]
        for config, found in zip(configs, names, strict=True)
    ]


def _in_code(config: TopicConfig, names: Sequence[str]) -> Iterable[bool]:
    """Yield whether each group has a subscriber in this project."""
    topic, own = config.public_name, set(groups(config.public_name))
    return (f"{topic}{GROUP_SEPARATOR}{name}" in own for name in names)


def _union(found: Sequence[list[str] | StoreError]) -> list[str] | StoreError:
    read = [names for names in found if not isinstance(names, StoreError)]
    return list(dict.fromkeys(chain.from_iterable(read))) if read else found[0]


def _parts(
    configs: Sequence[TopicConfig], transports: Sequence[Transport]
) -> tuple[list[TopicConfig], list[Transport]]:
    pairs = [
        (part, transport) for config, transport in zip(configs, transports, strict=True) for part in config.each_part
    ]
    return [part for part, _ in pairs], [transport for _, transport in pairs]


def _names(
    parts: Sequence[TopicConfig], transports: Sequence[Transport], max_groups: int
) -> list[list[str] | StoreError]:
    names: list[list[str] | StoreError] = []
    commands = [scripts.command("topic_groups", keys=[part.keys.log], args=[max_groups]) for part in parts]
    replies = fan_out(transports, [[command] for command in commands])
    for part, (reply,) in zip(parts, replies, strict=True):
        if isinstance(reply, Exception):
            names.append(translate(reply))
        else:
            found = (name.decode(errors="replace") for name in reply)
            known = [name for name in found if NAME.fullmatch(name)]
            pairs = zip(known, _in_code(part, known), strict=True)
            names.append([name for name, _ in sorted(pairs, key=lambda pair: not pair[1])])
    return names


def _whole(config: TopicConfig, found: Sequence[TopicStats | StoreError]) -> TopicStats | StoreError:
    """Return the statistics of a topic from its partitions'; an error if one cannot be read."""
    errors = [each for each in found if isinstance(each, StoreError)]
    read = [each for each in found if not isinstance(each, StoreError)]
    if errors or not config.parts:
        return errors[0] if errors else read[0]
    return summed(config.name, read)


def _command(keys: TopicKeys, names: Sequence[str], now_ms: int, minutes: int) -> Command:
    now = now_ms // 60_000
    this_hour, last_hour = minute_fields(now, minutes, what=PUBLISHED)
    controls = [keys.group(name).control for name in names]
    return scripts.command(
        "topic_stats",
        keys=[keys.log, keys.minutes(now // 60), keys.minutes(now // 60 - 1), *controls],
        args=[len(this_hour), len(last_hour), *this_hour, *last_hour, *names],
    )


@readable
def _topic_stats(
    config: TopicConfig, transport: Transport, reply: Any, now_ms: int, minutes: int, at_most: float
) -> TopicStats:
    log, groups = _log(reply, now_ms, minutes)
    return log._replace(groups=[_with_retention(config, transport, log, row, at_most) for row in groups])


def _with_rest(found: TopicStats | StoreError, names: Sequence[str]) -> TopicStats | StoreError:
    return found if isinstance(found, StoreError) else found._replace(left_out=max(0, len(names) - len(found.groups)))


def _log(reply: Any, counted_ms: int, minutes: int) -> tuple[TopicStats, Sequence[Any]]:
    """Return the log in a reply, and the rows of its groups."""
    now_ms, length, *ids, size, this_hour, last_hour = reply_or_raise(reply)[:9]
    first, last, generated, deleted = (entry.decode() for entry in ids)
    this_fields, last_fields = minute_fields(counted_ms // 60_000, minutes, what=PUBLISHED)
    hours = there(this_fields, this_hour), there(last_fields, last_hour)
    return TopicStats(now_ms, length, first, last, generated, deleted or "0-0", size, *hours, counted_ms), reply[9:]


def _with_retention(
    config: TopicConfig, transport: Transport, log: TopicStats, row: Sequence[Any], at_most: float
) -> GroupStats:
    """Return a group with its share of the topic's retention."""
    group, oldest = _group(config.keys, transport, log, row, at_most), row[3].decode()
    behind, behind_ms = group.lag, group.lag_ms
    if oldest:
        held, _ = count_between(config.keys, transport, before(oldest), group.offset, at_most=min(at_most, MAX_HELD))
        behind, behind_ms = behind + held, max(behind_ms, log.now_ms - parse(oldest)[0])
    if group.at_least:
        behind = max(behind, _by_time(log, behind_ms))
    share = _share(config, behind, behind_ms, log.size / max(1, log.length))
    return replace(group, topic=config.name, behind=behind, behind_ms=behind_ms, share=share)


def _group(keys: TopicKeys, transport: Transport, log: TopicStats, row: Sequence[Any], at_most: float) -> GroupStats:
    name, last, pending, _, lag, first, generation, alarm, lost_count = row
    offset, lost, more = last.decode(), whole(lost_count) or 0, False
    lag = lag if first else 0
    if first and parse(offset) < parse(log.first):
        lag = log.length
    elif first and (lag < 0 or lost or parse(log.deleted) > parse(offset)):
        # Redis computes the lag as entries added minus entries read, which is wrong once unread entries were deleted.
        lag, more = count_between(keys, transport, offset, "+", at_most=at_most)
    lag_ms = max(0, log.now_ms - parse(first.decode())[0]) if first else 0
    return GroupStats(
        topic=public_name(keys.topic),
        name=name.decode(),
        offset=offset,
        pending=pending,
        lag=lag,
        lag_ms=lag_ms,
        at_least=more,
        generation=whole(generation) or 0,
        alarm=None if alarm is None else whole(alarm) or 0,
        lost=lost,
    )


def _by_time(log: TopicStats, behind_ms: int) -> int:
    """Estimate the number of messages of the last milliseconds of a log, as if published evenly."""
    (first_ms, _), (last_ms, _) = parse(log.first), parse(log.last)
    since_ms = log.now_ms - behind_ms
    return round(log.length * min(1.0, (last_ms - since_ms + 1) / (last_ms - first_ms + 1)))


def _share(config: TopicConfig, behind: int, behind_ms: int, bytes_each: float) -> float | None:
    """Return the share of a topic's retention, or None when it has no retention."""
    shares = []
    if config.retention:
        shares.append(behind_ms / 1000 / config.retention.total_seconds())
    if config.retention_count:
        shares.append(behind / config.retention_count)
    if config.retention_bytes:
        shares.append(behind * bytes_each / config.retention_bytes)
    return max(shares, default=None)


def count_between(
    keys: TopicKeys, transport: Transport, after: str, until: str, *, at_most: float = math.inf
) -> tuple[int, bool]:
    """Count the entries after `after` up to `until`, or `+`. Returns the count, and whether there may be more."""
    total, more = 0, 1
    while more and total < at_most:
        count, last, more = transport.run("topic_count", [keys.log], [after, PAGE, until])
        total, after = total + count, last.decode()
    return total, bool(more)
