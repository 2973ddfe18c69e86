"""One line that says how the queues are doing: rewritten on a terminal, else written every few seconds."""

import sys
import time

from example_project.demo import watch
from mq_django.errors import StoreError

#: Seconds between two lines.
ON_TERMINAL, ON_PAPER = 0.5, 4.0


class LiveLine:
    """Show the counters of all queues."""

    def __init__(self) -> None:
        """Find out where the line goes."""
        self._terminal = sys.stdout.isatty()
        self._interval = ON_TERMINAL if self._terminal else ON_PAPER
        self._next = 0.0

    def show(self) -> None:
        """Write the line if it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._interval
        line = counts_line()
        # Erased to the end, as a shorter line would leave the tail of a longer one.
        print(f"\r{line}\x1b[K" if self._terminal else line, end="" if self._terminal else "\n", flush=True)

    def end(self) -> None:
        """Let what follows begin on a line of its own."""
        if self._terminal:
            print()


def counts_line() -> str:
    """Return the counts in words, or why there are none."""
    try:
        counts = watch.totals()
    except StoreError as error:
        return str(error)
    return (
        f"published {counts.published}   handled {counts.handled}   retried {counts.retried}   "
        f"delayed {counts.delayed}   dead {counts.dead}   ready {counts.ready}   pending {counts.pending}"
    )
