"""A topic's log: publish, subscribe, seek, read and trim. Every group reads every entry.

A group is a consumer group of the log, with a queue of its own: messages that it retries, hands back or sets aside are
acked in the log and copied to the group's own keys, which are like a queue's. Other groups are not affected.
"""

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.conf import GroupConfig, TopicConfig
from mq_django.core.ids import token
from mq_django.core.keys import FRONT, LOG, READY
from mq_django.core.logs import get_logger
from mq_django.core.message_format import decode_entry, encode_entry
from mq_django.core.messages import CancelResult, Delivery, Undecodable
from mq_django.core.offsets import BEGINNING, Offset, before, first, last, parse
from mq_django.core.publication import Publication
from mq_django.core.texts import repr_of
from mq_django.errors import NotSupported, StoreError, UnknownGroup
from mq_django.stores.base import CancelRequest, Depths
from mq_django.stores.counters import slot
from mq_django.stores.partitioned_store import PartitionedPublisher
from mq_django.stores.settling import log_receipts, stream_receipts
from mq_django.stores.stream_store import Source, StreamStore, Taken
from mq_django.stores.topic_stats import GroupStats, count_between, group_names, groups_of, stats_of_group
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, is_gone, reply_or_raise

#: Entries counted before a seek, so that Redis can report the lag afterwards: takes less than half a second.
MAX_READ = 1_000_000

#: Entries that a trim checks. This blocks Redis for about 1 ms.
TRIM = 500
#: Groups whose lost messages a trim counts. Those with a subscriber here are among them.
MAX_COUNTED = 1000


class Trimmed(NamedTuple):
    """The result of a trim."""

    removed: int
    #: There is more to trim now.
    more: bool
    #: An entry beyond the retention was kept because it is pending in a group.
    held: bool
    #: Messages trimmed before a group had read them, by group.
    lost: dict[str, int]


class Log:
    """The log of one topic, or of one of its partitions."""

    def __init__(self, config: TopicConfig, transport: Transport) -> None:
        self.config = config
        self.keys = config.keys
        self._transport = transport

    def publish(self, publications: Sequence[Publication]) -> list[str | None]:
        """Publish messages and return their ids; None for a repeated `once` message within the duplicate window."""
        where = slot(self.keys)
        window = round(self.config.duplicate_window.total_seconds() * 1000)
        args: list[Argument] = [where.minute, where.hour, window, len(publications)]
        for message, data_text, options in publications:
            fields = encode_entry(message, data_text)
            args += (message.id if options.once else "", message.name, len(fields), *fields)
        keys = [self.keys.log, self.keys.published, *where.keys]
        command = scripts.command("topic_publish", keys=keys, args=args)
        words = reply_or_raise(self._transport.pipeline([command])[0])
        return [
            None if word == b"DUPLICATE" else message.id
            for word, (message, _, _) in zip(words, publications, strict=True)
        ]

    def subscribe(self, group: str, start: Offset) -> bool:
        """Create a group that starts at a position, and return whether it did not exist."""
        keys = self.keys.group(group)
        key_names = [self.keys.log, keys.ready, keys.control, self.keys.control]
        word, _born = self._transport.run("topic_subscribe", key_names, [group, before(start), "", token()])
        return bool(word != b"EXISTS")

    def seek(self, group: str, position: Offset) -> None:
        """Move a group: see move().

        Raises:
            UnknownGroup: the group does not exist.
        """
        if not self.move(group, position):
            raise UnknownGroup(f"Topic {self.config.name!r} has no group {repr_of(group)}")

    def move(self, group: str, position: Offset) -> bool:
        """Move a group, drop its pending entries of the log, and raise its generation; False: it does not exist."""
        keys, after = self.keys.group(group), before(position)
        args = [group, after, *self._counted_up_to(after)]
        return bool(self._transport.run("topic_seek", [self.keys.log, keys.control], args) != b"MISSING")

    def unsubscribe(self, group: str, *, now: float) -> bool:
        """Remove a group with all its keys, and return whether it existed."""
        keys = [self.keys.log, *self.keys.group(group).all(now)]
        return bool(self._transport.run("topic_unsubscribe", keys, [group]) == b"REMOVED")

    def read(self, since: Offset, until: Offset, *, batch: int = 100) -> Iterator[Delivery | Undecodable]:
        """Yield the entries of the log between two positions, both included. They do not become pending."""
        begins, ends, name, id_end = first(since), last(until), self.config.public_name, self.config.id_end
        while True:
            found = self._transport.ask(("XRANGE", self.keys.log, begins, ends, "COUNT", batch))
            for entry, fields in found:
                yield decode_entry(fields, queue=name, stream=LOG, entry=entry, id_end=id_end)
            if len(found) < batch:
                return
            begins = f"({found[-1][0].decode()}"

    def claim_check(self, seconds: float) -> bool:
        """Claim the next check of the groups: return True for one caller within `seconds`."""
        return bool(self._transport.run("topic_claim_check", [self.keys.control], [round(seconds * 1000)]))

    def groups(self, *, at_most: float = math.inf) -> Sequence[GroupStats]:
        """Return all groups with their lag and share of the retention; see topic_stats() for `at_most`."""
        return groups_of(self.config, self._transport, at_most=at_most)

    def set_alarm(self, group: str, percent: int | None) -> str:
        """Set or clear a group's alarm. Returns RAISED, CLEARED, SAME, or MISSING when the group does not exist."""
        keys = [self.keys.log, self.keys.group(group).control]
        return str(self._transport.run("topic_alarm", keys, [group, "" if percent is None else percent]).decode())

    def recount(self) -> None:
        """Let the server count again what the groups have read, if it is another one than before."""
        self._transport.run("topic_recount", [self.keys.log, self.keys.control])

    def trim(self) -> Trimmed:
        """Remove the oldest entries beyond the retention: a bounded number, and none that is pending."""
        config, names = self.config, self._names()
        retention = round(config.retention.total_seconds() * 1000) if config.retention else 0
        limits = [retention, config.retention_count or 0, config.retention_bytes or 0, TRIM]
        count, more, held, *lost = self._transport.run(
            "topic_trim",
            [self.keys.log, *(self.keys.group(name).control for name in names)],
            [*limits, *names],
        )
        pairs = zip(lost[::2], lost[1::2], strict=True)
        return Trimmed(count, bool(more), bool(held), {name.decode(): number for name, number in pairs})

    def _names(self) -> list[str]:
        (found,) = group_names([self.config], [self._transport])
        if isinstance(found, StoreError):
            raise found
        return found[:MAX_COUNTED]

    def _counted_up_to(self, after: str) -> tuple[Argument, str]:
        """Return the number of entries up to one (`""` if unknown or not needed), and the first entry of the log."""
        (reply,) = self._transport.pipeline([("XINFO", "STREAM", self.keys.log)])
        if is_gone(reply):
            return "", "0-0"
        flat = reply_or_raise(reply)
        entry = dict(zip(flat[::2], flat[1::2], strict=True))[b"first-entry"]
        begins = entry[0].decode() if entry else "0-0"
        if after in ("0", "$") or not entry:
            return "", begins
        count, more = count_between(self.keys, self._transport, "0-0", after, at_most=MAX_READ)
        return "" if more else count, begins


