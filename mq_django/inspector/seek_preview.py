"""What moving a group of a topic would do. Nothing here changes anything."""

from typing import NamedTuple

from mq_django.conf import TopicConfig
from mq_django.core.offsets import parse
from mq_django.errors import UnknownGroup
from mq_django.stores.topic_stats import count_between, stats_of_group
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


def seek_preview(config: TopicConfig, name: str, after: str, wire: Wire) -> SeekPreview:
    """Return what it would do to let a group go on after an entry, `0` or `$`.

    Raises:
        UnknownGroup: there is none of that name.
    """
    keys, log = config.keys, stats_of_group(config.keys, name, wire, at_most=MAX_COUNTED)
    if not log.groups:
        raise UnknownGroup(f"Topic {config.name!r} has no group {name!r}")
    (group,) = log.groups
    now, then = group.offset, log.generated if after == "$" else after
    backwards = parse(then) < parse(now)
    if parse(then) < parse(log.first) and not group.at_least:
        count, more = log.length - group.lag, False
    elif parse(then) >= parse(log.last):
        count, more = group.lag, group.at_least
    else:
        begins, ends = (then, now) if backwards else (now, then)
        count, more = count_between(keys, wire, begins, ends, at_most=MAX_COUNTED)
    held = ("XPENDING", keys.log, name, "-", then, 1000)
    given_up = len(reply_or_raise(wire.trip([held])[0])) if group.pending else 0
    return SeekPreview(then, count if backwards else 0, 0 if backwards else count, more, group.pending, given_up)
