"""Fetch the messages of one queue, only as many as can run soon."""

import time
from collections.abc import Callable, Collection, Sequence

from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import stored_entry
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.room import Room
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import ACK
from mq_django.stores.base import Settlement, Store, StreamEntry
from mq_django.stores.settling import message_id
from mq_django.transport.cluster_wires import AnySession
from mq_django.transport.connections import BLOCK_MS

logger = get_logger(__name__)

#: Seconds until the next check when there is no room, unless the fetcher is woken.
NO_ROOM = 1.0
#: Seconds between two checks while the queue is paused, or no heartbeat has announced this consumer.
PAUSED = 0.05
#: Milliseconds that a read waits while a pool is blocked. Redis serves the read that has waited longest, so a longer
#: read would get the messages that this consumer hands back for idle ones.
BLOCKED_BLOCK_MS = 200
#: Held deliveries that are checked after a lost connection.
STRANDED = 5000
#: Seconds after a failure at which to check for stranded deliveries. Redis may still execute a command that was sent
#: over a connection that is closed by now.
CHECK_AFTER = (0.0, 1.0, 5.0, 15.0, 60.0)


class Fetcher(Service):
    """Reads one queue and passes its messages to the pools. Redis serves blocked reads in turn, which makes it fair."""

    def __init__(
        self,
        store: Store,
        session: AnySession,
        consumer: str,
        *,
        dispatcher: Dispatcher,
        room: Room,
        may_fetch: Callable[[], bool],
        handled: Callable[[], Collection[StreamEntry]],
        share: int,
    ) -> None:
        super().__init__()
        self.name = f"fetcher of {store.config.name}"
        self.connection = store.config.connection
        self._store = store
        self._session = session
        self._consumer = consumer
        self._dispatcher = dispatcher
        self._settler = dispatcher.settler
        self._room = room
        self._may_fetch = may_fetch
        #: Returns the latest handled deliveries, including settled ones.
        self._handled = handled
        #: How many fetchers share the pools. While all of them block, each asks for its share of the room.
        self._share = share
        #: There may be more to take; the last fetch has waited for messages.
        self._busy, self._has_waited = True, False
        #: The times on the monotonic clock at which to check for stranded deliveries.
        self._checks: list[float] = []
        self._moves = session.moves

    def run_once(self) -> float:
        """Fetch as many messages as the pools have room for."""
        if not self._may_fetch():
            return PAUSED
        room = self._room.messages(self._settler.seconds)
        if room < 1:
            # While all handlers run, a message of a quiet key gets its turn.
            return 0.0 if self._store.line_up(self._consumer) else NO_ROOM
        if self._checks and self._checks[0] <= time.monotonic():
            self._take_stranded()
            self._checks.pop(0)
        elif rest := self._store.rest():
            return rest
        elif self._busy:
            taken = self._settler.settle_and_take(self._store, count=room, after_wait=self._has_waited)
            self._busy, self._has_waited = bool(taken), False
            self._pass_on(taken)
        else:
            with self._settler.no_more():
                taken = self._store.fetch(self._consumer, count=max(1, room // self._share), block_ms=self._block_ms())
            self._busy = self._has_waited = True
            self._pass_on(taken)
        return 0.0

    def _pass_on(self, taken: Sequence[Delivery | Undecodable]) -> None:
        """Run what was taken, except what this consumer runs already, or has run and acked just now."""
        if self._moves != self._session.moves:
            # What a master executes after another one took its place is lost: also acks that it has confirmed.
            self._moves = self._session.moves
            self._check_soon()
        # Only a new master, which does not have the last writes of the old one, delivers something again.
        if self._checks and taken:
            taken = self._settler.not_again(taken)
        self._dispatcher.dispatch(taken)

    def recover(self, error: Exception) -> None:
        """Schedule checks for deliveries whose reply was lost: when Redis answers again, and for a while after."""
        self._check_soon()

    def _check_soon(self) -> None:
        self._busy = True
        now = time.monotonic()
        self._checks = [now + seconds for seconds in CHECK_AFTER]

    def stop(self) -> None:
        """End the loop, and interrupt a blocked read."""
        super().stop()
        self._session.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _block_ms(self) -> int:
        longest = BLOCKED_BLOCK_MS if self._room.is_blocked() else BLOCK_MS
        if not self._checks:
            return longest
        return max(1, min(longest, int((self._checks[0] - time.monotonic()) * 1000)))

    def _take_stranded(self) -> None:
        """Run deliveries whose reply was lost."""
        # Copied first: a delivery that is settled meanwhile would look stranded.
        known = set(self._settler.in_hand)
        held = self._store.held_by(self._consumer, limit=STRANDED)
        stranded = [item for item in held if (item.stream, item.entry) not in known]
        if not stranded:
            return
        text = "Recovered %d deliveries of queue %s whose reply was lost"
        logger.warning(text, len(stranded), self._store.config.name)
        # A Redis that has lost its last second of writes has lost acks as well.
        done = self._handled()
        for item in stranded:
            if (item.stream, stored_entry(item.entry)) in done:
                self._settler.in_hand[item.stream, item.entry] = message_id(item)
                self._settler.add(Settlement(item, ACK))
        stranded = [item for item in stranded if (item.stream, stored_entry(item.entry)) not in done]
        self._dispatcher.dispatch(self._store.admit(self._consumer, stranded))
