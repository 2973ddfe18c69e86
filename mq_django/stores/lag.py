"""Where the groups of a topic are in its log, and what moving them would do."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.core.keys import GROUP_SEPARATOR, NAME, TopicKeys
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

#: Entries counted by one script call. Redis serves nobody else meanwhile: about 2 ms at this size.
PAGE = 5000
#: So many are counted before a seek, so that nobody has to count after it: less than half a second.
MAX_READ = 1_000_000


class LogInfo(NamedTuple):
    """A log, without its groups."""

    #: By the server's clock.
    now_ms: int
    length: int
    #: Ids of the first and the last entry, and of the last that there ever was; `0-0` when there is none.
    first: str
    last: str
    generated: str
    #: The id of the last entry that was deleted, where the server tells.
    deleted: str


class GroupPlace(NamedTuple):
    """Where a group is in its log."""

    name: str
    #: The last entry that it was given.
    offset: str
    pending: int
    #: Messages that it has not been given.
    lag: int
    #: How long the oldest of them has been in the log; 0 when there is none.
    lag_ms: int
    #: Changes with every seek: receipts of another one are void.
    generation: int = 0
    #: The percentage of the retention by which it is behind, while that is too much.
    alarm: int | None = None
    #: Messages that retention took before it was given them.
    lost: int = 0


def log_info(keys: TopicKeys, wire: Wire) -> tuple[LogInfo, list[Mapping[str, Any]]]:
    """Return a log, and its groups as Redis describes them; a log that is not there is empty."""
    time, stream, groups = wire.trip([("TIME",), ("XINFO", "STREAM", keys.log), ("XINFO", "GROUPS", keys.log)])
    seconds, micros = reply_or_raise(time)
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    if isinstance(stream, Exception) and "no such key" in str(stream):
        return LogInfo(now_ms, 0, "0-0", "0-0", "0-0", "0-0"), []
    found = _pairs(reply_or_raise(stream))
    info = LogInfo(
        now_ms,
        found["length"],
        found["first-entry"][0].decode() if found["first-entry"] else "0-0",
        found["last-entry"][0].decode() if found["last-entry"] else "0-0",
        found["last-generated-id"].decode(),
        found.get("max-deleted-entry-id", b"0-0").decode(),
    )
    return info, [_pairs(group) for group in reply_or_raise(groups)]


def _pairs(flat: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def groups_of(topics: Sequence[TopicKeys], wire: Wire) -> list[str]:
    """Return the groups that some topics have in Redis, as `topic:group`, in one round trip."""
    replies = wire.trip([("XINFO", "GROUPS", keys.log) for keys in topics]) if topics else []
    found = []
    for keys, reply in zip(topics, replies, strict=True):
        if isinstance(reply, Exception) and "no such key" in str(reply):
            continue
        names = [group[1].decode(errors="replace") for group in reply_or_raise(reply)]
        # Strangers may call theirs what they like; what has no keys of ours is theirs alone.
        found += [f"{keys.topic}{GROUP_SEPARATOR}{name}" for name in names if NAME.fullmatch(name)]
    return found


def counted_up_to(keys: TopicKeys, wire: Wire, after: str) -> tuple[Argument, str]:
    """Return how many entries there are up to one, and the first of the log; `""` where Redis knows by itself."""
    info, _ = log_info(keys, wire)
    if after in ("0", "$") or not info.length:
        return "", info.first
    count, more = count_between(keys, wire, "0-0", after, at_most=MAX_READ)
    return "" if more else count, info.first


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
