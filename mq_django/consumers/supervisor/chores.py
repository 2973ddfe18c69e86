"""Keep logs, histories and the inbox within their limits, run background jobs, and look after runs of workflows."""

import time
from collections.abc import Mapping, Sequence

from django.db import connections

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.service import Answer, ServerQueues, Service, open_session_to
from mq_django.consumers.supervisor.promoter import NextChecks
from mq_django.core.logs import get_logger
from mq_django.errors import NotPermitted, StoreError
from mq_django.inbox.once import databases_of, delete_old
from mq_django.producers.workflow_run import by_run, do, forget_old
from mq_django.producers.workflow_steps import StepDelivery, open_homes
from mq_django.signals import retention_alarm, send_signal
from mq_django.stores.background_jobs import IDLE, BackgroundJobs
from mq_django.stores.handled import MessageHistory
from mq_django.stores.log import Log, PartitionedLog
from mq_django.stores.message_scans import ActionableState
from mq_django.stores.topic_stats import GroupStats
from mq_django.stores.workflow_home import WorkflowHome, noted
from mq_django.transport.connections import open_transport

logger = get_logger(__name__)

# Trim topics to their retention, and report groups that are close to losing messages.

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


# Run the background jobs that redrive or delete many messages.

#: Seconds between two steps of a job without a rate limit, so that Redis serves others in between.
MIN_PAUSE = 0.01


class JobRunner(Service):
    """Runs the jobs of its queues. One supervisor at a time runs a job, and any other can continue it."""

    name = "redriver"

    def __init__(self, queues: ServerQueues, worker: str) -> None:
        super().__init__()
        self._session = open_session_to(queues)
        self._queues = queues
        self._jobs = {number: BackgroundJobs(config, self._session) for number, config in queues.items()}
        self._worker = worker
        self._checks = NextChecks(self._jobs)
        #: The next step of each running job, on the monotonic clock: each has its own pace.
        self._steps: dict[tuple[int, ActionableState], float] = {}

    def expect(self, number: int) -> None:
        """Check a queue now: it has a job."""
        self._checks.ask(number)
        self.wake()

    def run_once(self) -> float:
        """Make one step of every job that is due."""
        self._find_all()
        now = time.monotonic()
        due = [which for which, moment in self._steps.items() if moment <= now]
        self.each(due, self._work, called=lambda which: self._queues[which[0]].name)
        pauses = (moment - time.monotonic() for moment in self._steps.values())
        return max(0.0, min((self._checks.pause(), *pauses)))

    def _find_all(self) -> None:
        """Find the jobs of all queues whose check is due, and of those for which it is soon."""
        due = list(self._checks.due())
        numbers = sorted({*due, *self._checks.soon(IDLE / 2)}) if due else []
        for number in numbers:
            self._checks.begin(number, IDLE)
        self.each_together(
            numbers,
            lambda number: self._jobs[number].running_command(),
            self._find_jobs,
            transport=self._session,
            called=lambda number: self._queues[number].name,
        )

    def _find_jobs(self, number: int, answer: Answer) -> None:
        states = self._jobs[number].read_running(answer.reply)
        for state in states:
            self._steps.setdefault((number, state), 0.0)

    def _work(self, which: tuple[int, ActionableState]) -> None:
        # An error ends it here, and the next look at the queue finds the job again.
        del self._steps[which]
        number, state = which
        pause = self._jobs[number].work(self._worker, state)
        if pause < IDLE:
            self._steps[which] = time.monotonic() + max(MIN_PAUSE, pause)

    def recover(self, error: Exception) -> None:
        """Check all queues again: Redis may have executed a step whose reply was lost."""
        self._checks.ask_all()


def work_here(queue: str, worker: str, state: ActionableState = "dead") -> float:
    """Make one step of a queue's job for a caller that waits for it; return the seconds until the next step.

    Of a queue with partitions one step of each job. IDLE means that there is no job.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: Redis cannot be reached or refused.
    """
    config = get_config().queue(queue)
    transport = open_transport("inspect", config.connection)
    return min([BackgroundJobs(part, transport).work(worker, state) for part in config.each_part])


# Continue what processes that have ended have left of workflows, and end runs that have expired.

#: Seconds between two rounds: while there are runs, and otherwise.
RUN_TICK, RUN_IDLE = 1.0, 5.0
#: What is older than this was left by a process that has ended.
OLD_MS = 1000
#: Seconds between two looks at the list of all runs, and for notes about steps of runs that do not exist.
FORGET = 60.0


class WorkflowService(Service):
    """Every supervisor does this for all runs and all queues: what two of them do, is done once."""

    name = "workflows"

    def __init__(self, queues: Sequence[QueueConfig]) -> None:
        super().__init__()
        self.connection = None
        self._forgot = 0.0
        #: By home: runs at the beginning of its list that still exist, and the last start of the last round.
        self._skipped: dict[str, int] = {}
        self._after: dict[str, bytes] = {}
        #: By server: its queues.
        self._queues: dict[str, list[QueueConfig]] = {}
        for config in queues:
            if "step" not in config.unsupported:
                self._queues.setdefault(config.connection, []).append(config)
        self._couriers = {
            config.name: StepDelivery(config, open_transport("consume", server))
            for server, group in self._queues.items()
            for config in group
        }

    def run_once(self) -> float:
        """Deliver notes, publish starts, continue changes and end expired runs that nobody else has."""
        homes = {home.keys.home: home for home in open_homes()}
        try:
            left = {key: home.left(age_ms=OLD_MS, after=self._after.get(key, b"")) for key, home in homes.items()}
        except NotPermitted:
            # A project without workflows need not grant their keys. One with them gets this error when it starts a run.
            return RUN_IDLE
        found = {key: work for key, work in left.items() if work is not None}
        if not found and time.monotonic() - self._forgot < FORGET:
            return RUN_IDLE
        for key, work in found.items():
            # What cannot be published yet must not hold up what follows it.
            self._after[key] = work.last_start
        self.each(
            [(homes[key], one) for key, work in found.items() for one in by_run(work)],
            lambda pair: do(*pair),
            called=lambda pair: f"run {pair[1].run}",
        )
        self.each(self._queues, self._deliver, called=lambda server: f"server {server!r}", server=str)
        self._forget(homes)
        return RUN_TICK if found else RUN_IDLE

    def _deliver(self, server: str) -> None:
        """Deliver the notes of the queues of one server."""
        self.each(
            self._noted(server),
            lambda queue: self._couriers[queue].deliver_left(age_ms=OLD_MS),
            called=str,
            server=lambda _: server,
        )

    def _noted(self, server: str) -> list[str]:
        """Return the queues of a server that may have notes."""
        queues = self._queues[server]
        found = noted(open_transport("consume", server), [config.keys for config in queues])
        return [config.name for config, is_noted in zip(queues, found, strict=True) if is_noted]

    def _forget(self, homes: Mapping[str, WorkflowHome]) -> None:
        """Shorten the list of all runs, a part of it each minute."""
        if time.monotonic() - self._forgot < FORGET:
            return
        self._forgot = time.monotonic()
        for key, home in homes.items():
            self._skipped[key] = forget_old(home, skipped=self._skipped.get(key, 0))
