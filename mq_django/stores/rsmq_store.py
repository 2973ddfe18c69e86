"""A queue in RSMQ's format, shared with programs in other languages.

RSMQ has neither owners nor attempts: receiving a message hides it for a while and increments its receive count. Keys of
our own record which consumer holds a message at which count, and how many receives are no attempts. When another
program receives a message after it became visible again, the count differs, and our consumer cannot settle it.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.breakers import Counted, Hold, Results
from mq_django.core.jsontext import LAST_MS, score_ms, whole
from mq_django.core.keys import QueueKeys, RsmqKeys
from mq_django.core.messages import (
    Ack,
    Bury,
    CancelResult,
    Delivery,
    Expire,
    HandBack,
    Lookup,
    LookupState,
    Retry,
    SetAside,
    Undecodable,
)
from mq_django.core.publication import Publication
from mq_django.core.queue_configs import RsmqConfig
from mq_django.core.rsmq_format import decode, encode, sent_micros, units
from mq_django.core.texts import line
from mq_django.errors import AlreadyPublished, MessageTooLarge, NotSupported, QueueExists, QueueFull
from mq_django.stores.base import NOTHING, Also, CancelRequest, Depths, Fetched, Promoted, Settlement
from mq_django.stores.counters import slot
from mq_django.stores.dead_letters import history_of
from mq_django.stores.members import Members, Membership, read_membership
from mq_django.stores.outbox_marks import note_ended
from mq_django.stores.rsmq_queues import RsmqQueues
from mq_django.stores.settling import BATCH, DEAD, Receipts, Settles, Settling, Transition, buried, listed, marks_of
from mq_django.stores.waiting import name_score, not_waiting, scores_of
from mq_django.transport import scripts
from mq_django.transport.cluster_transport import ClusterSession
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Session, Transport, reply_or_raise
from mq_django.transport.subscription import WakeSubscription

# How deliveries of an RSMQ queue are settled: the messages stay in RSMQ's keys, and are hidden, shown or removed.


def rsmq_receipts(config: RsmqConfig) -> Receipts:
    """Return how deliveries of an RSMQ queue are settled."""
    keys = config.keys
    own = {name: getattr(keys, name) for name in ("zset", "hash", "owners")}
    return Receipts(keys, own, "", _RSMQ, hidden_ms=config.vt * 1000, id_of=_id_of)


def _id_of(delivery: Delivery | Undecodable) -> bytes:
    """Return RSMQ's id of a message, which is a part of the receipt."""
    return delivery.entry.rpartition(b":")[0]


def _retried(batch: Sequence[Settlement], consumer: str, receipts: Receipts) -> list[Argument]:
    """Return the ms until the next attempts, marks, the histories, and the channel.

    A mark is "alone" if the message must run alone, "free" if this receive is no attempt, or "".
    """
    marks = ["alone" if each.alone else "free" if each.uncharged else "" for each in batch]
    return [
        *listed("delays", [settlement.delay_ms for settlement in batch]),
        *listed("marks", marks),
        *listed("histories", [history_of(consumer, settlement) for settlement in batch]),
        *("wake", 1, receipts.queue.wake),
    ]


