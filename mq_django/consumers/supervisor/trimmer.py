"""Keep topics within their retention, and say when a group falls behind it."""

from collections.abc import Sequence

from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.signals import retention_alarm
from mq_django.stores.log import Log
from mq_django.stores.topic_stats import GroupStats

logger = get_logger(__name__)

#: Seconds between two looks at a topic.
EVERY = 10.0
#: Trims of one topic in a row: 250,000 messages. More wait for the next look, so that no topic keeps others waiting.
IN_A_ROW = 500
#: Messages counted of a group that is behind, where Redis does not know them.
MAX_COUNTED = 10_000


class Trimmer(Service):
    """Looks at every topic. Any number of these may run: one judges the groups, and a trim does no harm twice."""

    name = "trimmer"

    def __init__(self, logs: Sequence[Log]) -> None:
        super().__init__()
        self._logs = logs

    def run_once(self) -> float:
        """Look after every topic."""
        self.each(self._logs, self._look_after, called=lambda log: f"topic {log.config.name}")
        return EVERY

    def _look_after(self, log: Log) -> None:
        """Judge the groups, then trim, so that an alarm comes before the loss that it warns of."""
        if log.claim_check(0.9 * EVERY):
            for group in log.groups(at_most=MAX_COUNTED):
                self._judge(log, group)
        self._trim(log)

    def _trim(self, log: Log) -> None:
        for _ in range(IN_A_ROW):
            trimmed = log.trim()
            for group, count in trimmed.lost.items():
                logger.error(
                    "Group %s of topic %s lost %d messages that were over the retention before it read them",
                    *(group, log.config.name, count),
                )
            if self.stopping or not trimmed.more:
                return

    def _judge(self, log: Log, group: GroupStats) -> None:
        topic, share = log.config.name, group.share
        late = share is not None and share >= log.config.retention_alarm
        word = log.set_alarm(group.name, round(share * 100) if late and share is not None else None)
        if word == "RAISED":
            logger.warning(
                "Group %s of topic %s is %d messages and %d s behind: %d %% of the retention",
                *(group.name, topic, group.behind, group.behind_ms // 1000, round((share or 0) * 100)),
            )
            retention_alarm.send_robust(Trimmer, queue=topic, group=group.name, share=share, lag=group.lag)
        elif word == "CLEARED":
            logger.info("Group %s of topic %s has caught up", group.name, topic)
