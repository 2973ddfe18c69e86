"""What moving a group of a topic would do. Nothing here changes anything."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mq_django.core.keys import TopicKeys
from mq_django.core.offsets import parse
from mq_django.stores.lag import LogInfo, count_between, log_info
from mq_django.transport.sessions import Wire, reply_or_raise

#: So many are counted of what a seek would replay or skip: a person waits for it.
MAX_COUNTED = 50_000


class SeekPreview(NamedTuple):
    """What moving a group to a place would do."""

    #: The entry after which it would go on.
    after: str
    #: Messages that it was given, and would be given again.
    replayed: int
    #: Messages that it was not given, and would not be.
    skipped: int
    #: It is `MAX_COUNTED` of them, and there are more.
    more: bool
    #: Deliveries that it holds: whatever becomes of them, they are not settled after the move.
    pending: int
    #: Those of them that it would not be given again, up to a thousand.
    given_up: int


def seek_preview(keys: TopicKeys, wire: Wire, group: str, after: str) -> SeekPreview | None:
    """Return what it would do to let a group go on after an entry, `0` or `$`; None when there is no such group."""
    info, groups = log_info(keys, wire)
    for found in groups:
        if found["name"] == group.encode():
            now, then = found["last-delivered-id"].decode(), info.generated if after == "$" else after
            backwards = parse(then) < parse(now)
            count, more = _of_all(keys, wire, info, found, then) or count_between(
                keys, wire, *((then, now) if backwards else (now, then)), at_most=MAX_COUNTED
            )
            held = ("XPENDING", keys.log, group, "-", then, 1000)
            given_up = len(reply_or_raise(wire.trip([held])[0])) if found["pending"] else 0
            return SeekPreview(
                then, count if backwards else 0, 0 if backwards else count, more, found["pending"], given_up
            )
    return None


def _of_all(keys: TopicKeys, wire: Wire, info: LogInfo, group: Mapping[str, Any], then: str) -> tuple[int, bool] | None:
    """Return what a move to the beginning gives again, or to the end skips, where Redis knows without counting."""
    now, lag = parse(group["last-delivered-id"].decode()), group.get("lag")
    (lost,) = wire.trip([("HGET", keys.group(group["name"].decode()).control, "lost")])
    if now < parse(info.first):
        lag = info.length
    elif lag is None or reply_or_raise(lost) or now < parse(info.deleted):
        return None
    if parse(then) < parse(info.first):
        return info.length - lag, False
    return (lag, False) if parse(then) >= parse(info.last) else None
