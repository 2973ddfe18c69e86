"""Read what handlers stream, from its beginning or any entry on, and follow it.

A hub reads the streams of one server for all readers in this process: one thread, one subscription, few commands.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from asgiref.sync import sync_to_async

from mq_django.conf import QueueConfig, get_config
from mq_django.core import offsets
from mq_django.core.clock import Duration
from mq_django.core.ids import is_text
from mq_django.core.message_streams import Chunk
from mq_django.core.partitions import likely_first, number_in_id
from mq_django.core.retries import SUCCESSFUL
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidOffset, InvalidWait, NotSupported, StoreError, StreamNotFound, WaitTimeout
from mq_django.producers.asynchronous import refuse_event_loop
from mq_django.producers.watcher import ResultWatcher, Watcher, Watchers, checked_timeout, watchers
from mq_django.stores.message_streams import START, STREAMS, Page, Position, read_after
from mq_django.stores.results import Result
from mq_django.transport import test_mode
from mq_django.transport.connections import open_transport, open_transports
from mq_django.transport.sessions import fan_out, reply_or_raise

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


#: The most chunks that wait for a reader. A slower one reads them from Redis.
BUFFERED = 100
#: Seconds until a page is read again after an error, and the longest wait without a look at the time.
TRY_AGAIN, LONGEST = 1.0, 3600.0

NO_STREAMS = "Queue {!r} keeps no streams: set STREAM in its settings"
EVENT_LOOP = ", which reading would block: use aread_stream() instead"


class StreamReader:
    """A reader of the stream of one message: what sync and async iterators and views have in common.

    It reads pages as long as there are some, and then takes what the hub of the server hands over. When its buffer is
    full, it reads pages again. Only `fetch()` sends commands. The hub calls `offer()`, see Follower.
    """

    def __init__(self, message_id: str, configs: Sequence[QueueConfig], after: str | None, seconds: float) -> None:
        self._message_id = message_id
        self._configs = configs
        self._seconds = seconds
        #: When to end in any case, on the monotonic clock; and when the last chunk was taken.
        self.ends = math.inf
        self._since = time.monotonic()
        #: Called when there may be something to take.
        self.wake: Callable[[], object] = bool
        #: Where the stream is, once that is known.
        self._config: QueueConfig | None = configs[0] if len(configs) == 1 else None
        self._hub: StreamHub | None = None
        self._key = ""
        self._lock = threading.Lock()
        self._buffer: deque[Chunk] = deque()
        #: Up to where it was read into the buffer.
        self._position = START if after is None else _position(after)
        #: Just before that: the first page begins with the entry after which is read, which may be the end.
        self._start = START if after is None else offsets.parse(offsets.before("{}-{}".format(*self._position)))
        self._has_begun = False
        #: Pages have to be read, from this time on.
        self._is_behind = True
        self._again = -math.inf
        #: The last chunk is an end, and whether there is more behind it.
        self._is_end = False
        self._has_more = True
        #: Until there is an entry, the task is watched: it may end without one.
        self._watcher: ResultWatcher | None = None
        #: How it has ended, as an outcome; "": not yet.
        self._task_ended = ""
        self._is_new = True
        self._is_closed = False

    @property
    def is_over(self) -> bool:
        """Return whether the stream has ended, and all of it was taken; or whether this reader has to end."""
        return (self._is_end and not (self._has_more or self._buffer)) or time.monotonic() > self.ends

    @property
    def must_fetch(self) -> bool:
        """Return whether fetch() is to be called before anything can be taken."""
        return self._is_behind and time.monotonic() >= self._again

    def left(self) -> float:
        """Return the seconds until the timeout, if nothing more comes."""
        return max(0.0, self._since + self._seconds - time.monotonic())

    def pause(self, longest: float) -> float:
        """Return how long to wait for wake(), at most `longest` seconds."""
        return min(self.left(), longest, TRY_AGAIN if self._is_behind else LONGEST)

    def timed_out(self) -> WaitTimeout:
        """Return the error of a wait that took too long."""
        error = WaitTimeout(f"{self._message_id} has streamed nothing for {self._seconds:g} s")
        error.missing = [self._message_id]
        return error

    def take(self) -> list[Chunk]:
        """Return the chunks that are there, each once."""
        with self._lock:
            chunks = list(self._buffer)
            self._buffer.clear()
        if self._has_begun:
            self._forget_task()
        if chunks:
            self._since = time.monotonic()
        return chunks

    def fetch(self) -> None:
        """Read the next page of a reader that is behind, and let it follow if there was no more.

        Raises:
            StreamNotFound: the task has ended, and there is no stream of it.
            StoreError: Redis cannot be reached at the beginning, or refuses a command. Later it is tried again.
        """
        try:
            self._read_page()
        except StoreError:
            if self._is_new:
                raise
            self._again = time.monotonic() + TRY_AGAIN
        self._is_new = False

    def offer(self, after: Position, page: Page) -> bool:
        """See Follower."""
        with self._lock:
            # If the hub could not hand over what comes before, the reader reads it itself.
            self._is_behind |= after > self._position
            if self._is_behind:
                self._wake_up()
                return False
            # A page of its own may have more than the buffer.
            new, free = self._new(page), max(0, BUFFERED - len(self._buffer))
            if len(new) > free:
                last = _position(new[free - 1].id) if free else None
                page, self._is_behind = Page(new[:free], last, is_all=False), True
            self._add(page)
        self._wake_up()
        return not self._is_behind

    def close(self) -> None:
        """End the reading."""
        self._is_closed = True
        self._forget_task()
        if self._hub is not None:
            self._hub.leave(self._key, self)

    def _wake_up(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self.wake()

    def _read_page(self) -> None:
        if self._hub is None:
            self._begin()
        config, hub = self._config, self._hub
        if config is None or hub is None:
            self._again = time.monotonic() + TRY_AGAIN
            return
        known, page = hub.position(self._key), self._page(config)
        if page.last is None and not self._has_begun:
            self._watch_task(config)
            if self._task_ended:
                # Both ends are written together: perhaps just now.
                page = self._page(config)
        nothing_follows = page.last is None and not self._has_begun and bool(self._task_ended)
        if nothing_follows and self._page(config, START).last is None:
            error = StreamNotFound(f"Task {self._message_id} has ended, and there is no stream of it")
            error.outcome = self._task_ended
            raise error
        with self._lock:
            self._add(page)
            # What is read after is behind the end.
            self._is_end = self._is_end or nothing_follows
            # Before it follows, because it is offered something at once.
            self._is_behind = self._has_more or (bool(self._task_ended) and not (self._has_begun or self._is_end))
        if self._is_behind or self._is_end or test_mode.handle_ready is not None:
            return
        if not hub.follow(config, self._key, self, max(self._position, known)):
            self._is_behind = True
        if self._is_closed:
            # Meanwhile, by an event loop.
            hub.leave(self._key, self)

    def _begin(self) -> None:
        """Find out where the stream is, if that is known."""
        if test_mode.handle_ready is not None:
            # In such a test nothing else handles messages.
            test_mode.handle_ready()
            self._seconds = 0.0
        self._config = self._config or self._found()
        if self._config is not None:
            self._key = self._config.keys.message_stream(self._message_id)
            self._hub = hubs.of(self._config.connection)

    def _found(self) -> QueueConfig | None:
        """Return the queue or partition that has the stream, or the task's result."""
        likely, others = (
            [self._configs[at] for at in positions]
            for positions in likely_first([config.public_name for config in self._configs])
        )
        for chosen in (likely, others):
            keys = [(each.keys.message_stream(self._message_id), each.keys.result(self._message_id)) for each in chosen]
            transports = open_transports("produce", [config.connection for config in chosen])
            replies = fan_out(transports, [[("EXISTS", *pair)] for pair in keys])
            for config, (reply,) in zip(chosen, replies, strict=True):
                if reply_or_raise(reply):
                    return config
        # A message that was published without a task has no result. Its id may name its partition.
        return likely[0] if len(likely) == 1 and number_in_id(self._message_id) is not None else None

    def _page(self, config: QueueConfig, start: Position | None = None) -> Page:
        if start is None:
            start = self._position if self._has_begun else self._start
        return read_after(open_transport("produce", config.connection), [{self._key: start}])[self._key]

    def _watch_task(self, config: QueueConfig) -> None:
        """Hear of the end of the task: it may stream nothing."""
        if self._watcher is None and config.keeps_results and test_mode.handle_ready is None:
            self._watcher = watchers.of(config.connection)
            self._watcher.watch(config, [self._message_id], self._on_end, is_slow=True)

    def _on_end(self, _: str, result: Result | None) -> None:
        with self._lock:
            if result is not None:
                self._task_ended = "handled" if result.status == SUCCESSFUL else "buried"
                self._is_behind = True
        self._wake_up()

    def _forget_task(self) -> None:
        if self._watcher is not None and self._config is not None:
            self._watcher.forget(self._config, [self._message_id], self._on_end)
            self._watcher = None

    def _new(self, page: Page) -> Sequence[Chunk]:
        return [chunk for chunk in page.chunks if _position(chunk.id) > self._position]

    def _add(self, page: Page) -> None:
        """Put what is new in a page into the buffer."""
        new = self._new(page)
        self._buffer.extend(new)
        if page.chunks:
            self._is_end = page.chunks[-1].kind == "end"
        if page.last is not None:
            self._has_begun, self._position = True, max(self._position, page.last)
        self._has_more = not page.is_all


