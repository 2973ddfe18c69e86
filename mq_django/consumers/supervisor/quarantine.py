"""The number of quarantines of a supervisor, and the backlog that they share."""

from collections.abc import Callable, Sequence

from mq_django.consumers.decisions import Evidence
from mq_django.consumers.supervisor.restarts import Restarts
from mq_django.consumers.supervisor.worker_process import WorkerProcess
from mq_django.consumers.worker.isolation import backlog_of


class Quarantines:
    """Decides how many quarantines a supervisor runs: at most as many as consumers."""

    def __init__(self, most: int, on_exit: Callable[[str, Evidence], None]) -> None:
        self._most = most
        #: Called with a backlog that no quarantine runs any more.
        self._on_exit = on_exit
        self.restarts = Restarts()
        #: The quarantine that the backlog is named after; "" while there is none.
        self.leader = ""
        #: Quarantines that have ended since the last count although more messages waited.
        self._crowded = 0

    def backlog(self, quarantine: str) -> str:
        """Return the backlog of a new quarantine. All quarantines share one."""
        self.leader = self.leader or quarantine
        return backlog_of(self.leader)

    def ended(self, worker: WorkerProcess) -> None:
        """Note that a quarantine has ended."""
        self._crowded += worker.shared_state.wants_quarantine()

    def missing(self, quarantines: Sequence[WorkerProcess], asked: Sequence[WorkerProcess], now: float) -> int:
        """Return how many quarantines to start, given those that run and the processes that asked for one.

        One more when more messages wait than the quarantines run, and one for each that has ended while messages
        waited.
        """
        needed = len(quarantines)
        if self._crowded or any(worker.quarantine for worker in asked):
            needed += self._crowded + 1
        elif asked and all(quarantine.shared_state.running() for quarantine in quarantines):
            needed += 1
        self._crowded = 0
        return max(0, min(needed, self._most - self.restarts.waiting(now)) - len(quarantines))

    def end_backlog(self) -> None:
        """Hand back the messages of the backlog when the last quarantine has ended."""
        if self.leader:
            # A consumer that has read the backlog's name before may still pass messages on to it.
            self._on_exit(backlog_of(self.leader), Evidence(may_receive=True))
        self.leader = ""