# The logs of a topic with partitions, as one. Within a partition they have an order, between partitions none.

#: The reply of Log.set_alarm() for a group that does not exist.
MISSING = "MISSING"


class PartitionedLog(PartitionedPublisher[TopicConfig, Log]):
    """Publishes each message to its partition, and moves groups in all of them."""

    def subscribe(self, group: str, start: Offset) -> bool:
        """See Log.subscribe(). An entry id stands for its time in the partitions that do not have the entry.

        Raises:
            QueueClosed: the topic has another number of partitions than the settings say.
        """
        self.check()
        created = [log.subscribe(group, start) for log in self._stores.values()]
        return any(created)

    def seek(self, group: str, position: Offset) -> None:
        """See Log.seek() and subscribe(). Partitions that do not have the group get it at this position.

        If a node fails, the group has been moved in some partitions. Repeat it then.

        Raises:
            UnknownGroup: the group exists in no partition.
        """
        missing = [log for log in self._stores.values() if not log.move(group, position)]
        if len(missing) == len(self._stores):
            raise UnknownGroup(f"Topic {self.config.name!r} has no group {repr_of(group)}")
        for log in missing:
            log.subscribe(group, position)

    def unsubscribe(self, group: str, *, now: float) -> bool:
        """See Log.unsubscribe()."""
        removed = [log.unsubscribe(group, now=now) for log in self._stores.values()]
        return any(removed)

    def read(self, since: Offset, until: Offset, *, batch: int = 100) -> Iterator[Delivery | Undecodable]:
        """Yield the entries of all logs between two positions, both included, by the time of their publication."""
        logs = [log.read(since, until, batch=batch) for log in self._stores.values()]
        return heapq.merge(*logs, key=lambda found: parse(found.entry.decode()))

    def claim_check(self, seconds: float) -> bool:
        """See Log.claim_check(): the first partition has the claim."""
        return self._first.claim_check(seconds)

    def groups(self, *, at_most: float = math.inf) -> Sequence[GroupStats]:
        """Return all groups, each with the sums of its partitions: see Log.groups()."""
        return groups_of(self.config, self._transport, at_most=at_most)

    def set_alarm(self, group: str, percent: int | None) -> str:
        """See Log.set_alarm(): the first partition that has the group has its alarm."""
        changes = (log.set_alarm(group, percent) for log in self._stores.values())
        return next((change for change in changes if change != MISSING), MISSING)

    @property
    def _first(self) -> Log:
        return next(iter(self._stores.values()))


logger = get_logger(__name__)


