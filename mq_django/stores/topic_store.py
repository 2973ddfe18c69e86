"""A group of a topic: a consumer group of the topic's log, with a queue of its own.

Messages that the group retries, hands back or sets aside are acked in the log and copied to the group's own keys, which
are like a queue's. Other groups are not affected.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mq_django.conf import GroupConfig
from mq_django.core.ids import token
from mq_django.core.keys import FRONT, LOG, READY
from mq_django.core.logs import get_logger
from mq_django.core.messages import CancelResult, Delivery
from mq_django.core.offsets import BEGINNING, Offset, before
from mq_django.errors import NotSupported
from mq_django.stores.base import Depths
from mq_django.stores.settling import log_receipts, stream_receipts
from mq_django.stores.stream_store import Source, StreamStore, Taken
from mq_django.stores.topic_stats import stats_of_group
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, is_gone, reply_or_raise

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

    def cancel_requests(self) -> Mapping[str, bool]:
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
