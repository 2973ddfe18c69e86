"""Trim topics to their retention, and report groups that are close to losing messages."""

import time
from collections.abc import Mapping, Sequence

from django.db import connections

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.inbox.once import databases_of, delete_old
from mq_django.signals import retention_alarm, send_signal
from mq_django.stores.handled import MessageHistory
from mq_django.stores.log import Log, PartitionedLog
from mq_django.stores.topic_stats import GroupStats

logger = get_logger(__name__)

#: Seconds between two checks of a topic.
LOG_INTERVAL = 10.0
#: Trims of one topic in a row: 250,000 messages. More wait for the next check, so that no topic delays the others.
LOG_TRIMS = 500
#: The most messages that are counted of a group whose lag Redis does not know.
MAX_COUNTED = 10_000


class Trimmer(Service):
    """Checks every topic. Any number of processes may do so: one at a time checks the groups; trims are idempotent.

    Args:
        logs: of topics and partitions on one server.
        topics: the topics whose groups are checked.
    """

    name = "trimmer"

    def __init__(self, logs: Sequence[Log], topics: Sequence[Log | PartitionedLog]) -> None:
        super().__init__()
        self._logs = logs
        self._topics = topics

    def run_once(self) -> float:
        """Check the groups, then trim, so that an alarm comes before the loss that it warns of."""
        # First, because a lag by an old count would be an alarm.
        self.each(self._logs, Log.recount, called=lambda log: f"topic {log.config.name}")
        self.each(self._topics, self._check, called=lambda topic: f"topic {topic.config.name}")
        self.each(self._logs, self._trim, called=lambda log: f"topic {log.config.name}")
        return LOG_INTERVAL

    def _check(self, topic: Log | PartitionedLog) -> None:
        if not topic.claim_check(0.9 * LOG_INTERVAL):
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
        for _ in range(LOG_TRIMS):
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
            send_signal(retention_alarm, Trimmer, queue=topic, group=group.name, share=share, lag=group.lag)
        elif change == "CLEARED":
            logger.info("Group %s of topic %s has caught up", group.name, topic)


# Trim the histories of queues to what their HISTORY allows.

#: Seconds between two rounds.
HISTORY_INTERVAL = 10.0
#: Trims of one queue in a row: 500,000 messages. More wait for the next round, so that no queue delays the others.
HISTORY_TRIMS = 1000


class HistoryTrimmer(Service):
    """Trims the histories of its queues. Any number of processes may do so, because a trim is idempotent."""

    name = "history trimmer"

    def __init__(self, histories: Sequence[MessageHistory]) -> None:
        super().__init__()
        self._histories = histories

    def run_once(self) -> float:
        """Trim the history of every queue."""
        self.each(self._histories, self._trim, called=lambda history: history.config.name)
        return HISTORY_INTERVAL

    def _trim(self, history: MessageHistory) -> None:
        for _ in range(HISTORY_TRIMS):
            if not history.trim().more or self.stopping:
                return
            self.progressed = time.monotonic()


# Delete the rows of the inbox that are older than INBOX_RETENTION.

#: Seconds between two rounds.
INBOX_INTERVAL = 600.0
#: Batches of one database in a row. More wait for the next round.
INBOX_TRIMS = 100
#: Seconds until the next round when a database had more.
SOON = 1.0


class InboxTrimmer(Service):
    """Deletes old rows in some databases. Any number of processes may do so."""

    name = "inbox trimmer"

    def __init__(self, databases: Sequence[str]) -> None:
        super().__init__()
        # It uses no Redis.
        self.connection = None
        self._databases = databases
        self._has_more = False

    def run_once(self) -> float:
        """Delete what is old in every database."""
        self._has_more = False
        self.each(self._databases, self._trim, called=lambda using: f"database {using}")
        return SOON if self._has_more else INBOX_INTERVAL

    def progress(self) -> Mapping[str, object]:
        """See Service.progress(). How long a database lets it wait is a setting of the project, and is no failure."""
        found = super().progress()
        return {name: None if value is None else time.monotonic() for name, value in found.items()}

    def _trim(self, using: str) -> None:
        try:
            for _ in range(INBOX_TRIMS):
                if self.stopping or not delete_old(using):
                    return
                self.progressed = time.monotonic()
            self._has_more = True
        finally:
            # Idle for most of the time, so it holds no connection.
            connections[using].close()


def inbox_trimmers(queues: Sequence[QueueConfig]) -> list[InboxTrimmer]:
    """Return the service that deletes old rows, if a handler of these queues has `@exactly_once`."""
    found = {using for config in queues for using in databases_of(config.name)}
    return [InboxTrimmer(sorted(found))] if found else []
