"""The fetchers of a consumer: one for each queue, and one for all partitions of a queue that are on one server."""

import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import stored_entry
from mq_django.consumers.worker.batches import Batches
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.measured_store import MeasuredStore
from mq_django.consumers.worker.pools import MAX_PREFETCH, Pool
from mq_django.consumers.worker.resting import RestingQueues
from mq_django.core.logs import get_logger
from mq_django.core.messages import ACK, Delivery, Undecodable
from mq_django.registry import batches, kinds
from mq_django.stores.base import Settlement, Store, StreamEntry
from mq_django.stores.line_store import Shares
from mq_django.stores.partition_transport import PartitionTransport
from mq_django.stores.settling import message_id
from mq_django.stores.stream_store import StreamStore
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.connections import BLOCK_MS
from mq_django.transport.subscription import Subscription

# The deliveries that a consumer reads of one queue: passed on to the pools, and found again after a lost reply.

logger = get_logger(__name__)

#: Held deliveries that are checked after a lost connection.
STRANDED = 5000
#: Seconds after a failure at which to check for stranded deliveries. Redis may still execute a command that was sent
#: over a connection that is closed by now.
CHECK_AFTER = (0.0, 1.0, 5.0, 15.0, 60.0)
#: Bytes of the messages of a queue that wait in a process beside those that can start at once, and of one fetch; about.
FETCH_BYTES = 16 * 1024 * 1024
#: Messages of the first fetch, of which it is not known how large they are.
FIRST = 16


