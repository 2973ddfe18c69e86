"""Preview the effect of moving a group of a topic. Read-only."""

from typing import NamedTuple

from mq_django.conf import TopicConfig
from mq_django.core.offsets import parse
from mq_django.errors import UnknownGroup
from mq_django.stores.topic_stats import count_between, stats_of_group
from mq_django.transport.sessions import Wire, reply_or_raise

#: The most messages that are counted, because a user waits for it.
MAX_COUNTED = 50_000


class SeekPreview(NamedTuple):
    """The effect of moving a group."""

    #: The entry after which the group would continue.
    after: str
    #: Delivered messages that would be delivered again.
    replayed: int
    #: Undelivered messages that would be skipped.
    skipped: int
    #: The count reached `MAX_COUNTED`, and there are more.
    more: bool
    #: Pending deliveries. Their outcomes are ignored after the move.
    pending: int
    #: The pending deliveries that would not be delivered again, up to a thousand.
    given_up: int


def seek_preview(config: TopicConfig, name: str, after: str, wire: Wire) -> SeekPreview:
    """Return the effect of moving a group to after an entry, `0` or `$`: of a topic with partitions in all of them.

    Raises:
        UnknownGroup: the group does not exist.
    """
    each = [found for part in config.each_part if (found := _preview(part, name, after, wire)) is not None]
    if not each:
        raise UnknownGroup(f"Topic {config.name!r} has no group {name!r}")
    return SeekPreview(
        after=max((found.after for found in each), key=parse),
        replayed=sum(found.replayed for found in each),
        skipped=sum(found.skipped for found in each),
        more=any(found.more for found in each),
        pending=sum(found.pending for found in each),
        given_up=sum(found.given_up for found in each),
    )


def _preview(config: TopicConfig, name: str, after: str, wire: Wire) -> SeekPreview | None:
    """Return the effect in one log; None if it does not have the group."""
    keys, log = config.keys, stats_of_group(config.keys, name, wire, at_most=MAX_COUNTED)
    if not log.groups:
        return None
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
