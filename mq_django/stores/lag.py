"""How far the groups of a topic are behind."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.core.keys import GROUP_SEPARATOR, NAME, TopicKeys
from mq_django.core.offsets import parse
from mq_django.transport import scripts
from mq_django.transport.sessions import Wire, reply_or_raise

#: Entries counted by one script call. Redis serves nobody else meanwhile: about 2 ms at this size.
PAGE = 5000


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


def places(keys: TopicKeys, wire: Wire, *, only: str | None = None) -> list[GroupPlace]:
    """Return where the groups of a topic are, or where one is."""
    info, groups = log_info(keys, wire)
    wanted = [group for group in groups if only is None or group["name"] == only.encode()]
    lost = _lost(keys, wire, [group["name"] for group in wanted])
    return [_place(keys, wire, info, group, lost[group["name"]]) for group in wanted]


def _lost(keys: TopicKeys, wire: Wire, names: list[bytes]) -> dict[bytes, bool]:
    replies = wire.trip([("HGET", keys.group(name.decode()).control, "lost") for name in names]) if names else []
    return {name: reply_or_raise(reply) is not None for name, reply in zip(names, replies, strict=True)}


def _place(keys: TopicKeys, wire: Wire, info: LogInfo, group: Mapping[str, Any], lost: bool) -> GroupPlace:
    offset = group["last-delivered-id"].decode()
    at = parse(offset)
    lag, first = 0, info.first
    if info.length and at < parse(info.last):
        if at < parse(info.first):
            lag = info.length
        else:
            # Redis counts what it has added less what the group has read: wrong once unread entries are gone.
            told = group.get("lag")
            trusted = told if not lost and parse(info.deleted) <= at else None
            lag, first = _count(keys, wire, offset, trusted)
    age = info.now_ms - parse(first)[0] if lag else 0
    return GroupPlace(group["name"].decode(), offset, group["pending"], lag, max(0, age))


def _count(keys: TopicKeys, wire: Wire, offset: str, trusted: int | None) -> tuple[int, str]:
    """Return how many entries come after one, and the first of them."""
    total, first, after, more = 0, "", offset, 1
    while more and (not total or trusted is None):
        command = scripts.command("topic_count", keys=[keys.log], args=[after, PAGE])
        count, begins, ends, more = reply_or_raise(wire.trip([command])[0])
        total, first, after = total + count, first or begins.decode(), ends.decode()
    if more and trusted is not None:
        total = max(total, trusted)
    return total, first or offset
