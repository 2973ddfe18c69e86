"""Read the streams of one server for all readers in this process: one thread, one subscription, few commands."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mq_django.conf import QueueConfig
from mq_django.errors import StoreError
from mq_django.producers.watcher import Watcher, Watchers
from mq_django.stores.stream_entries import START, STREAMS, Page, Position, read_after

#: Seconds between two looks at a stream of which nothing was heard: pub/sub may lose notifications.
LOOK_EVERY = 10.0
#: Seconds between two such looks, each of which is one command for up to STREAMS streams of a queue.
PAUSE = 1.0


class Follower(Protocol):
    """A reader of a stream, as the hub sees it."""

    def offer(self, page: Page) -> bool:
        """Take the next entries of the stream; return False if the reader has to read pages again. It must not wait."""


@dataclass(slots=True, eq=False)
class _Open:
    """A stream that somebody in this process reads."""

    config: QueueConfig
    #: All readers, and those among them that get what the hub reads.
    readers: set[Follower] = field(default_factory=set)
    following: set[Follower] = field(default_factory=set)
    #: Up to where the hub has read it, while somebody follows; and whether there was more.
    position: Position | None = None
    has_more: bool = False
    #: How often something was heard of it, and when it was looked at without that.
    heard: int = 0
    looked: float = -math.inf


class Known(NamedTuple):
    """What the hub knows of a stream: how often something was heard of it, and up to where the hub has read it."""

    heard: int = 0
    position: Position = START


class StreamHub(Watcher):
    """Reads the streams of one server of which it hears something, and hands over what is new in them.

    A reader opens a stream, reads it up to its end in pages, and then follows. While nobody follows, the hub reads
    nothing. It never waits for a reader: one with a full buffer stops following, and reads pages again.
    """

    subject = "streams"

    def __init__(self, connection: str) -> None:
        super().__init__(connection)
        self._open: dict[str, _Open] = {}
        #: A channel of its own, and all channels; none: they have changed.
        self._home = ""
        self._all_channels: list[str] = []
        #: The keys of what is to be read, and when there was the last look at what nothing was heard of.
        self._due: set[str] = set()
        self._looked = -math.inf

    def open(self, config: QueueConfig, message_id: str, reader: Follower) -> None:
        """Let a reader read the stream of a message in pages, and hear of it meanwhile."""
        key = config.keys.message_stream(message_id)
        with self._lock:
            is_new = key not in self._open
            if is_new:
                self._open[key] = _Open(config)
                self._home = self._home or config.keys.message_stream("")
                self._all_channels = []
            self._open[key].readers.add(reader)
            self._run()
        if is_new:
            self._wake()

    def close(self, key: str, reader: Follower) -> None:
        """Forget a reader of a stream."""
        with self._lock:
            stream = self._open.get(key)
            if stream is None:
                return
            stream.readers.discard(reader)
            self._unfollow(stream, reader)
            if not stream.readers:
                del self._open[key]
                self._due.discard(key)
                self._all_channels = []

    def known(self, key: str) -> Known:
        """Return what is known of a stream. A reader asks before it reads a page, and gives it to follow()."""
        with self._lock:
            stream = self._open.get(key)
            return Known(stream.heard, stream.position or START) if stream else Known()

    def follow(self, key: str, reader: Follower, position: Position, known: Known) -> bool:
        """Offer a reader from now on what comes after a position, up to which it has read the stream.

        Returns:
            Whether that is so. False: the hub has read on, and the reader has to do so, too.
        """
        with self._lock:
            stream = self._open.get(key)
            if stream is None or reader not in stream.readers:
                return True
            if stream.position is not None and stream.position > max(position, known.position):
                return False
            missed = stream.position is None and stream.heard != known.heard
            if stream.position is None:
                stream.position = position
                (self._due.add if missed else self._due.discard)(key)
            stream.following.add(reader)
        if missed:
            self._wake()
        return True

    def _unfollow(self, stream: _Open, reader: Follower) -> None:
        stream.following.discard(reader)
        if not stream.following:
            stream.position = None

    def _wake(self) -> None:
        """End the thread's wait: through Redis, because each system has its own way to wait for anything else, too."""
        with suppress(StoreError):
            self._transport.pipeline([("PUBLISH", self._home, b"")])

    def _is_awaited(self) -> bool:
        return bool(self._open)

    def _channels(self) -> list[str]:
        with self._lock:
            self._all_channels = self._all_channels or [self._home, *self._open]
            return self._all_channels

    def _due_now(self) -> None:
        with self._lock:
            self._due.update(self._open)
            for stream in self._open.values():
                stream.heard += 1

    def _hear(self, channel: str, data: bytes) -> None:
        with self._lock:
            if (stream := self._open.get(channel)) is not None:
                stream.heard += 1
                self._due.add(channel)

    def _read_due(self) -> bool:
        with self._lock:
            due = self._due.union(self._overdue()) & self._open.keys()
            positions = {key: at for key in due if (at := self._open[key].position) is not None}
            groups = list(self._groups(positions))
            # What is heard from now on is read again.
            self._due.difference_update(positions)
        if not groups:
            return False
        pages = {}
        try:
            pages = read_after(self._transport, groups)
        finally:
            with self._lock:
                self._due.update(self._open.keys() & (positions.keys() - pages))
                for key, page in pages.items():
                    self._hand_over(key, positions[key], page)
        return not self._due.isdisjoint(pages)

    def _groups(self, positions: Mapping[str, Position]) -> Iterator[dict[str, Position]]:
        """Yield what one command can read: up to STREAMS streams of one queue or partition."""
        by_queue: dict[str, list[str]] = {}
        for key in positions:
            by_queue.setdefault(self._open[key].config.name, []).append(key)
        for keys in by_queue.values():
            for at in range(0, len(keys), STREAMS):
                yield {key: positions[key] for key in keys[at : at + STREAMS]}

    def _overdue(self) -> list[str]:
        """Return what nothing was read of for long, of one queue; each second all, without notifications."""
        now = time.monotonic()
        if not self._open or now < self._looked + PAUSE:
            return []
        self._looked = now
        chosen = list(self._open)
        if not self._is_unsubscribed:
            late = [key for key, stream in self._open.items() if stream.looked < now - LOOK_EVERY]
            late.sort(key=lambda key: self._open[key].looked)
            chosen = [key for key in late if self._open[key].config is self._open[late[0]].config][:STREAMS]
        for key in chosen:
            self._open[key].looked = now
        return chosen

    def _hand_over(self, key: str, after: Position, page: Page) -> None:
        stream = self._open.get(key)
        if stream is None or stream.position is None:
            return
        if after > stream.position or not page.is_all:
            self._due.add(key)
        if after > stream.position:
            # Meanwhile others have left, and who follows now has not read that far.
            return
        stream.position = max(stream.position, page.last or after)
        if page.last is not None or stream.has_more:
            for reader in list(stream.following):
                if not reader.offer(page):
                    self._unfollow(stream, reader)
        stream.has_more = not page.is_all


hubs = Watchers(StreamHub)
