"""Publish into the queues of a cluster, each in a thread of its own: a node that is away delays no other queue."""

import random
import threading
import time
from collections import defaultdict
from itertools import count, islice
from typing import Any

from mq_django import queues, topics
from mq_django.core.partitions import partition_of, public_name
from tests.chaos.history import History
from tests.chaos.settings import (
    PARTITIONS,
    SPREAD,
    SPREAD_EVENTS,
    SPREAD_LOGS,
    SPREAD_ORDERED,
    SPREAD_PARTS,
    SPREAD_PLAIN,
    SPREAD_TOPIC,
)

#: Messages of one publish at most.
MOST_AT_ONCE = 6
#: Keys of an ordered queue.
KEYS = 12
#: Shares of the publishes that are delayed, and of those that fail and are tried again.
DELAYED, FAILS = 0.1, 0.05


def queue_of(message: str) -> str:
    """Return the queue of a message by its id."""
    return message.partition("/")[0]


def keys_of(queue: str) -> list[str]:
    """Return the keys of a queue with order, or of a partition: those that are in it."""
    names = (f"{queue}/k{number}" for number in count())
    parts = SPREAD_PARTS if queue in SPREAD_PARTS else SPREAD_LOGS if queue in SPREAD_LOGS else ()
    if parts:
        names = (name for name in names if parts[partition_of(name, PARTITIONS)] == queue)
    return list(islice(names, KEYS))


def _is_ordered(queue: str) -> bool:
    return queue in SPREAD_ORDERED or queue in SPREAD_PARTS


class Spread:
    """A thread for each queue, which publishes at a steady rate until all are stopped."""

    def __init__(self, history: History, rng: random.Random, *, rate: float, ms: float) -> None:
        self._history = history
        #: Messages a second of one queue.
        self._rate = rate / len(SPREAD)
        self._ms = ms
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(queue, random.Random(rng.random())), daemon=True)
            for queue in SPREAD
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Publish no more."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(30)

    def _run(self, queue: str, rng: random.Random) -> None:
        numbers: dict[str, Any] = defaultdict(count)
        keys = keys_of(queue) if _is_ordered(queue) or queue in SPREAD_LOGS else []
        due = time.monotonic()
        while not self._stopping.is_set():
            key = rng.choice(keys) if keys else f"{queue}/"
            ids = [f"{key}.{next(numbers[key])}" for _ in range(rng.randint(1, MOST_AT_ONCE))]
            self._publish(queue, key, ids, rng)
            due = max(due + len(ids) / self._rate, time.monotonic() - 1.0)
            self._stopping.wait(max(0.0, due - time.monotonic()))

    def _publish(self, queue: str, key: str, ids: list[str], rng: random.Random) -> None:
        data = {"ms": round(rng.uniform(0, 2 * self._ms), 1)}
        if rng.random() < FAILS:
            data["fails"] = 1
        delay = round(rng.uniform(0.05, 1.5), 3) if queue in SPREAD_PLAIN and rng.random() < DELAYED else 0.0
        is_ordered = _is_ordered(queue)
        told: dict[str, Any] = {"delay": delay} if delay else {}
        if is_ordered:
            told = {"key": key, "first": int(ids[0].rpartition(".")[2])}
        messages = [("next" if is_ordered else "job", {"id": found, **data}) for found in ids]
        with self._history.publishing(ids, **told):
            if queue.startswith(f"{SPREAD_TOPIC}:"):
                topics[SPREAD_TOPIC].publish_many(messages)
            elif queue in SPREAD_LOGS:
                topics[SPREAD_EVENTS].publish_many(messages, key=key)
            elif is_ordered:
                queues[public_name(queue)].publish_many(messages, key=key, message_ids=ids)
            else:
                queues[queue].publish_many(messages, delay=delay or None)