def _handed_back(batch: Sequence[Settlement], _consumer: str, receipts: Receipts) -> list[Argument]:
    """Return when messages were sent, their marks, and the channel."""
    times: list[Argument] = []
    for delivery, *_ in batch:
        assert isinstance(delivery, Delivery)
        sent = sent_micros(delivery.message.id)
        times.append(delivery.message.published_ms or 0 if sent is None else sent // 1000)
    return [*listed("times", times), *listed("marks", marks_of(batch)), "wake", 1, receipts.queue.wake]


def _set_aside(batch: Sequence[Settlement], _consumer: str, receipts: Receipts) -> list[Argument]:
    """Return the scores of names, and the ms to hide deliveries."""
    scores = [name_score(each.delivery.message.name) for each in batch if isinstance(each.delivery, Delivery)]
    return [*listed("scores", scores), "hidden", 1, receipts.hidden_ms]


_RSMQ: Mapping[type, Transition] = {
    Ack: Transition("ack", ("notes",), needs_ids=False),
    Expire: Transition("expire", ("notes",), needs_ids=False),
    Retry: Transition("retry", ("notes", "retried"), _retried, needs_ids=False),
    HandBack: Transition("hand_back", ("notes",), _handed_back, needs_ids=False),
    Bury: Transition("bury", ("notes", *DEAD), buried),
    SetAside: Transition("set_aside", ("notes", "unhandled"), _set_aside, needs_ids=False),
}

#: Seconds between polls without a notification: if peers do not publish on the channel, and if they do.
POLL, POLL_WITH_REALTIME = 1.0, 5.0
#: Records that a clean-up checks.
CLEANED_UP = 100


class RsmqStore(Settles):
    """A queue in RSMQ's format: see `mq_django.stores.base.Store` for each method."""

    def __init__(self, config: RsmqConfig, transport: Transport) -> None:
        self.config: QueueConfig = config
        self.keys: QueueKeys = config.keys
        self._config = config
        self._keys = config.keys
        self._transport = transport
        self._vt_ms = config.vt * 1000
        self._settling = Settling(transport, config, [rsmq_receipts(config)])
        self._subscription = (
            WakeSubscription(transport.another(), [self._keys.wake, self._keys.realtime])
            if isinstance(transport, Session | ClusterSession)
            else None
        )
        #: When the next message becomes visible as far as is known, in seconds of the monotonic clock.
        self._next = 0.0

    def create_groups(self) -> None:
        """Create the queue if it does not exist."""
        config = self._config
        found = RsmqQueues(config.namespace, self._transport)
        with suppress(QueueExists):
            found.create_queue(config.name, vt=config.vt, delay=config.delay, maxsize=config.maxsize)

    def publish(self, publications: Sequence[Publication]) -> list[str]:
        """See Store.publish()."""
        config, keys = self._config, self._keys
        where = slot(keys)
        realtime = keys.realtime if config.realtime else ""
        args: list[Argument] = [config.max_depth or 0, where.minute, where.hour, realtime, keys.wake]
        for message, data_text, options in publications:
            body = encode(message, data_text)
            mode, ms = ("=", options.due_ms) if options.due_ms is not None else ("+", options.delay_ms)
            mode, whole_ms = ("", 0) if ms is None else (mode, math.ceil(ms))
            args += (message.id, units(body.decode()), mode, whole_ms, message.name, body)
        command = scripts.command("rsmq_send", keys=[keys.zset, keys.hash, *where.keys], args=args)
        reply = reply_or_raise(self._transport.pipeline([command])[0])
        if reply == b"NOQUEUE":
            self.create_groups()
            reply = reply_or_raise(self._transport.pipeline([command])[0])
        if reply == b"FULL":
            raise QueueFull(f"Queue {config.name!r} is at its MAX_DEPTH of {config.max_depth}")
        if reply == b"EXISTS":
            raise AlreadyPublished(f"Queue {config.name!r} has a message with the id {publications[0].message.id!r}")
        if reply == b"TOOLONG":
            raise MessageTooLarge(f"The message is longer than the maxsize of queue {config.name!r}")
        return [message_id.decode() for message_id in reply]

    def take(self, consumer: str, *, count: int) -> list[Delivery | Undecodable]:
        """See Store.take()."""
        read_at = time.monotonic()
        return self._taken(self._transport.pipeline([self._take_command(consumer, count)])[0], read_at)

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> list[Delivery | Undecodable]:
        """See Store.fetch()."""
        self._wait(block_ms / 1000)
        return self.take(consumer, count=count)

    def _wait(self, seconds: float) -> None:
        """Wait until there may be a message, without polling Redis."""
        subscription = self._subscription
        if subscription is None or not isinstance(self._transport, Session | ClusterSession):
            time.sleep(min(seconds, POLL, max(0.0, self._next - time.monotonic())))
        elif not subscription.open():
            # Does not wait right after subscribing: a message may have been sent before.
            poll = POLL_WITH_REALTIME if self._config.realtime else POLL
            known = max(0.0, self._next - time.monotonic())
            subscription.wait(min(seconds, poll, known), beside=self._transport)

    def rest(self) -> float:
        """See Store.rest(): there are no limits here."""
        return 0.0

    def settle_and_take(
        self, consumer: str, settlements: Sequence[Settlement], *, count: int, also: Also = NOTHING
    ) -> Fetched:
        """See Store.settle_and_take()."""
        take, read_at = self._take_command(consumer, count), time.monotonic()
        stale, replies = self._settling.settle(consumer, settlements, also=also, then=[take])
        return Fetched(self._taken(replies[0], read_at), stale)

    def promote(self, *, limit: int) -> Promoted:
        """See Store.promote(): a due message is visible, so none is moved."""
        return self.read_due(self._transport.pipeline([self.due_command()])[0])

    def due_command(self) -> Command:
        """See Store.due_command(): there is nothing to promote, and each call cleans up."""
        keys = self._keys
        key_names = [keys.zset, keys.hash, keys.control, keys.owners, keys.notes, keys.unhandled, keys.retried]
        return scripts.command("rsmq_clean_up", keys=key_names, args=[CLEANED_UP])

    def read_due(self, reply: Any) -> Promoted:
        """See Store.read_due()."""
        next_ms, paused, unhandled = reply_or_raise(reply)
        # At least a second: the caller only cleans up, and delivers no messages.
        return Promoted(0, None if next_ms < 0 else max(1000, next_ms) * 1000, bool(paused), unhandled)

    def cancel(self, id_or_unique: str | bytes) -> CancelResult:
        """See Store.cancel()."""
        if self._transport.ask(waiting_command(self._keys, id_or_unique, "cancel")) != b"CANCELLED":
            return CancelResult.NOT_WAITING
        note_ended(self._transport, self.config, [id_or_unique], is_asked=True)
        return CancelResult.CANCELLED

    def cancel_running(self, id_or_unique: str | bytes, *, force: bool = False) -> CancelResult:
        """See Store.cancel_running()."""
        raise NotSupported(self.config.keeps_running.format(config=self.config))

    def current_holds(self) -> Mapping[str, Hold]:
        """See Store.current_holds(): RSMQ's messages wait in RSMQ's keys."""
        return {}

    def hold(self, hold: Hold) -> bool:
        """See Store.hold(): it is not supported."""
        raise NotSupported(
            f"Queue {self.config.name!r} is in RSMQ's format: nothing of it is held, so not {hold.subject!r}"
        )

    def count_results(self, rows: Sequence[Results]) -> list[Counted]:
        """See Store.count_results(): there are no breakers."""
        return [Counted("", "") for _ in rows]

    def end_hold(self, subject: str) -> bool:
        """See Store.end_hold(): there are none."""
        return False

    def cancel_requests(self) -> Mapping[str, CancelRequest]:
        """See Store.cancel_requests()."""
        return {}

    def is_cancelled(self, delivery: Delivery) -> bool:
        """See Store.is_cancelled()."""
        return False

    def reschedule(self, id_or_unique: str, *, delay_ms: int | None = None, due_ms: int | None = None) -> CancelResult:
        """See Store.reschedule()."""
        mode, ms = ("=", due_ms) if due_ms is not None else ("+", delay_ms or 0)
        reply = self._transport.ask(waiting_command(self._keys, id_or_unique, mode, ms))
        return CancelResult.RESCHEDULED if reply == b"RESCHEDULED" else CancelResult.NOT_WAITING

    def find(self, id_or_unique: str) -> Lookup:
        """See Store.find()."""
        command = waiting_command(self._keys, id_or_unique, "find")
        answer, expired = self._transport.pipeline([command, ("ZSCORE", self._keys.expired, id_or_unique)])
        reply = reply_or_raise(answer)
        if reply == b"MISSING":
            return not_waiting(expired)
        word, score, body, count, free = reply
        state = LookupState.DELAYED if word == b"DELAYED" else LookupState.UNHANDLED
        found = self._decoded(id_or_unique.encode(), body, count, 0, (whole(free) or 0) - 1, b"")
        message = found.message if isinstance(found, Delivery) else None
        return Lookup(state, message, score_ms(score) if state is LookupState.DELAYED else None)

    def held_by(self, consumer: str, *, limit: int) -> list[Delivery | Undecodable]:
        """See Store.held_by()."""
        read_at = time.monotonic()
        return self._rows(self._held(consumer, limit, bodies=True), read_at)

    def _held(self, consumer: str, limit: int, *, bodies: bool) -> list[list[Any]]:
        keys = self._keys
        flat = self._transport.run(
            "rsmq_held", [keys.zset, keys.hash, keys.owners, keys.notes], [consumer, limit, "1" if bodies else ""]
        )
        return [flat[at : at + 7] for at in range(0, len(flat), 7)]

    def holds(self, consumer: str) -> bool:
        """Return whether a consumer holds a message."""
        return bool(self._held(consumer, 1, bodies=False))

    def extend_all(self, consumers: Iterable[str]) -> int:
        """Extend all messages that consumers hold, and return the number."""
        keys = self._keys
        return int(self._transport.run("rsmq_extend", [keys.zset, keys.hash, keys.owners], [self._vt_ms, *consumers]))

    def release_unhandled(self, names: Iterable[str] | None, *, limit: int) -> int:
        """See Store.release_unhandled()."""
        keys = self._keys
        return sum(
            self._transport.run(
                "rsmq_release", [keys.zset, keys.unhandled], [first, min(limit, BATCH), keys.wake, *last]
            )
            for first, *last in scores_of(names)
        )

    def depths(self) -> Depths:
        """See Store.depths(); messages that other programs hold count as delayed."""
        keys = self._keys
        lists = [keys.zset, keys.hash, keys.owners, keys.unhandled, keys.dead, keys.control, keys.consumers]
        reply = self._transport.run("rsmq_stats", [*lists, keys.minutes(0), keys.minutes(0)], [0])
        _, deliverable, pending, delayed, unhandled, _parked, dead, *_ = reply
        return Depths(deliverable - pending, delayed, unhandled, pending, dead)

    def _take_command(self, consumer: str, count: int) -> Command:
        keys = self._keys
        key_names = [keys.zset, keys.hash, keys.owners, keys.notes, keys.control, keys.unhandled, keys.consumers]
        return scripts.command("rsmq_receive", keys=key_names, args=[consumer, min(count, BATCH), self._vt_ms])

    def _taken(self, reply: Any, read_at: float) -> list[Delivery | Undecodable]:
        if reply_or_raise(reply) == b"NOQUEUE":
            self.create_groups()
            return []
        if reply == b"PAUSED":
            return []
        next_ms, *flat = reply
        self._next = time.monotonic() + (next_ms / 1000 if next_ms >= 0 else 3600.0)
        return self._rows([flat[at : at + 7] for at in range(0, len(flat), 7)], read_at)

    def _rows(self, rows: Sequence[list[Any]], read_at: float) -> list[Delivery | Undecodable]:
        return [
            self._decoded(
                *(row[0], row[1], row[2], whole(row[3], LAST_MS) or 0, whole(row[4]) or 0, *row[5:]), read_at=read_at
            )
            for row in rows
        ]

    def _decoded(
        self,
        message_id: bytes,
        body: bytes,
        count: object,
        first_ms: int,
        free: int,
        alone: bytes,
        history: bytes = b"",
        *,
        read_at: float = 0.0,
    ) -> Delivery | Undecodable:
        return decode(
            body,
            queue=self._config.name,
            message_id=line(message_id),
            first_ms=first_ms,
            attempt=(whole(count) or 0) - free,
            alone=alone.decode(errors="replace"),
            receipt=_receipt(message_id, count),
            history=history.decode(errors="replace"),
            read_at=read_at,
        )


def waiting_command(keys: RsmqKeys, message_id: str | bytes, action: str, ms: int = 0) -> Command:
    """Return the command that finds, cancels or reschedules a waiting message: see the script."""
    key_names = [keys.zset, keys.hash, keys.notes, keys.unhandled, keys.retried]
    return scripts.command("rsmq_waiting", keys=key_names, args=[message_id, action, ms, keys.wake])


def _receipt(message_id: bytes, count: object) -> bytes:
    """Return the receipt of a delivery. `count` is used as it is in Redis, because it may not be a valid number."""
    return message_id + b":" + (count if isinstance(count, bytes) else str(count).encode())


# The members of a queue in RSMQ's format.


class RsmqMembers(Members):
    """The consumers of one queue and their supervisors."""

    def __init__(self, config: RsmqConfig, transport: Transport) -> None:
        super().__init__(config, transport)
        self._store = RsmqStore(config, transport)
        self._vt = config.vt
        #: Until when nobody else can receive what was extended last, in seconds of the monotonic clock.
        self._hidden_until = 0.0

    def read_beat(self, reply: Any, consumers: Iterable[str]) -> Membership | None:
        """See Members.read_beat(). Extends all messages that the consumers hold.

        Other programs do not know heartbeats, and receive every message that becomes visible.
        """
        membership = super().read_beat(reply, consumers)
        if membership is not None:
            self._extend(consumers)
        return membership

    def keep_alive(self, supervisor: str) -> bool:
        """See Members.keep_alive()."""
        is_alive = super().keep_alive(supervisor)
        fields = self._transport.ask(("HGETALL", self._keys.consumers)) if is_alive else []
        membership = read_membership(dict(zip(fields[::2], fields[1::2], strict=True)))
        if held := membership.consumers_of(supervisor):
            self._extend(held)
        return is_alive

    def _extend(self, consumers: Iterable[str]) -> None:
        """Extend all messages that consumers hold. After too long, others may have received some of them."""
        began = time.monotonic()
        self._store.extend_all(consumers)
        now = time.monotonic()
        if now > self._hidden_until:
            self.held_since = now
        self._hidden_until = began + self._vt

    def leave(self, consumers: Iterable[str], *, supervisor: str = "") -> list[str]:
        """See Members.leave()."""
        names = list(consumers)
        holding = [consumer for consumer in names if self._store.holds(consumer)]
        gone = [consumer for consumer in names if consumer not in holding]
        return [*super().leave(gone, supervisor="" if holding else supervisor), *holding]
