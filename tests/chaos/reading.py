"""`python -m tests.chaos.reading`: read streams in threads. Each line of stdin is the id of a message.

In the place of a process that was killed, its readers go on after the last chunk that they have noted.
"""

import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import django

from mq_django import read_stream
from mq_django.errors import ConnectionLost, MQError
from tests.chaos import history
from tests.chaos.observing import note
from tests.chaos.settings import QUEUE, READERS

#: How often a restless reader stops, and after how many chunks at most.
STOPS, CHUNKS = 4, 30
#: Seconds after which a late reader begins, at most.
LATE = 2.0
#: Seconds without a chunk that are too long.
SILENCE = 60.0


class Reader:
    """A reader of a stream.

    Args:
        name: its kind and the message.
        seen: the ids of the chunks that it has noted in processes that were killed.
    """

    def __init__(self, name: str, seen: Sequence[str]) -> None:
        self._name = name
        self._kind, _, self._message = name.partition(" ")
        self._seen = list(seen)
        self._rng = random.Random(name)

    def run(self) -> None:
        """Read until the end, and note that."""
        if self._kind == "late" and not self._seen:
            time.sleep(self._rng.uniform(0, LATE))
        after = self._seen[-1] if self._seen else None
        for _ in range(STOPS if self._kind == "restless" else 0):
            self._read(after, self._rng.randint(1, CHUNKS))
            after = self._rng.choice(self._seen) if self._seen else None
        while not self._read(after, None):
            after = self._seen[-1] if self._seen else None
        note("read-all", reader=self._name)

    def run_noted(self) -> None:
        """Do that, and note an error that ends it."""
        try:
            self.run()
        except MQError as error:
            note("read-failed", reader=self._name, error=repr(error))

    def _read(self, after: str | None, most: int | None) -> bool:
        """Read up to so many chunks, and return whether the iterator has ended by itself."""
        note("reads", reader=self._name, after=after)
        try:
            for chunk in islice(read_stream(self._message, queue=QUEUE, after=after, timeout=SILENCE), most):
                said = [chunk.id, chunk.kind, chunk.value, chunk.attempt, chunk.number, chunk.outcome]
                note("read", reader=self._name, chunk=said)
                self._seen.append(chunk.id)
        except ConnectionLost:
            # Only the first step does not wait for Redis.
            time.sleep(0.05)
            return False
        return True


def _seen() -> dict[str, list[str]]:
    """Return the ids of the chunks that each reader has noted."""
    seen = defaultdict[str, list[str]](list)
    for event in history.read(Path(os.environ["CHAOS_HISTORY"])):
        if event.what == "read":
            seen[event.told["reader"]].append(event.told["chunk"][0])
    return seen


def main() -> None:
    """Read all streams to their ends."""
    django.setup()
    seen, threads = _seen(), []
    note("reading")
    for line in sys.stdin:
        for kind in READERS:
            name = f"{kind} {line.strip()}"
            threads.append(threading.Thread(target=Reader(name, seen.get(name, ())).run_noted))
            threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
