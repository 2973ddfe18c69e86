"""A queue with partitions, for producers. Consumers have the store of each partition."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from mq_django.conf import QueueConfig
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.lookup import CancelResult, Lookup, Place
from mq_django.core.publication import Publication
from mq_django.stores.base import Store
from mq_django.stores.partition_count import check_reply, record_command
from mq_django.transport.sessions import Wire


class PartitionedStore:
    """Publishes each message to its partition, and looks for messages in all of them.

    Args:
        config: the queue.
        stores: those of its partitions, by name.
        wire: records the number of partitions at the first use.
    """

    def __init__(self, config: QueueConfig, stores: Mapping[str, Store], wire: Wire) -> None:
        self.config = config
        self._stores = stores
        self._wire = wire
        self._is_checked = False

    def check(self) -> None:
        """Record the number of partitions at the first call, and check it.

        Raises:
            QueueClosed: the queue has another number of partitions than the settings say, or it is being changed.
        """
        if not self._is_checked:
            check_reply(self.config, self._wire.trip([record_command(self.config)])[0])
            self._is_checked = True

    def publish(self, publications: Sequence[Publication]) -> list[str]:
        """Publish messages, and return their ids; those of one partition all or none: see Store.publish().

        Raises:
            QueueClosed: the queue has another number of partitions than the settings say, or it is being changed.
        """
        self.check()
        if len(publications) == 1:
            return self._stores[publications[0].options.destination.name].publish(publications)
        by_part: dict[str, list[int]] = {}
        for at, each in enumerate(publications):
            by_part.setdefault(each.options.destination.name, []).append(at)
        found = [""] * len(publications)
        for name, places in by_part.items():
            ids = self._stores[name].publish([publications[at] for at in places])
            for at, message_id in zip(places, ids, strict=True):
                found[at] = message_id
        return found

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
