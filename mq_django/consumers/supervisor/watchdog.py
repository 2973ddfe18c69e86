"""Decide by its shared state whether a consumer process must be replaced."""

import enum
import time
from collections.abc import Collection

from mq_django.consumers.receipts import Running
from mq_django.consumers.shared_state import OVERTIME, SharedState

#: Seconds without a tick after which a consumer that runs no handler is killed: it is stopped or stuck.
STILL = 15.0
#: Seconds without a tick after which a consumer with a late handler cannot be asked to leave.
UNRESPONSIVE = 1.0
#: Seconds without a tick after which the messages that a consumer has not started are handed back.
SUSPEND_AFTER = 3.0
#: Seconds that a process may take to load the project.
START = 120.0
#: At most this many seconds between two checks count: in a longer gap the supervisor itself did not run.
MAX_GAP = 0.5


class Decision(enum.Enum):
    """A decision of the watchdog about a consumer."""

    KEEP = "keep"
    #: It has a late handler, and can finish the others.
    ASK_TO_LEAVE = "ask to leave"
    #: It has a late handler and cannot be asked.
    KILL_LATE = "kill, for a late handler"
    KILL = "kill"


class Watchdog:
    """Watches one consumer. look() is one check."""

    def __init__(self, shared_state: SharedState) -> None:
        self._shared_state = shared_state
        self._looked = time.monotonic()
        self._ticks = 0
        self._still = 0.0
        #: Each delivery past its deadline, and the seconds for which it has been seen so. Each is measured separately:
        #: a different handler may be late at every check, as long as each is interrupted in time.
        self._late: dict[Running, float] = {}

    @property
    def responds(self) -> bool:
        """Return whether the consumer has ticked recently, or is still starting."""
        return not self._ticks or self._still < SUSPEND_AFTER

    @property
    def late(self) -> Collection[Running]:
        """Return the deliveries that were late at the latest check."""
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
        # It cannot interrupt the handler. Its replacement is started now, before it is killed.
        if late and self._still > UNRESPONSIVE:
            return Decision.ASK_TO_LEAVE
        if late or self._still <= (STILL if ticks else START):
            return Decision.KEEP
        # A handler within its timeout may hold the GIL for as long.
        return Decision.KEEP if self._shared_state.running() else Decision.KILL
