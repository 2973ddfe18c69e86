"""How many quarantines a supervisor has, and the backlog that they share."""

from collections.abc import Callable, Sequence

from mq_django.consumers.decisions import Evidence
from mq_django.consumers.supervisor.restarts import Restarts
from mq_django.consumers.supervisor.worker_process import WorkerProcess
from mq_django.consumers.worker.isolation import backlog_of


class Quarantines:
    """Counts the quarantines that a supervisor should have: as many at most as consumers."""

    def __init__(self, most: int, on_exit: Callable[[str, Evidence], None]) -> None:
        self._most = most
        #: Told of a backlog that no quarantine takes from any more.
        self._on_exit = on_exit
        self.restarts = Restarts()
        #: The quarantine after which the backlog is named; "" while there is none.
        self.leader = ""
        #: Quarantines that have ended since the last count while more was waiting than they ran.
        self._crowded = 0

    def backlog(self, quarantine: str) -> str:
        """Return the backlog of a new quarantine: that of the others, if there are any."""
        self.leader = self.leader or quarantine
        return backlog_of(self.leader)

    def ended(self, child: WorkerProcess) -> None:
        """Note that a quarantine has ended."""
        self._crowded += child.shared_state.wants_quarantine()

    def missing(self, quarantines: Sequence[WorkerProcess], asked: Sequence[WorkerProcess], now: float) -> int:
        """Return how many quarantines to start, of those there are and of those who asked for one since the last count.

        One more where more waits than the quarantines run; and one for each that has ended of what it ran.
        """
        needed = len(quarantines)
        if self._crowded or any(child.quarantine for child in asked):
            needed += self._crowded + 1
        elif asked and all(quarantine.shared_state.running() for quarantine in quarantines):
            needed += 1
        self._crowded = 0
        return max(0, min(needed, self._most - self.restarts.waiting(now)) - len(quarantines))

    def end_backlog(self) -> None:
        """Give back what waits when nobody takes from it any more."""
        if self.leader:
            # Whoever passes something on may have read its name before, and be slow to reach Redis.
            self._on_exit(backlog_of(self.leader), Evidence(lingers=True))
        self.leader = ""
