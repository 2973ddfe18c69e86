"""Where the groups of topics are in their logs, many in few round trips. Nothing here changes anything."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mq_django.conf import TopicConfig
from mq_django.core.keys import GROUP_SEPARATOR, NAME, TopicKeys
from mq_django.core.numbers import whole
from mq_django.core.offsets import before, parse
from mq_django.errors import StoreError
from mq_django.stores.counters import minute_fields, there
from mq_django.transport import scripts
from mq_django.transport.failures import readable, translate
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: Entries counted by one script call. Redis serves nobody else meanwhile: about 2 ms at this size.
PAGE = 5000
#: So many are counted from the oldest entry that a group has pending.
MAX_HELD = 50_000

#: Of a topic, only this is counted; the rest by its groups.
PUBLISHED = ("published",)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
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
    #: Changes with every seek: receipts of another one are void.
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

    @property
    def queue(self) -> str:
        """Return what the runtime calls the group: its retries and dead letters are those of this queue."""
        return f"{self.topic}{GROUP_SEPARATOR}{self.name}"

    @property
    def offset_ms(self) -> int | None:
        """Return when the last message that it was given was published, in ms since 1970."""
        return parse(self.offset)[0] or None


class TopicStats(NamedTuple):
    """A log and its groups."""

    #: By the server's clock.
    now_ms: int
    length: int
    #: Ids of the first and the last entry, and of the last that there ever was; `0-0` when there is none.
    first: str
    last: str
    generated: str
    #: The id of the last entry that was deleted, where the server tells.
    deleted: str
    #: Bytes of Redis' memory, about.
    size: int
    #: Fields of the counters of this hour and of the one before, and this hour since 1970.
    this_hour: Mapping[bytes, bytes]
    last_hour: Mapping[bytes, bytes]
    hour: int
    groups: Sequence[GroupStats] = ()

    def group(self, name: str) -> GroupStats | None:
        """Return one of its groups, or None."""
        return next((group for group in self.groups if group.name == name), None)


def topic_stats(
    configs: Sequence[TopicConfig], wire: Wire, *, minutes: int = 0, at_most: float = math.inf
) -> list[TopicStats | StoreError]:
    """Look at topics, with what was published in the last minutes; what cannot be read is an error in its place.

    Two commands a topic in two round trips; of groups whose lag Redis cannot tell, it is counted, 5000 messages a trip,
    and `at_most` about so many: how far they are behind is reckoned by time from there on.
    """
    now = int(time.time()) // 60
    names = group_names([config.keys for config in configs], wire)
    commands = [
        _command(config.keys, found, now, minutes)
        for config, found in zip(configs, names, strict=True)
        if not isinstance(found, StoreError)
    ]
    replies = iter(wire.trip(commands) if commands else [])
    return [
        found if isinstance(found, StoreError) else _topic_stats(config, wire, next(replies), now, minutes, at_most)
        for config, found in zip(configs, names, strict=True)
    ]


def stats_of_group(keys: TopicKeys, name: str, wire: Wire, *, at_most: float = math.inf) -> TopicStats:
    """Return a log with only the group of a name, if that is there, and not how far that is behind the retention."""
    now = int(time.time()) // 60
    (reply,) = wire.trip([_command(keys, [name], now, 0)])
    log, groups = _log(reply, now, 0)
    return log._replace(groups=[_group(keys, wire, log, seen, at_most) for seen in groups])


def group_names(topics: Sequence[TopicKeys], wire: Wire) -> list[list[str] | StoreError]:
    """Return the groups of topics that may have keys of ours; of what cannot be read, why."""
    names: list[list[str] | StoreError] = []
    for reply in wire.trip([("XINFO", "GROUPS", keys.log) for keys in topics]) if topics else []:
        if isinstance(reply, Exception):
            names.append([] if "no such key" in str(reply) else translate(reply))
        else:
            found = [group[1].decode(errors="replace") for group in reply]
            names.append([name for name in found if NAME.fullmatch(name)])
    return names


def _command(keys: TopicKeys, names: Sequence[str], now: int, minutes: int) -> Command:
    this_hour, last_hour = minute_fields(now, minutes, what=PUBLISHED)
    controls = [keys.group(name).control for name in names]
    return scripts.command(
        "topic_stats",
        keys=[keys.log, keys.minutes(now // 60), keys.minutes(now // 60 - 1), *controls],
        args=[len(this_hour), len(last_hour), *this_hour, *last_hour, *names],
    )


@readable
def _topic_stats(config: TopicConfig, wire: Wire, reply: Any, now: int, minutes: int, at_most: float) -> TopicStats:
    log, groups = _log(reply, now, minutes)
    return log._replace(groups=[_against(config, wire, log, seen, at_most) for seen in groups])


def _log(reply: Any, now: int, minutes: int) -> tuple[TopicStats, Sequence[Any]]:
    """Return what the script tells about a log, and about its groups."""
    now_ms, length, *ids, size, this_hour, last_hour = reply_or_raise(reply)[:9]
    first, last, generated, deleted = (entry.decode() for entry in ids)
    this_fields, last_fields = minute_fields(now, minutes, what=PUBLISHED)
    hours = there(this_fields, this_hour), there(last_fields, last_hour)
    return TopicStats(now_ms, length, first, last, generated, deleted or "0-0", size, *hours, now // 60), reply[9:]


def _against(config: TopicConfig, wire: Wire, log: TopicStats, seen: Sequence[Any], at_most: float) -> GroupStats:
    """Return a group against the retention of its topic."""
    group, oldest = _group(config.keys, wire, log, seen, at_most), seen[3].decode()
    behind, behind_ms = group.lag, group.lag_ms
    if oldest:
        held, _ = count_between(config.keys, wire, before(oldest), group.offset, at_most=min(at_most, MAX_HELD))
        behind, behind_ms = behind + held, max(behind_ms, log.now_ms - parse(oldest)[0])
    if group.at_least:
        behind = max(behind, _by_time(log, behind_ms))
    share = _share(config, behind, behind_ms, log.size / max(1, log.length))
    return replace(group, behind=behind, behind_ms=behind_ms, share=share)


def _group(keys: TopicKeys, wire: Wire, log: TopicStats, seen: Sequence[Any], at_most: float) -> GroupStats:
    name, last, pending, _, lag, first, generation, alarm, noted = seen
    offset, lost, more = last.decode(), whole(noted) or 0, False
    lag = lag if first else 0
    if first and parse(offset) < parse(log.first):
        lag = log.length
    elif first and (lag < 0 or lost or parse(log.deleted) > parse(offset)):
        # Redis counts what it has added less what the group has read: wrong once unread entries are gone.
        lag, more = count_between(keys, wire, offset, "+", at_most=at_most)
    lag_ms = max(0, log.now_ms - parse(first.decode())[0]) if first else 0
    return GroupStats(
        topic=keys.topic,
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
    """Return how many messages the last milliseconds of a log have, if they came evenly."""
    (first_ms, _), (last_ms, _) = parse(log.first), parse(log.last)
    since_ms = log.now_ms - behind_ms
    return round(log.length * min(1.0, (last_ms - since_ms + 1) / (last_ms - first_ms + 1)))


def _share(config: TopicConfig, behind: int, behind_ms: int, bytes_each: float) -> float | None:
    """Return how much of a topic's retention some messages and some time are, or None when it keeps everything."""
    shares = []
    if config.retention:
        shares.append(behind_ms / 1000 / config.retention.total_seconds())
    if config.retention_count:
        shares.append(behind / config.retention_count)
    if config.retention_bytes:
        shares.append(behind * bytes_each / config.retention_bytes)
    return max(shares, default=None)


def count_between(
    keys: TopicKeys, wire: Wire, after: str, until: str, *, at_most: float = math.inf
) -> tuple[int, bool]:
    """Count the entries after one up to another, or `+`; tell whether there are more than were counted."""
    total, more = 0, 1
    while more and total < at_most:
        command = scripts.command("topic_count", keys=[keys.log], args=[after, PAGE, until])
        count, last, more = reply_or_raise(wire.trip([command])[0])
        total, after = total + count, last.decode()
    return total, bool(more)
