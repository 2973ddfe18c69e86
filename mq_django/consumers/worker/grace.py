"""The time that running handlers get when everything else has ended."""

import time
from collections.abc import Callable


class Grace:
    """A deadline that can be brought forward."""

    def __init__(self, seconds: float, *, each_look: Callable[[], None] = lambda: None) -> None:
        self._ends = time.monotonic() + seconds
        #: Called by who waits, every few milliseconds.
        self.each_look = each_look

    def end(self) -> None:
        """Be over now."""
        self._ends = 0.0

    def left(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def over(self) -> bool:
        """Tell whether the time is over."""
        return self.left() == 0.0
