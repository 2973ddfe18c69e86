"""Publish the messages of many keys in their order: those of a key by one thread, like by one process of a project."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from mq_django import queues
from tests.chaos.history import History
from tests.chaos.settings import MAX_ATTEMPTS, QUEUE

#: Messages of one publish, all of one key.
MOST_AT_ONCE = 6
#: Milliseconds that one works at most: long enough that a stopped process is mostly running some.
MOST_MS = 80
#: Seconds between two looks at how much is left.
LOOK = 0.2
#: Shares of the messages that fail and are tried again, that fail each time, and that exceed their timeout.
FAILS, DOOMED, LATE = 0.04, 0.008, 0.003


class Sequences:
    """Threads that publish until all messages are published."""

    def __init__(
        self,
        history: History,
        rng: random.Random,
        *,
        messages: int,
        keys: int,
        rate: float,
        deaths: int,
        may_publish: Callable[[], bool],
        threads: int = 2,
    ) -> None:
        self._history = history
        self._messages = messages // threads
        #: Messages a second of one thread.
        self._rate = rate / threads
        #: How often a message of one thread ends its process.
        self._deaths = deaths / threads / self._messages
        self._may_publish = may_publish
        self._counts: dict[str, int] = defaultdict(int)
        self._recent: list[str] = []
        self._threads = [
            threading.Thread(
                target=self._run, args=(number, max(1, keys // threads), random.Random(rng.random())), daemon=True
            )
            for number in range(threads)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def is_publishing(self) -> bool:
        """Return whether messages are still to be published."""
        return any(thread.is_alive() for thread in self._threads)

    def recent(self) -> Sequence[str]:
        """Return the ids of some messages that were published last."""
        return self._recent[-400:]

    def _run(self, number: int, keys: int, rng: random.Random) -> None:
        left, due, looked = self._messages, time.monotonic(), 0.0
        while left > 0:
            if time.monotonic() - looked > LOOK:
                while not self._may_publish():
                    time.sleep(LOOK)
                looked = time.monotonic()
            # Some keys have many messages, and some few.
            key = f"k{number}-{int(keys * rng.random() ** 1.5)}"
            count = min(left, rng.randint(1, MOST_AT_ONCE))
            self._publish(key, [self._message(rng) for _ in range(count)])
            left -= count
            due = max(due + count / self._rate, time.monotonic() - 1.0)
            time.sleep(max(0.0, due - time.monotonic()))

    def _message(self, rng: random.Random) -> tuple[str, dict[str, Any]]:
        """Return the name and the data of a message."""
        data: dict[str, Any] = {"ms": round(rng.uniform(0, MOST_MS), 1)}
        chance = rng.random()
        if chance < self._deaths:
            return "fatal", data
        if chance < self._deaths + LATE:
            return "late", data
        if chance < self._deaths + LATE + DOOMED:
            return "next", {**data, "fails": MAX_ATTEMPTS}
        if chance < self._deaths + LATE + DOOMED + FAILS:
            return "next", {**data, "fails": rng.randint(1, 2)}
        return "next", data

    def _publish(self, key: str, made: Sequence[tuple[str, dict[str, Any]]]) -> None:
        first = self._counts[key]
        self._counts[key] += len(made)
        ids = [f"{key}.{number}" for number in range(first, first + len(made))]
        messages = [(name, {"id": found, **data}) for found, (name, data) in zip(ids, made, strict=True)]
        with self._history.publishing(ids, key=key, first=first):
            queues[QUEUE].publish_many(messages, key=key, message_ids=ids)
            self._recent += ids