def open_reader(
    message: object, *, queue: str | None = None, after: str | None = None, timeout: Duration = LONGEST
) -> StreamReader:
    """Return a reader of the stream of a message, which has not begun to read: see read_stream()."""
    message_id = message if isinstance(message, str) else getattr(message, "id", None)
    if not message_id or not is_text(message_id):
        raise InvalidWait(f"Give the result that enqueue() returned, or the id of a message, not {repr_of(message)}")
    seconds = checked_timeout(timeout).total_seconds()
    queue = queue or getattr(getattr(message, "task", None), "queue_name", None)
    return StreamReader(message_id, _with_streams(message_id, queue), after, seconds)


def _position(entry: str) -> Position:
    with suppress(InvalidOffset, TypeError):
        if "-" in entry:
            return offsets.parse(entry)
    raise InvalidWait(f"after= is the id of a chunk, such as 1700000000000-0, not {repr_of(entry)}")


def _with_streams(message_id: str, queue: str | None) -> list[QueueConfig]:
    """Return the queues and partitions in which the stream of a message may be."""
    config = get_config()
    if queue is not None:
        chosen = config.queue(queue)
        if chosen.stream is None:
            raise NotSupported(NO_STREAMS.format(chosen.public_name))
        return list(chosen.partitions_for_id(message_id))
    found = [each for each in config.partitions_for_id(message_id) if each.stream is not None]
    if not found:
        raise NotSupported("No queue keeps streams: set STREAM in the settings of one")
    return found


