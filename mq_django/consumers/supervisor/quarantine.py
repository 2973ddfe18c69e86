"""How many wards a supervisor has, and the line that they share."""

from collections.abc import Callable, Sequence

from mq_django.consumers.decisions import Evidence
from mq_django.consumers.supervisor.restarts import Restarts
from mq_django.consumers.supervisor.worker_process import WorkerProcess
from mq_django.consumers.worker.isolation import line_of


class Wards:
    """Counts the wards that a supervisor should have: as many at most as consumers."""

    def __init__(self, most: int, on_exit: Callable[[str, Evidence], None]) -> None:
        self._most = most
        #: Told of a line that no ward takes from any more.
        self._on_exit = on_exit
        self.restarts = Restarts()
        #: The ward after which the line is named; "" while there is no line.
        self.leader = ""
        #: Wards that have ended since the last count while more was waiting than they ran.
        self._crowded = 0

    def line(self, ward: str) -> str:
        """Return the line of a new ward: that of the others, if there are any."""
        self.leader = self.leader or ward
        return line_of(self.leader)

    def ended(self, child: WorkerProcess) -> None:
        """Note that a ward has ended."""
        self._crowded += child.board.wants_ward()

    def missing(self, wards: Sequence[WorkerProcess], asked: Sequence[WorkerProcess], now: float) -> int:
        """Return how many wards to start, of those there are and of those who asked for one since the last count.

        One more where more waits than the wards run; and one for each that has ended of what it ran.
        """
        wanted = len(wards)
        if self._crowded or any(child.ward for child in asked):
            wanted += self._crowded + 1
        elif asked and all(ward.board.running() for ward in wards):
            wanted += 1
        self._crowded = 0
        return max(0, min(wanted, self._most - self.restarts.waiting(now)) - len(wards))

    def end_line(self) -> None:
        """Give back what waits when nobody takes from the line any more."""
        if self.leader:
            # Whoever passes something on may have read the name of the line before, and be slow to reach Redis.
            self._on_exit(line_of(self.leader), Evidence(lingers=True))
        self.leader = ""
