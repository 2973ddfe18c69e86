"""Fetch the messages of one queue, only as many as can run soon."""

import time
from collections.abc import Callable

from mq_django.consumers.service import Service
from mq_django.consumers.worker.queue_reader import QueueReader
from mq_django.consumers.worker.room import Room
from mq_django.transport.cluster_wires import AnySession
from mq_django.transport.connections import BLOCK_MS

#: Seconds until the next check when there is no room, unless the fetcher is woken.
NO_ROOM = 1.0
#: Seconds between two checks while the queue is paused, or no heartbeat has announced this consumer.
PAUSED = 0.05
#: Milliseconds that a read waits while a pool is blocked. Redis serves the read that has waited longest, so a longer
#: read would get the messages that this consumer hands back for idle ones.
BLOCKED_BLOCK_MS = 200


class Fetcher(Service):
    """Reads one queue and passes its messages to the pools. Redis serves blocked reads in turn, which makes it fair.

    Args:
        reader: reads the queue.
        session: its connection, of this thread only.
        room: how many messages can run soon.
        may_fetch: returns whether this consumer may fetch now.
        share: how many fetchers share the pools. While all of them block, each asks for its share of the room.
    """

    def __init__(
        self, reader: QueueReader, session: AnySession, *, room: Room, may_fetch: Callable[[], bool], share: int
    ) -> None:
        super().__init__()
        config = reader.store.config
        self.name = f"fetcher of {config.name}"
        self.connection = config.connection
        self._reader = reader
        self._store = reader.store
        self._settler = reader.settler
        self._session = session
        self._room = room
        self._may_fetch = may_fetch
        self._share = share
        #: The last fetch has waited for messages.
        self._has_waited = False

    def run_once(self) -> float:
        """Fetch as many messages as the pools have room for."""
        if not self._may_fetch():
            return PAUSED
        in_hand = len(self._settler.in_hand)
        room = self._reader.at_once(self._room.messages(self._settler.seconds, in_hand, self._reader.ahead))
        if room < 1:
            # While all handlers run, a message of a quiet key gets its turn.
            return 0.0 if self._store.line_up(self._reader.consumer) else NO_ROOM
        if self._reader.check_if_due():
            return 0.0
        if rest := self._store.rest():
            return rest
        if self._reader.busy:
            after_wait, self._has_waited = self._has_waited, False
            self._reader.take(room, after_wait=after_wait)
        else:
            self._wait(max(1, room // self._share))
        return 0.0

    def _wait(self, count: int) -> None:
        """Fetch messages, and wait for the first."""
        with self._settler.no_more():
            taken = self._store.fetch(self._reader.consumer, count=count, block_ms=self._block_ms())
        self._reader.busy = self._has_waited = True
        self._reader.pass_on(taken)

    def recover(self, error: Exception) -> None:
        """Schedule checks for deliveries whose reply was lost: when Redis answers again, and for a while after."""
        self._reader.check_soon()

    def stop(self) -> None:
        """End the loop, and interrupt a blocked read."""
        super().stop()
        self._session.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _block_ms(self) -> int:
        longest, check = BLOCKED_BLOCK_MS if self._room.is_blocked() else BLOCK_MS, self._reader.next_check
        return longest if check is None else max(1, min(longest, int((check - time.monotonic()) * 1000)))
