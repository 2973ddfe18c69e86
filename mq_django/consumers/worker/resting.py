"""Wait for messages of queues that are at rest, with one read for all that are on one server.

A blocked read for each queue, and a check for what it does not see, would be some commands a second for each dozen of
them. So a fetcher that has waited in vain lets its queue rest: from then on one thread waits for the messages of all
such queues. It passes these on, and gives the queue back to its fetcher, which continues.

Only plain queues on a server that is no cluster rest. Waiting is as safe as before: a read lasts as long, it counts as
one of the same consumer, and whatever goes wrong gives all queues back to their fetchers.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from mq_django.consumers.service import Service
from mq_django.core.keys import GROUP, QueueKeys
from mq_django.transport.connections import BLOCK_MS
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Session

#: Seconds between two rounds while no queue rests, and while the pools are full, unless it is woken.
NOBODY, NO_ROOM = 5.0, 1.0
#: Seconds for which no queue rests after an error, of which the fetchers have to find out the cause.
AFTER_ERROR = 60.0


class Resting(Protocol):
    """The fetcher of a queue that rests."""

    #: The name of the queue, and its keys.
    queue: str
    keys: QueueKeys

    def capacity(self) -> int | None:
        """Return how many messages may be read, 0 if all slots are taken; None: the queue cannot rest now."""

    def block_ms(self) -> int:
        """Return for how many milliseconds a read may wait."""

    def hand(self, entries: list[Any], began: float, *, again: bool) -> None:
        """Pass on entries of a read that began at a monotonic time; `again`: a new master may deliver them again."""

    def rouse(self, *, lost: bool = False) -> None:
        """End the rest; `lost`: a reply may have been lost, with messages."""


class RestingQueues(Service):
    """Reads the queues at rest on one server.

    Args:
        session: the connection, of this thread only.
        consumer: the name under which messages are read.
        connection: of the server.
        first: the name of one of the queues.
    """

    def __init__(self, session: Session, consumer: str, *, connection: str = "", first: str) -> None:
        super().__init__()
        self.name = f"fetcher of {first} and others at rest"
        self.connection = connection
        self._session = session
        self._consumer = consumer
        self._lock = threading.Lock()
        #: By the key of their stream: those that want to rest, and those that the present read is for.
        self._joined: dict[str, Resting] = {}
        self._covered: Mapping[str, Resting] = {}
        #: When to check again for what a read does not see, and from when on queues may rest, on the monotonic clock.
        self._check_at = self._not_before = 0.0
        self._moves = session.moves

    def offer(self, fetcher: Resting) -> None:
        """Let a queue rest. Its fetcher reads on until this thread covers() it."""
        if time.monotonic() >= self._not_before and not self.stopping:
            with self._lock:
                self._joined[fetcher.keys.ready] = fetcher
            self.wake()

    def covers(self, fetcher: Resting) -> bool:
        """Return whether the present read, or one that begins now, is for this queue, too."""
        return fetcher.keys.ready in self._covered

    def run_once(self) -> float:
        """Wait for messages of all queues that rest."""
        with self._lock:
            joined = dict(self._joined)
        capacity: dict[str, int] = {}
        self.each(joined, lambda key: self._ask(key, joined[key], capacity), called=lambda key: joined[key].queue)
        has_any = any(capacity.values())
        # A read for some must not hold up those for which there is some a moment later. Without any, all wait.
        reads = {key: joined[key] for key, count in capacity.items() if count or not has_any}
        self._begin(reads)
        if not has_any:
            return NO_ROOM if joined else NOBODY
        if time.monotonic() >= self._check_at:
            self._check()
        elif reads:
            self._read(min(count for count in capacity.values() if count))
        return 0.0

    @staticmethod
    def _ask(key: str, fetcher: Resting, capacity: dict[str, int]) -> None:
        count = fetcher.capacity()
        if count is not None:
            capacity[key] = count

    def _begin(self, fetchers: Mapping[str, Resting]) -> None:
        before, self._covered = self._covered, fetchers
        for key in before.keys() - fetchers.keys():
            before[key].rouse()

    def _check(self) -> None:
        """Give back the queues that have something which a read does not see, or that somebody has changed."""
        self._check_at = time.monotonic() + BLOCK_MS / 1000
        keys = list(self._covered)
        checks: list[Command] = [("XLEN", self._covered[key].keys.front) for key in keys]
        checks += [("HMGET", self._covered[key].keys.control, "paused", "ranked", "ordered") for key in keys]
        replies = self._session.together(checks)
        for at, key in enumerate(keys):
            if (replies[at], replies[at + len(keys)]) != (0, [None, None, None]):
                self._give_back(key)

    def _read(self, count: int) -> None:
        keys, fetchers = list(self._covered), self._covered
        words: Command = ("COUNT", count, "BLOCK", min(fetcher.block_ms() for fetcher in fetchers.values()), "STREAMS")
        began = time.monotonic()
        command: Command = ("XREADGROUP", "GROUP", GROUP, self._consumer, *words, *keys, *[">"] * len(keys))
        (reply,) = self._session.pipeline([command])
        if isinstance(reply, Exception):
            # It need not be about all of them. Their fetchers find out.
            self._end_all()
            return
        has_moved, self._moves = self._moves != self._session.moves, self._session.moves
        self.each(
            reply or (),
            lambda one: self._hand(fetchers, one[0].decode(), one[1], began, again=has_moved),
            called=lambda one: fetchers[one[0].decode()].queue,
        )
        if has_moved:
            self._end_all(lost=True)

    def _hand(
        self, fetchers: Mapping[str, Resting], key: str, entries: list[Any], began: float, *, again: bool
    ) -> None:
        lost = True
        try:
            fetchers[key].hand(entries, began, again=again)
            lost = False
            # Let a slot begin at once: to begin the next round takes longer.
            time.sleep(0)
        finally:
            self._give_back(key, lost=lost)

    def _give_back(self, key: str, *, lost: bool = False) -> None:
        with self._lock:
            self._joined.pop(key, None)
        fetcher = self._covered.get(key)
        self._covered = {other: one for other, one in self._covered.items() if other != key}
        if fetcher is not None:
            fetcher.rouse(lost=lost)

    def _end_all(self, *, lost: bool = False) -> None:
        self._not_before = time.monotonic() + AFTER_ERROR
        with self._lock:
            self._joined = {}
        before, self._covered = self._covered, {}
        for fetcher in before.values():
            fetcher.rouse(lost=lost)

    def recover(self, error: Exception) -> None:
        """Give all queues back: messages may have been read whose reply is lost."""
        self._end_all(lost=True)

    def stop(self) -> None:
        """End the loop, and interrupt a blocked read."""
        super().stop()
        self._session.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