class GroupSource(Source):
    """The streams of a group: its own `ready` and `front`, and its topic's log."""

    def __init__(self, config: GroupConfig, transport: Transport) -> None:
        keys = config.keys
        own = [stream_receipts(keys, keys.ready), stream_receipts(keys, keys.front)]
        super().__init__(config, transport, [*own, log_receipts(keys)])
        self._log = keys.topic.log

    def take_commands(self, consumer: str, count: int) -> list[Command]:
        """See Source.take_commands()."""
        key_names = [self._keys.ready, self._keys.front, self._log, self._keys.control]
        return [scripts.command("topic_fetch", keys=key_names, args=[self._keys.group, consumer, count])]

    def taken(self, replies: Sequence[Any], consumer: str, count: int) -> Taken | None:
        """See Source.taken()."""
        (reply,) = replies
        if is_gone(reply):
            return None
        if reply_or_raise(reply) == b"PAUSED":
            return []
        generation, ready, front, log = reply
        own = [*self._decoded(front, FRONT), *self._decoded(ready, READY)]
        return _without_priority([*own, *_with_generation(self._decoded(log, LOG), generation)])

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Taken | None:
        """See Source.fetch()."""
        generation: Command = ("HGET", self._keys.control, "log-generation")
        read = self._read_command(consumer, count, [self._keys.ready, self._log], block_ms=block_ms)
        first, reply, last = self._transport.pipeline([generation, read, generation])
        if is_gone(reply):
            return None
        streams = {key.decode(): entries for key, entries in reply_or_raise(reply) or []}
        own = self._decoded(streams.get(self._keys.ready, []), READY)
        if reply_or_raise(first) != reply_or_raise(last):
            # The group was moved during the wait, so the generation of the reply is unknown. The pending list is
            # current.
            return [*self.held_in(LOG, consumer, count), *_without_priority(own)]
        of_log = _with_generation(self._decoded(streams.get(self._log, []), LOG), last)
        return _without_priority([*own, *of_log])

    def held_in(self, stream: int, consumer: str, limit: int) -> Taken:
        """See Source.held_in()."""
        if stream != LOG:
            return super().held_in(stream, consumer, limit)
        generation = self._transport.ask(("HGET", self._keys.control, "log-generation"))
        return _with_generation(super().held_in(stream, consumer, limit), generation)


def _with_generation(found: Taken, generation: bytes | None) -> Taken:
    """Return deliveries of the log with the generation in their receipts."""
    return [item._replace(entry=item.entry + b"@" + (generation or b"")) for item in found]


def _without_priority(found: Taken) -> Taken:
    """Return deliveries without priorities, which another program may have set: groups do not support them."""
    return [
        item._replace(message=item.message._replace(priority=0))
        if isinstance(item, Delivery) and item.message.priority
        else item
        for item in found
    ]


class TopicStore(StreamStore):
    """A group of a topic: see `mq_django.stores.base.Store` for each method.

    Its `publish` adds messages to the group's own queue, for this group only; `Log.publish` reaches all groups.
    """

    def __init__(self, config: GroupConfig, transport: Transport, *, start: Offset = BEGINNING) -> None:
        super().__init__(config, transport, GroupSource(config, transport))
        self._group_keys = config.keys
        self._log = config.keys.topic.log
        self._topic = config.topic
        self._start = start
        #: Identifies the log, to notice when it has gone: see `topic_subscribe.lua`.
        self._born = ""

    def create_groups(self) -> None:
        """Create the group at its subscriber's start, if it does not exist."""
        keys = self._group_keys
        word, born = self._transport.run(
            "topic_subscribe",
            [self._log, keys.ready, keys.control, keys.topic.control],
            [keys.group, before(self._start), self._born, token()],
        )
        self._born = born.decode()
        if word == b"LOST":
            logger.error(
                "Group %s of topic %s, or its log, has gone: suspected data loss. The group starts at the beginning",
                *(keys.group, self._topic),
            )
        elif word == b"CREATED":
            logger.info("Group %s of topic %s starts at %s", keys.group, self._topic, self._start)

    def cancel_running(self, id_or_unique: str | bytes, *, force: bool = False) -> CancelResult:
        """See Store.cancel_running()."""
        raise NotSupported(self.config.keeps_running.format(config=self.config))

    def cancel_requests(self) -> Mapping[str, CancelRequest]:
        """See Store.cancel_requests()."""
        return {}

    def depths(self) -> Depths:
        """See Store.depths(): ready are the undelivered entries of the log and the group's own ready messages."""
        own = super().depths()
        (pending,) = self._transport.pipeline([("XPENDING", self._log, self.keys.group)])
        if is_gone(pending):
            return own
        log = stats_of_group(self._group_keys.topic, self.keys.group, self._transport)
        unread = sum(group.lag for group in log.groups)
        return own._replace(ready=own.ready + unread, pending=own.pending + reply_or_raise(pending)[0])
