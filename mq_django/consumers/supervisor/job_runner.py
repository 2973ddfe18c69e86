"""Run the background jobs that redrive or delete many messages."""

import time

from mq_django.conf import get_config
from mq_django.consumers.by_server import ServerQueues, open_session_to
from mq_django.consumers.service import Answer, Service
from mq_django.consumers.supervisor.promoter import NextChecks
from mq_django.stores.background_jobs import IDLE, BackgroundJobs
from mq_django.stores.message_scans import ActionableState
from mq_django.transport.connections import open_transport

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
