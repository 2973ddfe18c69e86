"""Fetch the messages of the partitions of one queue that are on one server.

A blocked read for each partition would need a connection and a thread each. Instead, a fetch that finds nothing leaves
the key `asleep`, and whatever makes a message ready deletes it and publishes one notification: see `lua/preludes/`.
Notifications may be lost, and other programs may add messages without one, so all partitions are also looked at from
time to time: by the consumer that prefers a partition every two seconds, and rarely by the others.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mq_django.consumers.service import Service
from mq_django.consumers.worker.fetcher import NO_ROOM, PAUSED
from mq_django.consumers.worker.queue_reader import QueueReader
from mq_django.consumers.worker.room import Room
from mq_django.stores.partition_wire import PartitionWire
from mq_django.stores.shares import Shares
from mq_django.stores.stream_store import StreamStore
from mq_django.transport.cluster_wires import AnySession
from mq_django.transport.subscription import Subscription

#: Seconds between two looks at a partition without a notification: by the consumer that prefers it, and by others.
LOOK, LOOK_OTHERS = 2.0, 20.0
#: Seconds that others wait after a notification, so that mostly the consumer that prefers the partition is first.
LATER = (0.005, 0.02)
#: Messages that are fetched from one partition even if others have some: a trip for each message would cost more.
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
    #: The wire of the reader's store, and this store.
    wire: PartitionWire
    store: StreamStore
    #: Returns whether this consumer may fetch from it now, and whether it prefers it.
    may_fetch: Callable[[], bool]
    prefers: Callable[[], bool]
    #: When to look at it, on the monotonic clock.
    look_at: float = 0.0

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
        room: how many messages can run soon.
        shares: those of this fetcher in the limits of the queue as a whole, if it has some.
    """

    def __init__(
        self,
        queue: str,
        parts: Sequence[FetchedPartition],
        session: AnySession,
        *,
        room: Room,
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
        self._room = room
        self._shares = shares
        #: How many messages may still be fetched in this round, and how many of them from one partition.
        self._left = self._share = 0

    def run_once(self) -> float:
        """Fetch as many messages as the pools have room for, from the partitions that may have some."""
        # Before the first fetch: what comes after that must not be missed.
        if self._subscription.open():
            self._look_at_all()
        self._hear(0.0)
        active = [part for part in self._parts if part.may_fetch()]
        if not active:
            return PAUSED
        ahead = min(part.reader.ahead for part in active)
        self._left = self._room.messages(self._seconds(), self._held(), ahead)
        now = time.monotonic()
        due = [part for part in active if part.reader.busy or part.look_at <= now or self._must_check(part, now)]
        if self._left < 1 or not due:
            self._tell()
            return self._line_up(active) if self._left < 1 else self._wait(active, now)
        if self._shares is None:
            self._look_at(due)
            return 0.0
        share = self._shares.ask(self._held(), self._left)
        self._left = min(self._left, share.messages)
        if self._left:
            self._look_at(due)
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

    def _look_at(self, due: Sequence[FetchedPartition]) -> None:
        self._share = max(BATCH, self._left // len(due))
        self.each(due, self._look, called=lambda part: part.name)

    def _wait(self, active: Sequence[FetchedPartition], now: float) -> float:
        """Wait for a notification, or the next look."""
        seconds = min(LISTEN, max(0.0, min(part.look_at for part in active) - now))
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

    def _look(self, part: FetchedPartition) -> None:
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
            part.look_at, reader.busy = now + rest, False
            return
        # What comes while there is something to fetch needs no notification.
        part.wire.sleeps = not reader.busy
        taken = reader.take(reader.at_once(min(self._left, self._share)))
        self._left -= taken
        if not taken and part.wire.sleeps:
            part.look_at = now + self._pause(part)
        else:
            part.look_at = 0.0

    @staticmethod
    def _pause(part: FetchedPartition) -> float:
        pause, known = (LOOK if part.prefers() else LOOK_OTHERS), part.store.next_look()
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
                part.look_at = min(part.look_at, time.monotonic() + later)
        return heard

    def _look_at_all(self) -> None:
        for part in self._parts:
            part.look_at = 0.0

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
