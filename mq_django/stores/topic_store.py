"""A group of a topic: the topic's log, which is kept, and beside it what the group keeps for itself.

The group is a consumer group of the log. What it retries, hands back or sets aside leaves the log's pending list as a
copy under the group's own keys, which are those of a queue; so it holds up and reaches no other group.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from mq_django.conf import GroupConfig
from mq_django.core.ids import token
from mq_django.core.keys import LOG, READY, URGENT
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.offsets import BEGINNING, Place, before
from mq_django.stores.base import Depths
from mq_django.stores.settling import BATCH, Settling, log_receipts, stream_receipts
from mq_django.stores.stream_store import StreamStore
from mq_django.stores.topic_stats import stats_of_group
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, is_gone, reply_or_raise

logger = get_logger(__name__)


class TopicStore(StreamStore):
    """A group of a topic: see `mq_django.stores.base.Store` for what each method promises.

    Its `publish` puts messages into the group's own part, for this group alone; `Log.publish` reaches every group.
    """

    def __init__(self, config: GroupConfig, wire: Wire, *, start: Place = BEGINNING) -> None:
        super().__init__(config, wire)
        self._group_keys = config.keys
        self._log = config.keys.topic.log
        self._topic = config.topic
        own = [stream_receipts(config.keys, stream) for stream in (config.keys.ready, config.keys.urgent)]
        self._settling = Settling(wire, [*own, log_receipts(config.keys)])
        self._start = start
        #: When the log that this store knows was begun.
        self._born = ""

    def create_groups(self) -> None:
        """Make the group, at the place where its subscriber starts, where there is none."""
        keys = self._group_keys
        command = scripts.command(
            "topic_subscribe",
            keys=[self._log, keys.ready, keys.control, keys.topic.control],
            args=[keys.group, before(self._start), self._born, token()],
        )
        word, born = reply_or_raise(self._wire.trip([command])[0])
        self._born = born.decode()
        if word == b"LOST":
            logger.error("Topic %s is not the one it was: suspected data loss", self._topic)
        elif word == b"CREATED":
            logger.info("Group %s of topic %s begins at %s", keys.group, self._topic, self._start)

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> list[Delivery | Undecodable]:
        """See Store.fetch()."""
        generation: Command = ("HGET", self.keys.control, "log-generation")
        first, reply, last = self._wire.trip([generation, self._read_command(consumer, count, block_ms), generation])
        if is_gone(reply):
            self.create_groups()
            return []
        streams = reply_or_raise(reply) or []
        if reply_or_raise(first) != reply_or_raise(last):
            # The group was moved during the wait: what came may be of either generation; what is held is of the last.
            return self._held_in(LOG, consumer, count) + self._own_of(streams)
        found = {key.decode(): entries for key, entries in streams}
        return [*self._own_of(streams), *self._of_log(found.get(self._log, []), last or b"")]

    def held_by(self, consumer: str, *, limit: int) -> list[Delivery | Undecodable]:
        """See Store.held_by()."""
        held: list[Delivery | Undecodable] = []
        for home in (READY, URGENT, LOG):
            if len(held) < limit:
                held += self._held_in(home, consumer, limit - len(held))
        return held

    def purge(self, *, limit: int, place: Literal["", "ready", "delayed", "unhandled", "parked"] = "") -> int:
        """See Store.purge(); what is ready in the log stays there for others, and this group passes it over."""
        deleted = super().purge(limit=limit, place=place)
        if deleted or place not in ("", "ready"):
            return deleted
        args: list[Argument] = [self.keys.group, f"skip-{token()}", min(limit, BATCH)]
        (reply,) = self._wire.trip([scripts.command("topic_skip", keys=[self._log], args=args)])
        return 0 if is_gone(reply) else int(reply_or_raise(reply))

    def depths(self) -> Depths:
        """See Store.depths(): ready is what the group has not read, and what goes first."""
        own = super().depths()
        (pending,) = self._wire.trip([("XPENDING", self._log, self.keys.group)])
        if is_gone(pending):
            return own
        log = stats_of_group(self._group_keys.topic, self.keys.group, self._wire)
        unread = sum(group.lag for group in log.groups)
        return own._replace(ready=own.ready + unread, pending=own.pending + reply_or_raise(pending)[0])

    def _ordered_command(self, consumer: str, count: int) -> Command:
        keys = [self.keys.ready, self.keys.urgent, self._log, self.keys.control]
        return scripts.command("topic_fetch", keys=keys, args=[self.keys.group, consumer, count])

    def _taken_in_order(self, reply: Any, count: int) -> list[Delivery | Undecodable]:
        if is_gone(reply):
            self.create_groups()
            return []
        if reply_or_raise(reply) == b"PAUSED":
            return []
        generation, ready, urgent, log = reply
        return [
            *self._decoded(urgent, URGENT),
            *self._decoded(ready, READY),
            *self._of_log(log, generation),
        ]

    def _read_command(self, consumer: str, count: int, block_ms: int) -> Command:
        who = ("XREADGROUP", "GROUP", self.keys.group, consumer)
        return (*who, "COUNT", count, "BLOCK", block_ms, "STREAMS", self.keys.ready, self._log, ">", ">")

    def _decoded(self, entries: Sequence[Any], home: int) -> list[Delivery | Undecodable]:
        # Strangers may give one; it must not come between a retry and its place.
        return [
            item._replace(message=item.message._replace(priority=0))
            if isinstance(item, Delivery) and item.message.priority
            else item
            for item in super()._decoded(entries, home)
        ]

    def _own_of(self, streams: Iterable[Any]) -> list[Delivery | Undecodable]:
        return [item for key, entries in streams if key.decode() != self._log for item in self._decoded(entries, READY)]

    def _of_log(self, entries: Sequence[Any], generation: bytes) -> list[Delivery | Undecodable]:
        """Return the deliveries of entries of the log, whose receipts carry the generation."""
        found = self._decoded(entries, LOG)
        return [item._replace(entry=item.entry + b"@" + generation) for item in found]

    def _held_in(self, home: int, consumer: str, limit: int) -> list[Delivery | Undecodable]:
        if home != LOG:
            return self._held(home, consumer, limit)
        (generation,) = self._wire.trip([("HGET", self.keys.control, "log-generation")])
        held = self._held(LOG, consumer, limit)
        return [item._replace(entry=item.entry + b"@" + (reply_or_raise(generation) or b"")) for item in held]
