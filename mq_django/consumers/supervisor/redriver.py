"""Work off what people have asked for about many dead letters: to redrive or to delete them."""

import time
from collections.abc import Sequence

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.service import Service
from mq_django.consumers.supervisor.next_checks import NextChecks
from mq_django.stores.background_jobs import IDLE, BackgroundJobs
from mq_django.transport.connections import open_session, open_wire

#: Seconds between two steps that have no rate: others want to be served, too.
BREATH = 0.01


class Redriver(Service):
    """Takes up the jobs of its queues; each is worked on by one supervisor at a time, and another goes on with it."""

    name = "redriver"

    def __init__(self, queues: Sequence[QueueConfig], worker: str) -> None:
        super().__init__()
        session = open_session("chores")
        self._queues = queues
        self._jobs = [BackgroundJobs(config, session) for config in queues]
        self._worker = worker
        self._checks = NextChecks(len(queues))

    def expect(self, number: int) -> None:
        """Look at a queue now: there is a job."""
        self._checks.ask(number)
        self.wake()

    def run_once(self) -> float:
        """Make one step of the job of every queue whose time has come."""
        self.each(self._checks.due(), self._work, called=lambda number: self._queues[number].name)
        return self._checks.pause()

    def _work(self, number: int) -> None:
        self._checks.begin(number, IDLE)
        pause = self._jobs[number].work(self._worker)
        self._checks.at(number, time.monotonic() + max(BREATH, pause))

    def recover(self, error: Exception) -> None:
        """Look at everything again: Redis may have answered a step that we do not know of."""
        self._checks.ask_all()


def work_here(queue: str, worker: str) -> float:
    """Make one step of a queue's job for somebody who waits; return the seconds until the next, IDLE: there is none.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    return BackgroundJobs(get_config().queue(queue), open_wire("inspect")).work(worker)
