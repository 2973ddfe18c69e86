"""One line that says how the queues are doing: rewritten on a terminal, else written every few seconds."""

import shutil
import sys
import time

from example_project.demo import watch
from mq_django.errors import StoreError

#: Seconds between two lines.
ON_TERMINAL, ON_PAPER = 0.5, 2.0


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
        if self._terminal:
            # What does not fit would begin a line of its own; what is left of a longer line is erased.
            fitting = line[: shutil.get_terminal_size().columns - 1]
            print(f"\r{fitting}\x1b[K", end="", flush=True)
        else:
            print(line, flush=True)

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self.end()
        print(text, flush=True)

    def end(self) -> None:
        """Let what follows begin on a line of its own."""
        if self._terminal:
            print()


def counts_line() -> str:
    """Return the counts in words, or why there are none. The outbox is in the database, and counted in any case."""
    outbox = f"outbox {watch.in_outbox()}"
    try:
        counts = watch.totals()
    except StoreError as error:
        return f"{outbox}   {error}"
    # An order is published once, and handled by each group of its topic.
    return (
        f"published {counts.published}   handled {counts.handled} (orders by 3 groups)   retried {counts.retried}   "
        f"delayed {counts.delayed}   dead {counts.dead}   ready {counts.ready}   pending {counts.pending}   {outbox}"
    )
