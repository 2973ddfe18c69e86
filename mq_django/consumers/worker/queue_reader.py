"""The deliveries that a consumer reads of one queue: passed on to the pools, and found again after a lost reply."""

import time
from collections.abc import Callable, Collection, Sequence

from mq_django.consumers.receipts import stored_entry
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.pools import MAX_PREFETCH
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import ACK
from mq_django.stores.base import Settlement, Store, StreamEntry
from mq_django.stores.settling import message_id
from mq_django.transport.cluster_wires import AnySession

logger = get_logger(__name__)

#: Held deliveries that are checked after a lost connection.
STRANDED = 5000
#: Seconds after a failure at which to check for stranded deliveries. Redis may still execute a command that was sent
#: over a connection that is closed by now.
CHECK_AFTER = (0.0, 1.0, 5.0, 15.0, 60.0)
#: Bytes of the messages of a queue that wait in a process beside those that can start at once, and of one fetch; about.
FETCH_BYTES = 16 * 1024 * 1024


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
        self.ahead = MAX_PREFETCH
        self._bytes_each = 0
        #: The times on the monotonic clock at which to check for stranded deliveries.
        self._checks: list[float] = []
        self._moves = session.moves

    @property
    def next_check(self) -> float | None:
        """When to check for stranded deliveries, on the monotonic clock; None: not at all."""
        return self._checks[0] if self._checks else None

    def at_once(self, room: int) -> int:
        """Return how many messages to fetch at once, if there is room for so many."""
        return room if self.ahead == MAX_PREFETCH else min(room, max(1, self.ahead))

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
