"""The latest acks of one queue in this process."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import cast

from mq_django.core.outcomes import ACK
from mq_django.stores.base import Settlement, StreamEntry
from mq_django.stores.settling import message_id

#: Acks that are remembered: those of about a second at full speed. A replica lacks less than that when it takes over.
ACKED = 10_000


class LatestAcks:
    """The deliveries of the latest acks, with the ids of their messages. Several threads may add some."""

    def __init__(self) -> None:
        #: Each element has those of a round trip: one for each ack would cost the garbage collector much time.
        self._trips: deque[tuple[Sequence[StreamEntry], Sequence[str]]] = deque()
        self._count = 0
        self._lock = threading.Lock()

    def add(self, batch: Sequence[Settlement], receipts: Sequence[StreamEntry], known: Sequence[str | None]) -> None:
        """Note those of these settled deliveries that were acked.

        Args:
            batch: the deliveries with their outcomes.
            receipts: theirs.
            known: the ids of their messages, as far as these are known.
        """
        ids = [of or message_id(s.delivery) for of, s in zip(known, batch, strict=True)] if not all(known) else known
        is_acked = [s.outcome is ACK for s in batch]
        if not all(is_acked):
            receipts, ids = list(compress(receipts, is_acked)), list(compress(ids, is_acked))
        if not receipts:
            return
        with self._lock:
            self._trips.append((receipts, cast("Sequence[str]", ids)))
            self._count += len(receipts)
            while self._count - len(self._trips[0][0]) >= ACKED:
                self._count -= len(self._trips.popleft()[0])

    def ids(self) -> Mapping[StreamEntry, str]:
        """Return the ids of the messages by their receipts, at least of the latest ACKED acks."""
        with self._lock:
            trips = list(self._trips)
        return {receipt: known for trip in trips for receipt, known in zip(*trip, strict=True)}
