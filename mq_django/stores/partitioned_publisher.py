"""What queues and topics with partitions have in common: each message is published to its partition."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from mq_django.conf import DeliveryOptions
from mq_django.core.publication import Publication
from mq_django.stores.partition_count import check_reply, record_command
from mq_django.transport.sessions import Wire


class Publishes(Protocol):
    def publish(self, publications: Sequence[Publication]) -> Sequence[Any]:
        """Publish messages, all or none."""


ConfigT = TypeVar("ConfigT", bound=DeliveryOptions)
StoreT = TypeVar("StoreT", bound=Publishes)


class PartitionedPublisher(Generic[ConfigT, StoreT]):
    """Publishes each message to its partition.

    Args:
        config: the queue or topic.
        stores: those of its partitions, by name.
        wire: records the number of partitions at the first use.
    """

    def __init__(self, config: ConfigT, stores: Mapping[str, StoreT], wire: Wire) -> None:
        self.config = config
        self._stores = stores
        self._wire = wire
        self._is_checked = False

    def check(self) -> None:
        """Record the number of partitions at the first call, and check it.

        Raises:
            QueueClosed: there is another number of partitions than the settings say, or it is being changed.
        """
        if not self._is_checked:
            check_reply(self.config, self._wire.trip([record_command(self.config)])[0])
            self._is_checked = True

    def publish(self, publications: Sequence[Publication]) -> list[Any]:
        """Publish messages, those of one partition all or none, and return what its store returns of each.

        Raises:
            QueueClosed: there is another number of partitions than the settings say, or it is being changed.
        """
        self.check()
        if len(publications) == 1:
            return list(self._stores[publications[0].options.destination.name].publish(publications))
        by_part: dict[str, list[int]] = {}
        for at, each in enumerate(publications):
            by_part.setdefault(each.options.destination.name, []).append(at)
        found: list[Any] = [None] * len(publications)
        for name, places in by_part.items():
            ids = self._stores[name].publish([publications[at] for at in places])
            for at, message_id in zip(places, ids, strict=True):
                found[at] = message_id
        return found
