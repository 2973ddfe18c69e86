"""A topic's log: published to once, read by every group, kept for its retention."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mq_django.conf import TopicConfig
from mq_django.core.ids import token
from mq_django.core.keys import GROUP_SEPARATOR, LOG
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.offsets import Place, before, first, last, parse
from mq_django.core.publication import Publication
from mq_django.core.wire import decode_entry, encode_entry
from mq_django.errors import StoreError, UnknownGroup
from mq_django.stores.counters import slot
from mq_django.stores.lag import GroupPlace, LogInfo, counted_up_to, groups_of
from mq_django.stores.topic_stats import topic_stats
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

#: Entries that a trimming script looks at. Redis serves nobody else meanwhile: about 1 ms at this size.
TRIM = 500


class Standing(NamedTuple):
    """A group against the retention of its topic."""

    place: GroupPlace
    #: How much of the retention it is behind: at 1 it begins to lose messages, or, by what it has pending, to hold up
    #: the trimming. None: there is no retention.
    share: float | None
    #: Messages from the oldest that it has pending, or else has not read, to the newest; and that one's age in ms.
    behind: int
    behind_ms: int


class Trimmed(NamedTuple):
    """What a trim did."""

    removed: int
    #: There is more to trim now.
    more: bool
    #: Something that a group has pending is over the retention, and was kept.
    held: bool
    #: Messages that went before a group had read them, by group.
    lost: dict[str, int]


class Log:
    """The log of one topic, for who publishes, looks, moves groups and trims."""

    def __init__(self, config: TopicConfig, wire: Wire) -> None:
        self.config = config
        self.keys = config.keys
        self._wire = wire

    def publish(self, publications: Sequence[Publication]) -> list[str | None]:
        """Put messages in, and return their ids: None for what was published `once` within the duplicate window."""
        where = slot(self.keys)
        window = round(self.config.duplicate_window.total_seconds() * 1000)
        args: list[Argument] = [where.minute, where.hour, window, len(publications)]
        for message, data_text, options in publications:
            fields = encode_entry(message, data_text)
            args += (message.id if options.once else "", message.name, len(fields), *fields)
        keys = [self.keys.log, self.keys.published, *where.keys]
        command = scripts.command("topic_publish", keys=keys, args=args)
        words = reply_or_raise(self._wire.trip([command])[0])
        return [
            None if word == b"DUPLICATE" else message.id
            for word, (message, _, _) in zip(words, publications, strict=True)
        ]

    def subscribe(self, group: str, start: Place) -> bool:
        """Make a group that begins at a place, and tell whether it was not there."""
        keys = self.keys.group(group)
        command = scripts.command(
            "topic_subscribe",
            keys=[self.keys.log, keys.ready, keys.control, self.keys.control],
            args=[group, before(start), "", token()],
        )
        return bool(reply_or_raise(self._wire.trip([command])[0])[0] == b"CREATED")

    def seek(self, group: str, place: Place) -> None:
        """Move a group, ack what it has pending in the log, and raise its generation.

        Raises:
            UnknownGroup: there is none of that name.
        """
        keys, after = self.keys.group(group), before(place)
        args = [group, after, *counted_up_to(self.keys, self._wire, after)]
        command = scripts.command("topic_seek", keys=[self.keys.log, keys.control], args=args)
        if reply_or_raise(self._wire.trip([command])[0]) == b"MISSING":
            raise UnknownGroup(f"Topic {self.config.name!r} has no group {group!r}")

    def unsubscribe(self, group: str, *, now: float) -> bool:
        """Remove a group with everything it keeps, and tell whether it was there."""
        keys = [self.keys.log, *self.keys.group(group).all(now)]
        command = scripts.command("topic_unsubscribe", keys=keys, args=[group])
        return bool(reply_or_raise(self._wire.trip([command])[0]) == b"REMOVED")

    def read(self, since: Place, until: Place, *, batch: int = 100) -> Iterator[Delivery | Undecodable]:
        """Yield what the log has between two places, both included; nobody holds it."""
        begins, ends = first(since), last(until)
        while True:
            found = reply_or_raise(self._wire.trip([("XRANGE", self.keys.log, begins, ends, "COUNT", batch)])[0])
            for entry, fields in found:
                yield decode_entry(fields, queue=self.config.name, home=LOG, entry=entry)
            if len(found) < batch:
                return
            begins = f"({found[-1][0].decode()}"

    def takes_turn(self, seconds: float) -> bool:
        """Tell whether to look at the groups is up to the caller, and to nobody else for some seconds."""
        command = scripts.command("topic_turn", keys=[self.keys.control], args=[round(seconds * 1000)])
        return bool(reply_or_raise(self._wire.trip([command])[0]))

    def standings(self, *, at_most: float = math.inf) -> list[Standing]:
        """Return every group, and how much of the retention it is behind.

        Where Redis does not know how many messages that are, `at_most` are counted, and the rest is reckoned by time.
        """
        (found,) = topic_stats([self.keys], self._wire, at_most=at_most)
        if isinstance(found, StoreError):
            raise found
        bytes_each, standings = found.size / max(1, found.info.length), []
        for place, held, held_ms, more in found.groups:
            behind, behind_ms = place.lag + held, max(place.lag_ms, held_ms)
            if more:
                behind = max(behind, _by_time(found.info, behind_ms))
            share = retention_share(self.config, behind, behind_ms, bytes_each)
            standings.append(Standing(place, share, behind, behind_ms))
        return standings

    def sound(self, group: str, percent: int | None) -> str:
        """Note or clear a group's alarm: RAISED, CLEARED, SAME, or MISSING when the group is not there (any more)."""
        command = scripts.command(
            "topic_alarm",
            keys=[self.keys.log, self.keys.group(group).control],
            args=[group, "" if percent is None else percent],
        )
        return str(reply_or_raise(self._wire.trip([command])[0]).decode())

    def trim(self) -> Trimmed:
        """Remove the oldest entries that are over the retention: a bounded number, and nothing that is pending."""
        config, names = self.config, self._names()
        retention = round(config.retention.total_seconds() * 1000) if config.retention else 0
        limits = [retention, config.retention_count or 0, config.retention_bytes or 0, TRIM]
        command = scripts.command(
            "topic_trim",
            keys=[self.keys.log, *(self.keys.group(name).control for name in names)],
            args=[*limits, *names],
        )
        count, more, held, *lost = reply_or_raise(self._wire.trip([command])[0])
        pairs = zip(lost[::2], lost[1::2], strict=True)
        return Trimmed(count, bool(more), bool(held), {name.decode(): number for name, number in pairs})

    def _names(self) -> list[str]:
        return [name.partition(GROUP_SEPARATOR)[2] for name in groups_of([self.keys], self._wire)]


def _by_time(info: LogInfo, behind_ms: int) -> int:
    """Return how many messages the last milliseconds of a log have, if they came evenly."""
    (first_ms, _), (last_ms, _) = parse(info.first), parse(info.last)
    since_ms = info.now_ms - behind_ms
    return round(info.length * min(1.0, (last_ms - since_ms + 1) / (last_ms - first_ms + 1)))


def retention_share(config: TopicConfig, behind: int, behind_ms: int, bytes_each: float) -> float | None:
    """Return how much of a topic's retention some messages and some time are, or None when it keeps everything."""
    shares = []
    if config.retention:
        shares.append(behind_ms / 1000 / config.retention.total_seconds())
    if config.retention_count:
        shares.append(behind / config.retention_count)
    if config.retention_bytes:
        shares.append(behind * bytes_each / config.retention_bytes)
    return max(shares, default=None)
