"""A queue with partitions, for producers. Consumers have the store of each partition."""

from collections.abc import Callable, Iterator

from mq_django.conf import QueueConfig
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.lookup import CancelResult, Lookup, Place
from mq_django.stores.base import Store
from mq_django.stores.partitioned_publisher import PartitionedPublisher


class PartitionedStore(PartitionedPublisher[QueueConfig, Store]):
    """Publishes each message to its partition, and looks for messages in all of them."""

    def cancel(self, id_or_unique: str | bytes) -> CancelResult:
        """See Store.cancel()."""
        return self._first(id_or_unique, lambda store: store.cancel(id_or_unique))

    def cancel_running(self, id_or_unique: str | bytes, *, force: bool = False) -> CancelResult:
        """See Store.cancel_running(). Consumers of all partitions are asked if it is not known which one has it."""
        found = self.cancel(id_or_unique)
        if found is not CancelResult.NOT_WAITING:
            return found
        asked = [store.cancel_running(id_or_unique, force=force) for store in self._stores_of(id_or_unique)]
        return next((result for result in asked if result is not CancelResult.NOT_WAITING), CancelResult.NOT_WAITING)

    def reschedule(self, id_or_unique: str, *, delay_ms: int | None = None, due_ms: int | None = None) -> CancelResult:
        """See Store.reschedule()."""
        return self._first(id_or_unique, lambda store: store.reschedule(id_or_unique, delay_ms=delay_ms, due_ms=due_ms))

    def find(self, id_or_unique: str) -> Lookup:
        """See Store.find()."""
        found = Lookup(Place.NOT_WAITING)
        for store in self._stores_of(id_or_unique):
            found = store.find(id_or_unique)
            if found.place is not Place.NOT_WAITING:
                break
        return found

    def _first(self, id_or_unique: str | bytes, ask: Callable[[Store], CancelResult]) -> CancelResult:
        for store in self._stores_of(id_or_unique):
            found = ask(store)
            if found is not CancelResult.NOT_WAITING:
                return found
        return CancelResult.NOT_WAITING

    def _stores_of(self, id_or_unique: str | bytes) -> Iterator[Store]:
        """Yield the partitions in which a message may be, the likely one first."""
        text = id_or_unique.decode(errors="replace") if isinstance(id_or_unique, bytes) else id_or_unique
        is_unique = text.startswith(UNIQUE_PREFIX)
        places = self.config.places_by(text.removeprefix(UNIQUE_PREFIX)) if is_unique else self.config.places_of(text)
        return (self._stores[place.name] for place in places)
