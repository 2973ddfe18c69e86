"""Trim topics to their retention, and report groups that are close to losing messages."""

from collections.abc import Sequence

from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.signals import retention_alarm
from mq_django.stores.log import Log
from mq_django.stores.partitioned_log import PartitionedLog
from mq_django.stores.topic_values import GroupStats

logger = get_logger(__name__)

#: Seconds between two checks of a topic.
EVERY = 10.0
#: Trims of one topic in a row: 250,000 messages. More wait for the next check, so that no topic delays the others.
IN_A_ROW = 500
#: The most messages that are counted of a group whose lag Redis does not know.
MAX_COUNTED = 10_000


class Trimmer(Service):
    """Checks every topic. Any number of processes may do so: one at a time checks the groups; trims are idempotent.

    Args:
        logs: those of topics and partitions on one server.
        topics: the topics whose groups are checked.
    """

    name = "trimmer"

    def __init__(self, logs: Sequence[Log], topics: Sequence[Log | PartitionedLog]) -> None:
        super().__init__()
        self._logs = logs
        self._topics = topics

    def run_once(self) -> float:
        """Check the groups, then trim, so that an alarm comes before the loss that it warns of."""
        self.each(self._topics, self._check, called=lambda topic: f"topic {topic.config.name}")
        self.each(self._logs, self._trim, called=lambda log: f"topic {log.config.name}")
        return EVERY

    def _check(self, topic: Log | PartitionedLog) -> None:
        if not topic.claim_check(0.9 * EVERY):
            return
        try:
            groups = topic.groups(at_most=MAX_COUNTED)
        except StoreError as error:
            if not topic.config.parts:
                raise
            # Another node may be away. The logs on this one are trimmed all the same.
            logger.info("The groups of topic %s are not checked: %s", topic.config.name, error)
            return
        for group in groups:
            self._check_group(topic, group)

    def _trim(self, log: Log) -> None:
        for _ in range(IN_A_ROW):
            trimmed = log.trim()
            for group, count in trimmed.lost.items():
                logger.error(
                    "Group %s of topic %s lost %d messages: they exceeded the retention before it read them",
                    *(group, log.config.name, count),
                )
            if self.stopping or not trimmed.more:
                return

    def _check_group(self, log: Log | PartitionedLog, group: GroupStats) -> None:
        topic, share = log.config.name, group.share
        late = share is not None and share >= log.config.retention_alarm
        change = log.set_alarm(group.name, round(share * 100) if late and share is not None else None)
        if change == "RAISED":
            logger.warning(
                "Group %s of topic %s is %d messages and %d s behind: %d %% of the retention",
                *(group.name, topic, group.behind, group.behind_ms // 1000, round((share or 0) * 100)),
            )
            retention_alarm.send_robust(Trimmer, queue=topic, group=group.name, share=share, lag=group.lag)
        elif change == "CLEARED":
            logger.info("Group %s of topic %s has caught up", group.name, topic)
