"""Publishes under faults, as a web process would, and notes what it was told."""

import random
import threading
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from mq_django import queues, topics
from tests.chaos.history import History
from tests.chaos.settings import QUEUE, STORE, TOPIC

#: Messages of one publish.
BATCH = 20
#: Quick jobs to begin with: the first faults hit consumers that have a backlog, and large batches in hand.
BACKLOG = 2000


class Producer:
    """A thread that publishes jobs at a steady rate until it is stopped."""

    def __init__(self, history: History, rng: random.Random, *, rate: float, ms: float, fails: float = 0.05) -> None:
        self._history = history
        self._rng = rng
        self._rate = rate
        self._ms = ms
        self._fails = fails
        self._numbers = count()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.published = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Publish no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def publish(self, name: str, count: int, *, delay: float = 0.0, priority: int = 0, **data: Any) -> list[str]:
        """Publish messages of one kind, in one call, and return their ids."""
        ids = [f"{name}-{next(self._numbers)}" for _ in range(count)]
        told = {"delay": delay} if delay else {}
        with self._history.publishing(ids, **told):
            messages = [(name, {"id": found, **data}) for found in ids]
            if STORE == "topic" and not delay:
                topics[TOPIC].publish_many(messages)
            else:
                queues[QUEUE].publish_many(messages, delay=delay or None, priority=priority)
            self.published += count
        return ids

    def jobs(self) -> Sequence[str]:
        """Publish a batch of jobs: mostly quick, some delayed, some that fail once or twice."""
        data: dict[str, Any] = {"ms": round(self._rng.uniform(0, 2 * self._ms), 1)}
        chance = self._rng.random()
        if chance < self._fails:
            data["fails"] = self._rng.randint(1, 2)
        delay = self._rng.uniform(0.05, 1.5) if self._rng.random() < 0.1 else 0.0
        return self.publish("job", BATCH, delay=round(delay, 3), **data)

    def _run(self) -> None:
        for _ in range(BACKLOG // 100):
            self.publish("job", 100, ms=2)
        due = time.monotonic()
        while not self._stopping.is_set():
            self.jobs()
            # Nobody makes up for the time that Redis was away: a web process would have given up, too.
            due = max(due + BATCH / self._rate, time.monotonic() - 1.0)
            self._stopping.wait(max(0.0, due - time.monotonic()))
