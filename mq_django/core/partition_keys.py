"""The keys that only queues with partitions, and their partitions, have."""


class PartitionKeys:
    """The part of a queue's keys that is about partitions."""

    __slots__ = ()

    @property
    def asleep(self) -> str:
        """STRING with a TTL, of a partition: there was nothing to fetch, and what comes next is to wake consumers."""
        return self._key("asleep")

    @property
    def shares(self) -> str:
        """HASH, of a queue with partitions: consumer -> its share of the limits of the whole queue, and its end."""
        return self._key("shares")

    @property
    def arrivals(self) -> str:
        """Pub/sub channel, of a partition: consumers had found nothing, and now there is something."""
        return self._key("arrivals")

    @property
    def moving(self) -> str:
        """STREAM, of a partition: what is on its way to another one, while the number of partitions is changed."""
        return self._key("moving")

    @property
    def arrived(self) -> str:
        """HASH, of a partition: tag of another one -> the latest entry of its `moving` that has arrived here."""
        return self._key("arrived")

    def _key(self, kind: str) -> str:
        raise NotImplementedError
