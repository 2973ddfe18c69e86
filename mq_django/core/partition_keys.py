"""The keys that only queues and topics with partitions, and their partitions, have."""

from abc import ABC, abstractmethod


class PartitionKeys(ABC):
    """The part of the keys of a queue, a topic or a group that is about partitions."""

    __slots__ = ()

    @property
    def recorded(self) -> str:
        """HASH with the number of partitions in its field `partitions`, of what has some or is one."""
        return self._key("control")

    @property
    @abstractmethod
    def filled(self) -> tuple[str, ...]:
        """Return the keys that are not empty if there were messages before there were partitions."""

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

    @property
    def outbox(self) -> str:
        """HASH: outbox of a database -> its latest claim for this place, and how much of it is published."""
        return self._key("outbox")

    @abstractmethod
    def _key(self, kind: str) -> str:
        """Return the key of a kind."""


class KeysOfTopic(PartitionKeys):
    """The keys about partitions that a group shares with all groups of its topic."""

    __slots__ = ()

    @property
    @abstractmethod
    def topic(self) -> PartitionKeys:
        """The keys of the topic."""

    @property
    def recorded(self) -> str:
        """See PartitionKeys.recorded: a group has as many partitions as its topic."""
        return self.topic.recorded

    @property
    def filled(self) -> tuple[str, ...]:
        """See PartitionKeys.filled: the log."""
        return self.topic.filled

    @property
    def asleep(self) -> str:
        """See PartitionKeys.asleep: one for all groups, because what is published is for all of them."""
        return self.topic.asleep

    @property
    def arrivals(self) -> str:
        """See PartitionKeys.arrivals and `asleep`."""
        return self.topic.arrivals
