"""Read the streams of one server for all readers in this process: one thread, one subscription, few commands."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from mq_django.conf import QueueConfig
from mq_django.errors import StoreError
from mq_django.producers.watcher import Watcher, Watchers
from mq_django.stores.message_streams import START, STREAMS, Page, Position, read_after

#: Seconds between two looks at a stream of which nothing was heard: pub/sub may lose notifications.
LOOK_EVERY = 10.0
#: Seconds between two such looks, each of which is one command for up to STREAMS streams of a queue.
PAUSE = 1.0


class Follower(Protocol):
    """A reader of a stream, as the hub sees it."""

    def offer(self, after: Position, page: Page) -> bool:
        """Take the entries after a position; return False if the reader has to read pages again. It must not wait."""


@dataclass(slots=True, eq=False)
class _Followed:
    """A stream that readers in this process follow."""

    config: QueueConfig
    #: Up to where it was read, and whether there was more.
    position: Position
    has_more: bool = False
    readers: set[Follower] = field(default_factory=set)
    #: When it was read without having been heard of.
    looked: float = -math.inf


class StreamHub(Watcher):
    """Reads the streams of one server of which it hears something, and hands over what is new in them.

    A reader reads a stream to its end in pages, and then follows it. The hub never waits for a reader: one whose buffer
    is full does not follow any more, and reads pages again.
    """

    subject = "streams"

    def __init__(self, connection: str) -> None:
        super().__init__(connection)
        self._followed: dict[str, _Followed] = {}
        #: A channel of its own, and all channels; none: they have changed.
        self._home = ""
        self._all_channels: list[str] = []
        #: The keys of what is to be read, and when there was the last look at what nothing was heard of.
        self._due: set[str] = set()
        self._looked = -math.inf

    def position(self, key: str) -> Position:
        """Return up to where a stream was read here: who reads it in pages from now on has all that is before."""
        with self._lock:
            stream = self._followed.get(key)
            return stream.position if stream else START

    def follow(self, config: QueueConfig, key: str, reader: Follower, position: Position) -> bool:
        """Offer a reader from now on what comes after a position, up to which it has read a stream.

        Returns:
            Whether that is so. False: the hub has read on, and the reader has to do so, too.
        """
        with self._lock:
            stream = self._followed.get(key)
            if stream is not None and position < stream.position:
                return False
            if is_new := stream is None:
                stream = self._followed[key] = _Followed(config, position)
                self._home = self._home or config.keys.message_stream("")
                self._all_channels = []
                # It may still be subscribed to for a reader that has just left: then nothing says that it is.
                self._due.add(key)
            stream.readers.add(reader)
            self._run()
        if is_new:
            self._wake()
        return True

    def leave(self, key: str, reader: Follower) -> None:
        """Offer a reader nothing more."""
        with self._lock:
            if (stream := self._followed.get(key)) is not None:
                self._remove(key, stream, reader)

    def _remove(self, key: str, stream: _Followed, reader: Follower) -> None:
        stream.readers.discard(reader)
        if not stream.readers:
            self._followed.pop(key, None)
            self._due.discard(key)
            self._all_channels = []

    def _wake(self) -> None:
        """End the thread's wait: through Redis, because each system has its own way to wait for anything else, too."""
        with suppress(StoreError):
            self._transport.pipeline([("PUBLISH", self._home, b"")])

    def _is_awaited(self) -> bool:
        return bool(self._followed)

    def _channels(self) -> list[str]:
        with self._lock:
            self._all_channels = self._all_channels or [self._home, *self._followed]
            return self._all_channels

    def _due_now(self) -> None:
        with self._lock:
            self._due.update(self._followed)

    def _hear(self, channel: str, data: bytes) -> None:
        with self._lock:
            if channel in self._followed:
                self._due.add(channel)

    def _read_due(self) -> bool:
        with self._lock:
            positions = {key: self._followed[key].position for key in self._due.union(self._overdue())}
            groups = list(self._groups(positions))
            # What is heard from now on is read again.
            self._due.clear()
        pages: Mapping[str, Page] = {}
        try:
            pages = read_after(self._transport, groups) if groups else {}
        finally:
            with self._lock:
                self._due.update(self._followed.keys() & (positions.keys() - pages.keys()))
                for key, page in pages.items():
                    self._hand_over(key, positions[key], page)
        return not self._due.isdisjoint(pages)

    def _groups(self, positions: Mapping[str, Position]) -> Iterator[dict[str, Position]]:
        """Yield what one command can read: up to STREAMS streams of one queue or partition."""
        by_queue: dict[str, list[str]] = {}
        for key in positions:
            by_queue.setdefault(self._followed[key].config.name, []).append(key)
        for keys in by_queue.values():
            for at in range(0, len(keys), STREAMS):
                yield {key: positions[key] for key in keys[at : at + STREAMS]}

    def _overdue(self) -> list[str]:
        """Return what nothing was read of for long, of one queue; each second all, without notifications."""
        now = time.monotonic()
        if not self._followed or now < self._looked + PAUSE:
            return []
        self._looked = now
        chosen = list(self._followed)
        if not self._is_unsubscribed:
            late = [key for key, stream in self._followed.items() if stream.looked < now - LOOK_EVERY]
            late.sort(key=lambda key: self._followed[key].looked)
            chosen = [key for key in late if self._followed[key].config is self._followed[late[0]].config][:STREAMS]
        for key in chosen:
            self._followed[key].looked = now
        return chosen

    def _hand_over(self, key: str, after: Position, page: Page) -> None:
        stream = self._followed.get(key)
        if stream is None:
            return
        if after > stream.position or not page.is_all:
            self._due.add(key)
        if after > stream.position:
            # Others have left while it was read, and who follows now has not read that far.
            return
        stream.position = max(stream.position, page.last or after)
        if page.last is not None or stream.has_more:
            stream.has_more = not page.is_all
            for reader in list(stream.readers):
                if not reader.offer(after, page):
                    self._remove(key, stream, reader)


hubs = Watchers(StreamHub)
