"""A store of a consumer that reports its fetches and the outcomes that it settles."""

import time
from collections.abc import Sequence
from typing import Any, cast

from mq_django.consumers.measuring import ConsumerMeasurer, Measurers
from mq_django.consumers.worker.settler import ready_ms
from mq_django.core import clock
from mq_django.core.messages import Delivery, Undecodable
from mq_django.stores.base import NOTHING, Also, Fetched, Settlement, Store
from mq_django.stores.stream_store import StreamStore


def measured(store: Store) -> Store:
    """Return a store that reports to the measurer of this process; without one, the store itself."""
    found = Measurers.consumer
    return store if found is None else cast("Store", MeasuredStore(store, found))


class MeasuredStore:
    """Calls a store, and reports what a consumer fetches and settles."""

    def __init__(self, store: Store, measurer: ConsumerMeasurer) -> None:
        self._store = store
        self._measurer = measurer
        self._queue = store.config.public_name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def take(self, consumer: str, *, count: int) -> Sequence[Delivery | Undecodable]:
        """See Store.take()."""
        began = time.monotonic()
        found = self._store.take(consumer, count=count)
        self._fetched(found, time.monotonic() - began)
        return found

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Sequence[Delivery | Undecodable]:
        """See Store.fetch()."""
        began = clock.now()
        found = self._store.fetch(consumer, count=count, block_ms=block_ms)
        self._waited(found, began)
        return found

    def woken(self, entries: list[Any], began: float) -> Sequence[Delivery | Undecodable]:
        """See StreamStore.woken()."""
        found = cast("StreamStore", self._store).woken(entries, began)
        self._waited(found, clock.now() - (time.monotonic() - began))
        return found

    def _waited(self, found: Sequence[Delivery | Undecodable], began: float) -> None:
        """Report what a read has returned that has waited since a time, in seconds since 1970."""
        now = clock.now()
        self._fetched(found, None)
        ready = ready_ms(found[0]) if found and isinstance(found[0], Delivery) else None
        # A message that was ready before waited for something else, such as the end of a pause.
        if ready is not None and ready >= began * 1000:
            Measurers.report(self._measurer.woken, self._queue, max(0.0, now - ready / 1000))

    def settle(self, consumer: str, settlements: Sequence[Settlement], *, also: Also = NOTHING) -> list[str]:
        """See Store.settle()."""
        began = time.monotonic()
        stale = self._store.settle(consumer, settlements, also=also)
        Measurers.report(self._measurer.settled, self._queue, settlements, time.monotonic() - began)
        return stale

    def settle_and_take(
        self, consumer: str, settlements: Sequence[Settlement], *, count: int, also: Also = NOTHING
    ) -> Fetched:
        """See Store.settle_and_take()."""
        began = time.monotonic()
        fetched = self._store.settle_and_take(consumer, settlements, count=count, also=also)
        seconds = time.monotonic() - began
        Measurers.report(self._measurer.settled, self._queue, settlements, seconds)
        self._fetched(fetched.deliveries, seconds)
        return fetched

    def _fetched(self, found: Sequence[Delivery | Undecodable], seconds: float | None) -> None:
        if found:
            Measurers.report(self._measurer.fetched, self._queue, len(found), seconds)
