"""The grace period in which running handlers may finish."""

import time
from collections.abc import Callable


class Grace:
    """A deadline that can be ended early."""

    def __init__(self, seconds: float, *, on_check: Callable[[], None] = lambda: None) -> None:
        self._ends = time.monotonic() + seconds
        #: Called every few milliseconds while a caller waits.
        self.on_check = on_check

    def end(self) -> None:
        """End the grace period now."""
        self._ends = 0.0

    def left(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def over(self) -> bool:
        """Return whether the time is over."""
        return self.left() == 0.0
