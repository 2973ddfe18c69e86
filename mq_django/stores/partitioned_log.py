"""The logs of a topic with partitions, as one. Within a partition they have an order, between partitions none."""

import heapq
import math
from collections.abc import Iterator, Sequence

from mq_django.conf import TopicConfig
from mq_django.core.exceptions import repr_of
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.offsets import Offset, parse
from mq_django.errors import UnknownGroup
from mq_django.stores.log import Log
from mq_django.stores.partitioned_publisher import PartitionedPublisher
from mq_django.stores.topic_stats import groups_of
from mq_django.stores.topic_values import GroupStats

#: What Log.set_alarm() returns of a group that does not exist.
MISSING = "MISSING"


class PartitionedLog(PartitionedPublisher[TopicConfig, Log]):
    """Publishes each message to its partition, and moves groups in all of them."""

    def subscribe(self, group: str, start: Offset) -> bool:
        """See Log.subscribe(). An entry id stands for its time in the partitions that do not have the entry.

        Raises:
            QueueClosed: the topic has another number of partitions than the settings say.
        """
        self.check()
        created = [log.subscribe(group, start) for log in self._stores.values()]
        return any(created)

    def seek(self, group: str, place: Offset) -> None:
        """See Log.seek() and subscribe(). Partitions that do not have the group get it at this place.

        If a node fails, the group has been moved in some partitions. Repeat it then.

        Raises:
            UnknownGroup: the group exists in no partition.
        """
        missing = [log for log in self._stores.values() if not log.move(group, place)]
        if len(missing) == len(self._stores):
            raise UnknownGroup(f"Topic {self.config.name!r} has no group {repr_of(group)}")
        for log in missing:
            log.subscribe(group, place)

    def unsubscribe(self, group: str, *, now: float) -> bool:
        """See Log.unsubscribe()."""
        removed = [log.unsubscribe(group, now=now) for log in self._stores.values()]
        return any(removed)

    def read(self, since: Offset, until: Offset, *, batch: int = 100) -> Iterator[Delivery | Undecodable]:
        """Yield the entries of all logs between two places, both included, by the time of their publication."""
        logs = [log.read(since, until, batch=batch) for log in self._stores.values()]
        return heapq.merge(*logs, key=lambda found: parse(found.entry.decode()))

    def claim_check(self, seconds: float) -> bool:
        """See Log.claim_check(): the first partition has the claim."""
        return self._first.claim_check(seconds)

    def groups(self, *, at_most: float = math.inf) -> Sequence[GroupStats]:
        """Return all groups, each with the sums of its partitions: see Log.groups()."""
        return groups_of(self.config, self._wire, at_most=at_most)

    def set_alarm(self, group: str, percent: int | None) -> str:
        """See Log.set_alarm(): the first partition that has the group has its alarm."""
        changes = (log.set_alarm(group, percent) for log in self._stores.values())
        return next((change for change in changes if change != MISSING), MISSING)

    @property
    def _first(self) -> Log:
        return next(iter(self._stores.values()))
