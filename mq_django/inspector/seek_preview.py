"""Preview the effect of moving a group of a topic. Read-only."""

from typing import NamedTuple

from mq_django.conf import TopicConfig
from mq_django.core.exceptions import repr_of
from mq_django.core.offsets import parse
from mq_django.errors import StoreError, UnknownGroup
from mq_django.stores.topic_stats import count_between, topic_stats
from mq_django.stores.topic_values import GroupStats, TopicStats
from mq_django.transport.fan_out import fan_out
from mq_django.transport.sessions import Wire, reply_or_raise

#: The most messages that are counted, because a user waits for it.
MAX_COUNTED = 50_000
#: The most pending deliveries of a log that are counted.
HELD = 1000


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
    #: The pending deliveries that would not be delivered again, up to HELD of each log.
    given_up: int


def seek_preview(config: TopicConfig, name: str, after: str, wire: Wire) -> SeekPreview:
    """Return the effect of moving a group to after an entry, `0` or `$`: of a topic with partitions in all of them.

    Raises:
        UnknownGroup: the group does not exist.
        StoreError: cannot reach Redis.
    """
    parts = config.each_part
    logs = topic_stats(parts, [wire] * len(parts), at_most=MAX_COUNTED)
    there: list[tuple[TopicConfig, TopicStats, GroupStats]] = []
    for part, log in zip(parts, logs, strict=True):
        if isinstance(log, StoreError):
            raise log
        group = log.group(name)
        if group is not None:
            there.append((part, log, group))
    if not there:
        raise UnknownGroup(f"Topic {config.name!r} has no group {repr_of(name)}")
    thens = [log.generated if after == "$" else after for _, log, _ in there]
    held = [[("XPENDING", part.keys.log, name, "-", then, HELD)] for (part, *_), then in zip(there, thens, strict=True)]
    pending = fan_out([wire] * len(held), held)
    each = [
        _preview(*found, then, len(reply_or_raise(reply)), wire)
        for found, then, (reply,) in zip(there, thens, pending, strict=True)
    ]
    return SeekPreview(
        after=max((found.after for found in each), key=parse),
        replayed=sum(found.replayed for found in each),
        skipped=sum(found.skipped for found in each),
        more=any(found.more for found in each),
        pending=sum(found.pending for found in each),
        given_up=sum(found.given_up for found in each),
    )


def _preview(
    config: TopicConfig, log: TopicStats, group: GroupStats, then: str, given_up: int, wire: Wire
) -> SeekPreview:
    """Return the effect in one log of moving a group to after an entry."""
    now = group.offset
    backwards = parse(then) < parse(now)
    if parse(then) < parse(log.first) and not group.at_least:
        count, more = log.length - group.lag, False
    elif parse(then) >= parse(log.last):
        count, more = group.lag, group.at_least
    else:
        begins, ends = (then, now) if backwards else (now, then)
        count, more = count_between(config.keys, wire, begins, ends, at_most=MAX_COUNTED)
    return SeekPreview(then, count if backwards else 0, 0 if backwards else count, more, group.pending, given_up)
