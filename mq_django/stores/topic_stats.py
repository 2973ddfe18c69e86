"""Topics and their groups as people see them, many in few round trips. Nothing here changes anything."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.core.keys import NAME, TopicKeys
from mq_django.core.numbers import whole
from mq_django.core.offsets import before, parse
from mq_django.errors import StoreError
from mq_django.stores.counters import minute_fields, there
from mq_django.stores.lag import GroupPlace, LogInfo, count_between
from mq_django.transport import scripts
from mq_django.transport.failures import readable, translate
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: So many are counted from the oldest entry that a group has pending.
MAX_HELD = 50_000

#: Of a topic, only this is counted; the rest by its groups.
PUBLISHED = ("published",)


class GroupStats(NamedTuple):
    """A group, and what it holds."""

    place: GroupPlace
    #: Entries from the oldest that it has pending up to its offset, and that one's age in ms; 0 when it has none.
    held: int
    held_ms: int
    #: The lag is more than was counted.
    more: bool


class TopicStats(NamedTuple):
    """A log and its groups."""

    info: LogInfo
    #: Bytes of Redis' memory, about.
    size: int
    groups: Sequence[GroupStats]
    #: Fields of the counters of this hour and of the one before, and this hour since 1970.
    this_hour: Mapping[bytes, bytes]
    last_hour: Mapping[bytes, bytes]
    hour: int


class _Seen(NamedTuple):
    """A group as the script tells of it."""

    name: bytes
    offset: bytes
    pending: int
    oldest: bytes
    lag: int
    first: bytes
    generation: bytes | None
    alarm: bytes | None
    lost: bytes | None


def topic_stats(
    topics: Sequence[TopicKeys],
    wire: Wire,
    *,
    minutes: int = 0,
    only: str | None = None,
    at_most: float = math.inf,
) -> list[TopicStats | StoreError]:
    """Look at topics, with what was published in the last minutes; what cannot be read is an error in its place.

    Two commands a topic in two round trips; of groups whose lag Redis cannot tell, it is counted, 5000 messages a trip,
    and `at_most` about so many. With `only`, just the group of that name.
    """
    now = int(time.time()) // 60
    names = group_names(topics, wire) if only is None else [[only] for _ in topics]
    asked = [(keys, found) for keys, found in zip(topics, names, strict=True) if not isinstance(found, StoreError)]
    replies = iter(wire.trip([_command(keys, found, now, minutes) for keys, found in asked]) if asked else [])
    return [
        found if isinstance(found, StoreError) else _topic_stats(keys, wire, next(replies), now, minutes, at_most)
        for keys, found in zip(topics, names, strict=True)
    ]


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
        "topic_look",
        keys=[keys.log, keys.minutes(now // 60), keys.minutes(now // 60 - 1), *controls],
        args=[len(this_hour), len(last_hour), *this_hour, *last_hour, *names],
    )


@readable
def _topic_stats(keys: TopicKeys, wire: Wire, reply: Any, now: int, minutes: int, at_most: float) -> TopicStats:
    now_ms, length, first, last, generated, deleted, size, *rest = reply_or_raise(reply)
    ids = [entry.decode() for entry in (first, last, generated, deleted or b"0-0")]
    info = LogInfo(now_ms, length, *ids)
    this_hour, last_hour = (
        there(fields, values) for fields, values in zip(minute_fields(now, minutes, what=PUBLISHED), rest, strict=False)
    )
    groups = [_group(keys, wire, info, _Seen(*seen), at_most) for seen in rest[2:]]
    return TopicStats(info, size, groups, this_hour, last_hour, now // 60)


def _group(keys: TopicKeys, wire: Wire, info: LogInfo, seen: _Seen, at_most: float) -> GroupStats:
    offset, lost = seen.offset.decode(), whole(seen.lost) or 0
    lag, more = seen.lag if seen.first else 0, False
    if seen.first and parse(offset) < parse(info.first):
        lag = info.length
    elif seen.first and (lag < 0 or lost or parse(info.deleted) > parse(offset)):
        # Redis counts what it has added less what the group has read: wrong once unread entries are gone.
        lag, more = count_between(keys, wire, offset, "+", at_most=at_most)
    held_ms = held = 0
    if seen.oldest:
        held, _ = count_between(keys, wire, before(seen.oldest.decode()), offset, at_most=min(at_most, MAX_HELD))
        held_ms = max(0, info.now_ms - parse(seen.oldest.decode())[0])
    place = GroupPlace(
        name=seen.name.decode(),
        offset=offset,
        pending=seen.pending,
        lag=lag,
        lag_ms=max(0, info.now_ms - parse(seen.first.decode())[0]) if seen.first else 0,
        generation=whole(seen.generation) or 0,
        alarm=None if seen.alarm is None else whole(seen.alarm) or 0,
        lost=lost,
    )
    return GroupStats(place, held, held_ms, more)