def batches(reader: StreamReader, *, pause: float = LONGEST) -> Generator[list[Chunk]]:
    """Yield the chunks of a stream as they come, several at once, and [] after so many seconds without any."""
    woken = threading.Event()
    reader.wake = woken.set
    try:
        while not reader.is_over:
            woken.clear()
            if chunks := reader.take():
                yield chunks
            elif reader.must_fetch:
                reader.fetch()
            elif not woken.wait(reader.pause(pause)):
                if not reader.left():
                    raise reader.timed_out()
                yield []
    finally:
        reader.close()


async def abatches(reader: StreamReader, *, pause: float = LONGEST) -> AsyncGenerator[list[Chunk]]:
    """Yield the same as batches(), on an event loop."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    reader.wake = partial(loop.call_soon_threadsafe, woken.set)
    # In a test, messages are handled in the thread that has the open transactions of this coroutine.
    fetch = sync_to_async(reader.fetch, thread_sensitive=test_mode.handle_ready is not None)
    try:
        while not reader.is_over:
            woken.clear()
            if chunks := reader.take():
                yield chunks
            elif reader.must_fetch:
                await fetch()
            else:
                try:
                    async with asyncio.timeout(reader.pause(pause)):
                        await woken.wait()
                except TimeoutError:
                    if not reader.left():
                        raise reader.timed_out() from None
                    yield []
    finally:
        reader.close()


def read_stream(
    result_or_id: object, *, queue: str | None = None, after: str | None = None, timeout: Duration = 60.0
) -> Iterator[Chunk]:
    """Return an iterator over what the handler of a message streams: from the beginning, and then as it comes.

        for chunk in read_stream(answer.enqueue("Why?")):
            print(chunk.value, end="")

    Each chunk is yielded once, in the order of the stream. One of kind "restart" says that the message is handled again
    from its beginning. The last one is of kind "end". All arguments are checked at once; the reading begins with the
    first step.

    Args:
        result_or_id: the result that `enqueue()` returned, or the id of a task or message.
        queue: its queue, or `"topic:group"`; None: that of the result, or for an id each queue with STREAM.
        after: the `id` of a chunk: only those behind it are yielded. None: all that are kept.
        timeout: seconds or a timedelta without any chunk, after which the iterator raises WaitTimeout.

    Returns:
        An iterator. It raises StreamNotFound when the task has ended without a stream, or this was kept long enough,
        and WaitTimeout. Failures of Redis after the first step are waited out.

    Raises:
        InvalidWait: the result, `after` or `timeout` cannot be.
        UnknownQueue, UnknownTopic: there is no such queue.
        NotSupported: the queue has no STREAM.
        SynchronousOnlyOperation: this thread runs an event loop, which has to use aread_stream().
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """
    refuse_event_loop(EVENT_LOOP)
    return _each(open_reader(result_or_id, queue=queue, after=after, timeout=timeout))


def _each(reader: StreamReader) -> Iterator[Chunk]:
    with closing(batches(reader)) as found:
        for chunks in found:
            yield from chunks


def aread_stream(
    result_or_id: object, *, queue: str | None = None, after: str | None = None, timeout: Duration = 60.0
) -> AsyncIterator[Chunk]:
    """Return an asynchronous iterator over what the handler of a message streams: see read_stream().

        async for chunk in aread_stream(result):
            ...

    Args:
        result_or_id, queue, after, timeout: as for read_stream().

    Returns:
        An asynchronous iterator, which raises the same.

    Raises:
        InvalidWait, UnknownQueue, UnknownTopic, NotSupported, ConfigurationError: as read_stream().
    """
    return _aeach(open_reader(result_or_id, queue=queue, after=after, timeout=timeout))


async def _aeach(reader: StreamReader) -> AsyncIterator[Chunk]:
    async with aclosing(abatches(reader)) as found:
        async for chunks in found:
            for chunk in chunks:
                yield chunk
