"""Decide how the gateway misbehaves: by a seed, so that a run can be repeated."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """Hold the shares (0 to 1) of requests that fail, answer late, or can never succeed."""

    seed: int = 1
    #: Requests answered with 503; the next try of the same message is decided anew.
    failing: float = 0.12
    #: Requests answered after `slow_seconds`, which is longer than the shop's client waits.
    slow: float = 0.03
    slow_seconds: float = 1.5
    #: Devices that answer 410 and numbers that answer 404, each time.
    gone: float = 0.2
    unknown: float = 0.2
    #: SMS a second; what is more is answered with 429.
    sms_a_second: int = 20

    def is_gone(self, device: str) -> bool:
        """Say whether the app was removed from this device."""
        return self._draw("device", device) < self.gone

    def is_unknown(self, number: str) -> bool:
        """Say whether nobody has this number."""
        return self._draw("number", number) < self.unknown

    def fails(self, key: str, *, attempt: int) -> bool:
        """Say whether this try of a message is answered with 503."""
        return self._draw("fails", f"{key}:{attempt}") < self.failing

    def delay_seconds(self, key: str, *, attempt: int) -> float:
        """Return how long the answer to this try takes."""
        return self.slow_seconds if self._draw("slow", f"{key}:{attempt}") < self.slow else 0.0

    def _draw(self, topic: str, text: str) -> float:
        # Drawn from the text and not from one running sequence: what happens to a message must not
        # depend on which other message a thread happened to serve first.
        return Random(f"{self.seed}:{topic}:{text}").random()
