"""Run the background jobs that redrive or delete many messages."""

import time

from mq_django.conf import get_config
from mq_django.consumers.by_server import ServerQueues, open_session_to
from mq_django.consumers.service import Service
from mq_django.consumers.supervisor.promoter import NextChecks
from mq_django.stores.background_jobs import IDLE, BackgroundJobs, MessageJobs
from mq_django.transport.connections import open_wire

#: Seconds between two steps of a job without a rate limit, so that Redis serves others in between.
MIN_PAUSE = 0.01


class Redriver(Service):
    """Runs the jobs of its queues. One supervisor at a time runs a job, and any other can continue it."""

    name = "redriver"

    def __init__(self, queues: ServerQueues, worker: str) -> None:
        super().__init__()
        session = open_session_to(queues)
        self._queues = queues
        kinds = (BackgroundJobs, MessageJobs)
        self._kinds = len(kinds)
        #: Of each queue the job on dead letters and the one on other messages. Each has its own pace.
        self._jobs = {
            number * self._kinds + place: kind(config, session)
            for number, config in queues.items()
            for place, kind in enumerate(kinds)
        }
        self._worker = worker
        self._checks = NextChecks(self._jobs)

    def expect(self, number: int) -> None:
        """Check a queue now: it has a job."""
        for kind in range(self._kinds):
            self._checks.ask(number * self._kinds + kind)
        self.wake()

    def run_once(self) -> float:
        """Make one step of every job that is due."""
        self.each(self._checks.due(), self._work, called=lambda number: self._queues[number // self._kinds].name)
        return self._checks.pause()

    def _work(self, number: int) -> None:
        self._checks.begin(number, IDLE)
        pause = self._jobs[number].work(self._worker)
        self._checks.at(number, time.monotonic() + max(MIN_PAUSE, pause))

    def recover(self, error: Exception) -> None:
        """Check all queues again: Redis may have executed a step whose reply was lost."""
        self._checks.ask_all()


def work_here(queue: str, worker: str, kind: type[BackgroundJobs] = BackgroundJobs) -> float:
    """Make one step of a queue's job for a caller that waits for it; return the seconds until the next step.

    Of a queue with partitions one step of each job. IDLE means that there is no job.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: Redis cannot be reached or refused.
    """
    config = get_config().queue(queue)
    wire = open_wire("inspect", config.connection)
    return min([kind(part, wire).work(worker) for part in config.each_part])
