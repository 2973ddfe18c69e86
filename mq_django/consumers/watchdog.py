"""Judge by its board whether a consumer process has to be replaced."""

import enum
import time

from mq_django.consumers.board import Board

#: Seconds a handler may be past its timeout before it counts as one that cannot be interrupted.
OVERTIME = 1.0
#: Seconds without a sign of life of a consumer that runs nothing: it is stopped, or stuck.
STILL = 15.0
#: Seconds without a sign of life of a consumer with a late handler: it cannot be asked to leave.
UNRESPONSIVE = 1.0
#: Seconds without a sign of life after which what lies ready in a process goes to others.
BENCH = 3.0
#: Seconds that a process may take to load a project.
START = 120.0
#: The longest time between two looks that counts: in more than that we ourselves did not run.
GLANCE = 0.5


class Verdict(enum.Enum):
    """What to do about a consumer."""

    WELL = "well"
    #: It has a late handler, but can finish its others.
    ASK_TO_LEAVE = "ask to leave"
    #: It has a late handler and cannot be asked.
    KILL_LATE = "kill, for a late handler"
    KILL = "kill"


class Watchdog:
    """Watches one consumer, look by look."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._looked = time.monotonic()
        self._ticks = 0
        self._still = 0.0
        self._late = 0.0

    @property
    def responds(self) -> bool:
        """Tell whether the consumer has shown a sign of life lately; one that still starts does."""
        return not self._ticks or self._still < BENCH

    def look(self, now: float) -> Verdict:
        """Return what to do about the consumer now."""
        passed = min(GLANCE, now - self._looked)
        self._looked = now
        ticks = self._board.ticks()
        self._still = self._still + passed if ticks == self._ticks else 0.0
        self._ticks = ticks
        late = self._board.late(now)
        self._late = self._late + passed if late else 0.0
        if self._late > OVERTIME:
            return Verdict.KILL_LATE if self._still > UNRESPONSIVE else Verdict.ASK_TO_LEAVE
        if late or self._still <= (STILL if ticks else START):
            return Verdict.WELL
        # A handler within its timeout may hold the GIL for as long.
        return Verdict.WELL if self._board.running() else Verdict.KILL
