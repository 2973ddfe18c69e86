"""The keys that only queues and topics with partitions, and their partitions, have."""


class PartitionKeys:
    """The part of the keys of a queue, a topic or a group that is about partitions."""

    __slots__ = ()

    @property
    def recorded(self) -> str:
        """HASH with the number of partitions in its field `partitions`, of what has some or is one."""
        return self._key("control")

    @property
    def filled(self) -> tuple[str, ...]:
        """Return the keys that are not empty if there were messages before there were partitions."""
        raise NotImplementedError

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