class QueueReader:
    """Takes messages of one queue or partition for a consumer.

    Args:
        store: the queue.
        session: the connection of the store.
        consumer: the name under which it holds them.
        dispatcher: starts them.
        handled: returns the latest handled deliveries, including settled ones.
    """

    def __init__(
        self,
        store: Store,
        session: AnySession,
        consumer: str,
        dispatcher: Dispatcher,
        handled: Callable[[], Collection[StreamEntry]],
    ) -> None:
        self.store = store
        self.settler = dispatcher.settler
        self.consumer = consumer
        self._session = session
        self._dispatcher = dispatcher
        self._handled = handled
        #: There may be more to take.
        self.busy = True
        #: How many messages FETCH_BYTES hold, as large as the latest ones were.
        self.ahead = FIRST
        self._bytes_each = 0
        #: The times on the monotonic clock at which to check for stranded deliveries.
        self._checks: list[float] = []
        self._moves = session.moves
        #: While its queue begins or ends to rest, two threads may have messages of it.
        self._passing = threading.Lock()

    @property
    def next_check(self) -> float | None:
        """When to check for stranded deliveries, on the monotonic clock; None: not at all."""
        return self._checks[0] if self._checks else None

    @property
    def is_measured(self) -> bool:
        """Return whether it is known how large messages are."""
        return self._bytes_each > 0

    def at_once(self, demand: int) -> int:
        """Return how many messages to fetch at once, if its pool can start so many."""
        return demand if self.ahead == MAX_PREFETCH else min(demand, max(1, self.ahead))

    def check_if_due(self) -> bool:
        """Run deliveries whose reply was lost, if it is time to look for them, and return whether it was."""
        if not self._checks or self._checks[0] > time.monotonic():
            return False
        self._take_stranded()
        self._checks.pop(0)
        return True

    def check_soon(self) -> None:
        """Schedule checks for deliveries whose reply was lost: at once, and for a while after."""
        self.busy = True
        now = time.monotonic()
        self._checks = [now + seconds for seconds in CHECK_AFTER]

    def take(self, count: int, *, after_wait: bool = False) -> int:
        """Settle what has ended, take up to so many messages without waiting, start them, and return their number."""
        taken = self.settler.settle_and_take(self.store, count=count, after_wait=after_wait)
        self.busy = bool(taken)
        self.pass_on(taken)
        return len(taken)

    def pass_on(self, taken: Sequence[Delivery | Undecodable]) -> None:
        """Run what was taken, except what this consumer runs already, or has run and acked just now."""
        with self._passing:
            self._pass_on(taken)

    def _pass_on(self, taken: Sequence[Delivery | Undecodable]) -> None:
        if self._moves != self._session.moves:
            # What a master executes after another one took its place is lost: also acks that it has confirmed.
            self._moves = self._session.moves
            self.check_soon()
        if taken:
            self._measure(taken)
        # Only a new master, which does not have the last writes of the old one, delivers something again.
        if self._checks and taken:
            taken = self.settler.not_again(taken)
        self._dispatcher.dispatch(taken)

    def _measure(self, taken: Sequence[Delivery | Undecodable]) -> None:
        """Note how large messages are."""
        sizes = [len(item.data_text) if isinstance(item, Delivery) else sum(map(len, item.fields)) for item in taken]
        # A few small ones among large ones do not count.
        self._bytes_each = max(sum(sizes) // len(sizes), self._bytes_each // 2, 1)
        self.ahead = min(MAX_PREFETCH, FETCH_BYTES // self._bytes_each)

    def _take_stranded(self) -> None:
        """Run deliveries whose reply was lost."""
        # Copied first: a delivery that is settled meanwhile would look stranded.
        known = set(self.settler.in_hand)
        held = self.store.held_by(self.consumer, limit=STRANDED)
        stranded = [item for item in held if (item.stream, item.entry) not in known]
        if not stranded:
            return
        text = "Recovered %d deliveries of queue %s whose reply was lost"
        logger.warning(text, len(stranded), self.store.config.name)
        # A Redis that has lost its last second of writes has lost acks as well.
        done = self._handled()
        for item in stranded:
            if (item.stream, stored_entry(item.entry)) in done:
                self.settler.in_hand[item.stream, item.entry] = message_id(item)
                self.settler.add(Settlement(item, ACK))
        stranded = [item for item in stranded if (item.stream, stored_entry(item.entry)) not in done]
        self._dispatcher.dispatch(self.store.admit(self.consumer, stranded))


# How many messages a fetcher may take, by the pools in which its queue's handlers run.

#: Messages that may wait for a blocked pool, so that later ones reach the other pool.
MAX_WAITING = 500


class Demand:
    """The free capacity for one queue in the pools of its consumer.

    Before a message is fetched it is not known whether a thread or the event loop will run it. So some messages may
    wait for a pool that is blocked by slow handlers, as long as the other pool has free slots.
    """

    def __init__(self, queue: str, threads: Pool, loop: Pool, batches: Batches) -> None:
        self._queue = queue
        self._pools = {False: threads, True: loop}
        self._batches = batches

    def is_blocked(self) -> bool:
        """Return whether a pool is blocked: fetched messages may wait for it and be handed back."""
        return any(pool.blocked for pool in self._pools.values())

    def messages(self, seconds: float, in_hand: int, ahead: int = MAX_PREFETCH) -> int:
        """Return how many messages to fetch, if one takes `seconds`; with 0 the fetcher will be woken.

        `in_hand`: how many messages of the queue this process has fetched and not yet settled.
        `ahead`: see Pool.demand().
        """
        if of_queue := batches(self._queue):
            waiting = self._batches.waiting(self._queue)
            demand = [
                self._pools[kind].demand_for_batches(self._queue, batch, waiting, in_hand)
                for kind, batch in of_queue.items()
            ]
            return max(demand)
        pools = [self._pools[is_async] for is_async in kinds(self._queue)] or list(self._pools.values())
        demand = [pool.demand(self._queue, seconds, ahead) for pool in pools]
        if all(demand) or not any(demand):
            return min(demand)
        full = pools[demand.index(0)]
        if not full.blocked:
            return 0
        # `ahead` bounds the bytes of this queue: it must not stand still because messages of other queues wait.
        waiting = full.waiting()
        return max(0, min(max(demand), MAX_WAITING - waiting, max(1, ahead) - min(in_hand, waiting)))


#: Seconds until the next check when the pools are full, unless the fetcher is woken.
NO_ROOM = 1.0
#: Seconds between two checks while the queue is paused, or no heartbeat has announced this consumer.
PAUSED = 0.05
#: Milliseconds that a read waits while a pool is blocked. Redis serves the read that has waited longest, so a longer
#: read would get the messages that this consumer hands back for idle ones.
BLOCKED_BLOCK_MS = 200
#: The longest wait of a fetcher whose queue rests, in seconds. It is roused earlier if there is something to do.
REST = 20.0


class Fetcher(Service):
    """Reads one queue and passes its messages to the pools. Redis serves blocked reads in turn, which makes it fair.

    Args:
        reader: reads the queue.
        session: its connection, of this thread only.
        demand: how many messages can run soon.
        may_fetch: returns whether this consumer may fetch now.
        share: how many fetchers share the pools. While all of them block, each asks for its share of the demand.
        resting: waits for messages in place of this thread, after this one has waited in vain. None: nobody does.
    """

    def __init__(
        self,
        reader: QueueReader,
        session: AnySession,
        *,
        demand: Demand,
        may_fetch: Callable[[], bool],
        share: int,
        resting: RestingQueues | None = None,
    ) -> None:
        super().__init__()
        config = reader.store.config
        self.name = f"fetcher of {config.name}"
        self.connection = config.connection
        self.queue, self.keys = config.name, config.keys
        self._reader = reader
        self._store = reader.store
        self._settler = reader.settler
        self._session = session
        self._demand = demand
        self._may_fetch = may_fetch
        self._share = share
        self._resting = resting
        #: Set when the queue does not rest any more, and whether a reply may have been lost meanwhile.
        self._roused = threading.Event()
        self._has_lost = False
        #: The last fetch has waited for messages.
        self._has_waited = False

    def run_once(self) -> float:
        """Fetch as many messages as the pools will start soon."""
        if self._has_lost:
            self._has_lost = False
            self._reader.check_soon()
        if not self._may_fetch():
            return PAUSED
        demand = self._messages()
        if demand < 1:
            # While all handlers run, a message of a quiet key gets its turn.
            return 0.0 if self._store.line_up(self._reader.consumer) else NO_ROOM
        rests = self._resting is not None and self._resting.covers(self)
        # What another thread is about to pass on looks stranded.
        if not rests and self._reader.check_if_due():
            return 0.0
        if rest := self._store.rest():
            return rest
        if self._reader.busy:
            after_wait, self._has_waited = self._has_waited, False
            self._reader.take(demand, after_wait=after_wait)
        elif rests:
            self._rest()
        else:
            self._wait(max(1, demand // self._share))
        return 0.0

    def _messages(self) -> int:
        in_hand = len(self._settler.in_hand)
        return self._reader.at_once(self._demand.messages(self._settler.seconds, in_hand, self._reader.ahead))

    def _wait(self, count: int) -> None:
        """Fetch messages, and wait for the first."""
        block_ms = self.block_ms()
        with self._settler.no_more():
            taken = self._store.fetch(self._reader.consumer, count=count, block_ms=block_ms)
        self._reader.busy = self._has_waited = True
        self._reader.pass_on(taken)
        if self._resting is not None and not taken and block_ms == BLOCK_MS:
            self._resting.offer(self)

    def _rest(self) -> None:
        """Let another thread wait for messages. A connection that is not used could break unseen."""
        self._session.close()
        with self._settler.no_more():
            self._roused.wait(REST)
        self._roused.clear()

    def capacity(self) -> int | None:
        """See Resting.capacity()."""
        if self.stopping or self._has_lost or self._reader.next_check is not None or not self._may_fetch():
            return None
        demand = self._messages()
        return max(1, demand // self._share) if demand > 0 else 0

    def hand(self, entries: list[Any], began: float, *, again: bool) -> None:
        """See Resting.hand()."""
        assert isinstance(self._store, StreamStore | MeasuredStore)
        taken = self._store.woken(entries, began)
        self._reader.busy = True
        self._reader.pass_on(self._settler.not_again(taken) if again else taken)

    def rouse(self, *, lost: bool = False) -> None:
        """See Resting.rouse()."""
        self._has_lost = self._has_lost or lost
        self._roused.set()

    def recover(self, error: Exception) -> None:
        """Schedule checks for deliveries whose reply was lost: when Redis answers again, and for a while after."""
        self._reader.check_soon()

    def stop(self) -> None:
        """End the loop, and interrupt a blocked read."""
        super().stop()
        self._roused.set()
        self._session.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def block_ms(self) -> int:
        """See Resting.block_ms()."""
        longest, check = BLOCKED_BLOCK_MS if self._demand.is_blocked() else BLOCK_MS, self._reader.next_check
        return longest if check is None else max(1, min(longest, int((check - time.monotonic()) * 1000)))


# Fetch the messages of the partitions of one queue that are on one server.
#
# A blocked read for each partition would need a connection and a thread each. Instead, a fetch that finds nothing
# leaves the key `asleep`, and whatever makes a message ready deletes it and publishes one notification: see
# `lua/preludes/`. Notifications may be lost, and other programs may add messages without one, so all partitions are
# also looked at from time to time: by the consumer that prefers a partition every two seconds, and rarely by the
# others.

#: Seconds between two looks at a partition without a notification: by the consumer that prefers it, and by others.
CHECK, CHECK_OTHERS = 2.0, 20.0
#: Seconds that others wait after a notification, so that mostly the consumer that prefers the partition is first.
LATER = (0.005, 0.02)
#: Messages that are fetched from one partition even if others have some: a pipeline for each message would cost more.
BATCH = 100
#: The longest wait for a notification, in seconds.
LISTEN = 1.0
#: Seconds after which others hear that deliveries have ended, if the queue as a whole is limited.
TELL = 0.02
#: Seconds that a handler takes, until some have run.
FIRST_SECONDS = 0.01


@dataclass(slots=True)
class FetchedPartition:
    """A partition of a fetcher."""

    reader: QueueReader
    #: The transport of the reader's store, and this store.
    transport: PartitionTransport
    store: StreamStore
    #: Returns whether this consumer may fetch from it now, and whether it prefers it.
    may_fetch: Callable[[], bool]
    prefers: Callable[[], bool]
    #: When to look at it, on the monotonic clock.
    check_at: float = 0.0

    @property
    def name(self) -> str:
        """Return the name of the partition."""
        return self.reader.store.config.name

    @property
    def channel(self) -> str:
        """Return the channel of its notifications."""
        return self.reader.store.keys.arrivals


class PartitionFetcher(Service):
    """Reads the partitions of a queue on one server in turn.

    Args:
        queue: the name of the queue.
        parts: the partitions. Their stores use `session`.
        session: the connection, of this thread only.
        demand: how many messages can run soon.
        shares: this fetcher's part of the limits of the whole queue, if it has any.
    """

    def __init__(
        self,
        queue: str,
        parts: Sequence[FetchedPartition],
        session: AnySession,
        *,
        demand: Demand,
        shares: Shares | None = None,
    ) -> None:
        super().__init__()
        self.name = f"fetcher of the partitions of {queue}"
        self.connection = parts[0].reader.store.config.connection
        self._parts = list(parts)
        self._by_channel = {part.channel: part for part in parts}
        self._session = session
        channels = [*self._by_channel, *([] if shares is None else [shares.channel])]
        self._subscription = Subscription(session.another(), channels)
        self._demand = demand
        self._shares = shares
        #: How many messages may still be fetched in this round, and how many of them from one partition.
        self._left = self._share = 0

    def run_once(self) -> float:
        """Fetch as many messages as the pools will start soon, from the partitions that may have some."""
        # Before the first fetch: what comes after that must not be missed.
        if self._subscription.open():
            self._check_all()
        self._hear(0.0)
        active = [part for part in self._parts if part.may_fetch()]
        if not active:
            return PAUSED
        ahead = min((part.reader.ahead for part in active if part.reader.is_measured), default=FIRST)
        self._left = self._demand.messages(self._seconds(), self._held(), ahead)
        now = time.monotonic()
        due = [part for part in active if part.reader.busy or part.check_at <= now or self._must_check(part, now)]
        if self._left < 1 or not due:
            self._tell()
            return self._line_up(active) if self._left < 1 else self._wait(active, now)
        if self._shares is None:
            self._check_each(due)
            return 0.0
        share = self._shares.ask(self._held(), self._left)
        self._left = min(self._left, share.messages)
        if self._left:
            self._check_each(due)
            self._shares.give_back(self._left)
            self._tell()
        else:
            self._await_share(LISTEN if share.wait is None else min(LISTEN, share.wait))
        return 0.0

    def _await_share(self, seconds: float) -> None:
        """Wait until others need less of the limits, or deliveries of this consumer have ended."""
        held, ends = self._held(), time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and not self.stopping:
            if self._hear(min(left, TELL) if held else left) or self._held() < held:
                return

    def _check_each(self, due: Sequence[FetchedPartition]) -> None:
        self._share = max(BATCH, self._left // len(due))
        self.each(due, self._check, called=lambda part: part.name)

    def _wait(self, active: Sequence[FetchedPartition], now: float) -> float:
        """Wait for a notification, or the next look."""
        seconds = min(LISTEN, max(0.0, min(part.check_at for part in active) - now))
        if len(active) < len(self._parts):
            seconds = min(seconds, PAUSED)
        if self._shares is not None and self._held():
            seconds = min(seconds, TELL)
        self._hear(seconds)
        return 0.0

    def _held(self) -> int:
        """Return the number of deliveries that this consumer holds."""
        return sum(len(part.reader.settler.in_hand) for part in self._parts)

    def _tell(self) -> None:
        """Let others have what this consumer no longer needs of the limits."""
        if self._shares is not None and self._shares.is_due(held := self._held()):
            self._shares.ask(held, 0)

    def _check(self, part: FetchedPartition) -> None:
        if self._left < 1:
            return
        # It is the last in the next round, so that all have their turn.
        self._parts.remove(part)
        self._parts.append(part)
        reader = part.reader
        if reader.check_if_due():
            return
        now = time.monotonic()
        if rest := reader.store.rest():
            part.check_at, reader.busy = now + rest, False
            return
        # What comes while there is something to fetch needs no notification.
        part.transport.sleeps = not reader.busy
        taken = reader.take(reader.at_once(min(self._left, self._share)))
        self._left -= taken
        if not taken and part.transport.sleeps:
            part.check_at = now + self._pause(part)
        else:
            part.check_at = 0.0

    @staticmethod
    def _pause(part: FetchedPartition) -> float:
        pause, known = (CHECK if part.prefers() else CHECK_OTHERS), part.store.next_check()
        return pause if known is None else min(pause, known)

    @staticmethod
    def _must_check(part: FetchedPartition, now: float) -> bool:
        check = part.reader.next_check
        return check is not None and check <= now

    def _line_up(self, active: Sequence[FetchedPartition]) -> float:
        """Put messages into the lines of their keys while all handlers run; return the seconds until the next round."""
        more = [part.reader.store.line_up(part.reader.consumer) for part in active if part.reader.busy]
        return 0.0 if any(more) else NO_ROOM

    def _seconds(self) -> float:
        """Return the seconds that a handler takes."""
        settlers = [part.reader.settler for part in self._parts]
        return max((settler.seconds for settler in settlers if settler.settled), default=FIRST_SECONDS)

    def _hear(self, seconds: float) -> bool:
        """Read the notifications, after a wait of up to so many seconds for the first; return whether one came."""
        heard = False
        for channel, _ in self._subscription.messages(seconds):
            heard = True
            part = self._by_channel.get(channel)
            if part is not None:
                later = 0.0 if part.prefers() else random.uniform(*LATER)  # noqa: S311 - nothing secret
                part.check_at = min(part.check_at, time.monotonic() + later)
        return heard

    def _check_all(self) -> None:
        for part in self._parts:
            part.check_at = 0.0

    def recover(self, error: Exception) -> None:
        """Look at everything again: replies and notifications may have been lost."""
        self._subscription.close()
        for part in self._parts:
            part.reader.check_soon()

    def stop(self) -> None:
        """End the loop, and interrupt what it waits for."""
        super().stop()
        self._subscription.interrupt()
        self._session.interrupt()

    def close(self) -> None:
        """Close the connections."""
        self._subscription.close()
        self._session.close()
