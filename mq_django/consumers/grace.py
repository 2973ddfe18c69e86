"""The time that running handlers get when everything else has ended."""

import time


class Grace:
    """A deadline that can be brought forward."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

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
