"""What a failover may lose: a master copies to its replica without waiting, so its last moment may be in no copy.

A fault that tells `loses_from` declares a window, from there until it had hit. Of what the old master had answered in
it, publishes may be lost; deliveries, acks, retries and burials may be unknown to the new one, which makes them again.
Each such window explains one repetition of a message. What it explained is counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.deliveries import NOTED, Fault, Life, Told

#: Seconds before a master's death from which its replica need not have anything.
TAIL = 1.0
#: Seconds from the promotion of a replica until producers and consumers work again.
BACK = 10.0


@dataclass(frozen=True, slots=True)
class LostTails:
    """The windows of a run."""

    faults: Sequence[Fault]

    @classmethod
    def of(cls, told: Told) -> "LostTails":
        """Return the windows that the faults of a history declare."""
        return cls([fault for fault in told.faults if fault.loses_from is not None])

    def hit(self, at: float | None) -> bool:
        """Tell whether what was answered at a time may be lost. A process may note it a moment later."""
        return at is not None and any(self._has(fault, at) for fault in self.faults)

    def certain(self, times: Sequence[float]) -> int:
        """Return how many of some outcomes no failover can have lost."""
        return sum(not self.hit(at) for at in times) if self.faults else len(times)

    def repeats(self, life: Life) -> int:
        """Return how often a message may have been delivered again: once for each window."""
        known = [*(hold.since for hold in life.taken), *(at for _, at in life.sent), *life.moved]
        return sum(any(self._has(fault, at) for at in known) for fault in self.faults)

    def unsure(self, lives: Sequence[Life]) -> int:
        """Return how many publishes of messages that were seen Redis need not have counted."""
        return sum(self.hit(life.accepted or life.invoked) for life in lives) if self.faults else 0

    def slow(self, told: Told) -> Iterator[tuple[Fault, float]]:
        """Yield the failovers after which the first publish or the first start was late, with its seconds."""
        for fault in self.faults:
            for moments in (told.accepted, told.begun_at):
                later = [at for at in moments if at > fault.healed]
                if later and later[0] - fault.healed > BACK:
                    yield fault, later[0] - fault.healed

    def _has(self, fault: Fault, at: float) -> bool:
        return fault.loses_from is not None and fault.loses_from <= at <= fault.struck + NOTED
