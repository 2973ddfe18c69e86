"""Judge by its shared state whether a consumer process has to be replaced."""

import enum
import time
from collections.abc import Collection

from mq_django.consumers.shared_state import OVERTIME, Running, SharedState

#: Seconds without a sign of life of a consumer that runs nothing: it is stopped, or stuck.
STILL = 15.0
#: Seconds without a sign of life of a consumer with a late handler: it cannot be asked to leave.
UNRESPONSIVE = 1.0
#: Seconds without a sign of life after which what lies ready in a process goes to others.
SUSPEND_AFTER = 3.0
#: Seconds that a process may take to load a project.
START = 120.0
#: The longest time between two looks that counts: in more than that we ourselves did not run.
MAX_GAP = 0.5


class Decision(enum.Enum):
    """What to do about a consumer."""

    WELL = "well"
    #: It has a late handler, but can finish its others.
    ASK_TO_LEAVE = "ask to leave"
    #: It has a late handler and cannot be asked.
    KILL_LATE = "kill, for a late handler"
    KILL = "kill"


class Watchdog:
    """Watches one consumer, look by look."""

    def __init__(self, shared_state: SharedState) -> None:
        self._shared_state = shared_state
        self._looked = time.monotonic()
        self._ticks = 0
        self._still = 0.0
        #: What is past its deadline, and for how long we have seen it so. Each counts by itself: different handlers may
        #: be late at every look, as long as each is interrupted in time.
        self._late: dict[Running, float] = {}

    @property
    def responds(self) -> bool:
        """Tell whether the consumer has shown a sign of life lately; one that still starts does."""
        return not self._ticks or self._still < SUSPEND_AFTER

    @property
    def late(self) -> Collection[Running]:
        """Return what was late at the latest look."""
        return self._late.keys()

    def look(self, now: float) -> Decision:
        """Return what to do about the consumer now."""
        passed = min(MAX_GAP, now - self._looked)
        self._looked = now
        ticks = self._shared_state.ticks()
        self._still = self._still + passed if ticks == self._ticks else 0.0
        self._ticks = ticks
        late = [item for item in self._shared_state.running() if now > item.deadline]
        self._late = {item: self._late.get(item, 0.0) + passed for item in late}
        longest = max(self._late.values(), default=0.0)
        if longest > OVERTIME:
            return Decision.KILL_LATE if self._still > UNRESPONSIVE else Decision.ASK_TO_LEAVE
        # It cannot even try to interrupt: so that its successor is there when it is killed.
        if late and self._still > UNRESPONSIVE:
            return Decision.ASK_TO_LEAVE
        if late or self._still <= (STILL if ticks else START):
            return Decision.WELL
        # A handler within its timeout may hold the GIL for as long.
        return Decision.WELL if self._shared_state.running() else Decision.KILL
