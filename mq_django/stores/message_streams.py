"""The streams of messages: one STREAM with a TTL for each message whose handler streams.

Only the holder of a delivery appends to it. To send a chunk again has no effect: the script compares the numbers.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core import offsets
from mq_django.core.logs import get_logger
from mq_django.core.message_streams import MAX_ERROR, Chunk, Numbered, RunStream, end_text, read_chunk
from mq_django.core.messages import ENDINGS, Bury, Cancel, Delivery, StepDrop
from mq_django.core.texts import line
from mq_django.errors import StoreError, WrongKeyType
from mq_django.stores.base import Settlement, StreamEntry
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, reply_or_raise

logger = get_logger(__name__)

#: How long the stream of a message that has not ended is kept after the last chunk.
UNFINISHED_MS = 7 * 24 * 3600 * 1000
#: A script call appends chunks of so many runs, so many in all, and about so many bytes. This blocks Redis for 2 ms.
RUNS = 50
CHUNKS = 300
BYTES = 1024 * 1024
#: Streams that a script call ends.
BATCH = 500


class AppendCall:
    """A script call, and the runs whose chunks it appends."""

    def __init__(self) -> None:
        self.runs: list[tuple[Delivery, RunStream, list[Numbered]]] = []
        self._chunks = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Return whether another call has to take what is left."""
        return self._chunks >= CHUNKS or self._bytes >= BYTES or len(self.runs) > RUNS

    def add(self, delivery: Delivery, stream: RunStream, chunk: Numbered) -> None:
        """Add a chunk of a run."""
        if not self.runs or self.runs[-1][1] is not stream:
            self.runs.append((delivery, stream, []))
        self.runs[-1][2].append(chunk)
        self._chunks += 1
        self._bytes += len(chunk.value)

    def command(self, config: QueueConfig, keys: Mapping[str, str], group: str, consumer: str) -> Command:
        """Return the command. `keys` and `group` are of the receipts: see `mq_django.stores.settling.Receipts`."""
        limits, streams = config.stream, [config.keys.message_stream(each.message.id) for each, _, _ in self.runs]
        assert limits is not None
        args: list[Argument] = [" ".join(keys), group, consumer, limits.entries, limits.bytes, UNFINISHED_MS]
        for delivery, stream, chunks in self.runs:
            args += (delivery.entry, stream.run, delivery.message.attempt, len(chunks))
            args += [word for chunk in chunks for word in chunk]
        return scripts.command("streams_append", keys=[*keys.values(), *streams], args=args)

    def done(self, config: QueueConfig, reply: Sequence[int]) -> None:
        """Note what is in Redis now."""
        for (delivery, stream, _), number in zip(self.runs, reply, strict=True):
            if number >= 0:
                stream.sent(number)
                continue
            if number < -1 and not stream.is_lost:
                text = "The stream of message %s of queue %s cannot be written: its key is something else"
                logger.warning(text, delivery.message.id, config.name)
            stream.lose()


def append_calls(runs: Sequence[tuple[Delivery, RunStream]], most: int | None = None) -> Iterator[AppendCall]:
    """Yield the calls that append what runs have not sent; of each at most `most` chunks."""
    call = AppendCall()
    for delivery, stream in runs:
        for chunk in stream.unsent(most):
            if call.is_full:
                yield call
                call = AppendCall()
            call.add(delivery, stream, chunk)
    if call.runs:
        yield call


def ends_of_batch(
    config: QueueConfig, batch: Sequence[Settlement], streamed: Collection[StreamEntry]
) -> tuple[list[str], list[Argument]]:
    """Return the keys of the streams of messages that are settled for good, and what `lua/settle.lua` appends to them.

    Args:
        config: of their queue.
        batch: the deliveries with their outcomes.
        streamed: those whose runs have streamed. They get an end in any case, and so do messages that have failed:
            somebody may wait for it. Of others, also of those that have expired, perhaps thousands at once, only an
            earlier run can have streamed.
    """
    assert config.stream is not None
    keys, ends = list[str](), list[Argument]([config.stream.ttl_ms])
    for number, (delivery, outcome, *_) in enumerate(batch, 1):
        if isinstance(delivery, Delivery):
            error = line(outcome.error[:MAX_ERROR]) if isinstance(outcome, Bury | Cancel | StepDrop) else ""
            is_needed = isinstance(outcome, Bury | Cancel | StepDrop) or (delivery.stream, delivery.entry) in streamed
            attempt = delivery.message.attempt if is_needed else ""
            keys.append(config.keys.message_stream(delivery.message.id))
            ends += (number, attempt, end_text(ENDINGS[type(outcome)], error))
    return keys, ends


def end_streams(
    transport: Transport, config: QueueConfig, message_ids: Sequence[str], how: str, *, always: bool = False
) -> None:
    """End the streams of messages that were deleted before they were handled.

    An error of Redis is logged, because the messages are deleted in any case.

    Args:
        transport, config: of their queue or partition.
        message_ids: of the messages.
        how: the error.
        always: they get a stream with this end if they have none. Each takes about 4 KB, so this is for single ones.
    """
    if config.stream is None or not message_ids:
        return
    keys = [config.keys.message_stream(each) for each in message_ids]
    args: list[Argument] = [1 if always else "", end_text("cancelled", how), config.stream.ttl_ms]
    try:
        for at in range(0, len(keys), BATCH):
            transport.run("streams_end", keys[at : at + BATCH], args)
    except StoreError as error:
        logger.warning("The streams of cancelled messages of queue %s have no end: %s", config.name, error)


# Read streams, several in one command.

#: The most streams and entries that a command reads. An entry has up to 64 KiB.
STREAMS = 500
ENTRIES = 1000
#: The most entries of one stream.
PAGE = 100

#: The id of an entry: milliseconds since 1970, and a number.
Position = tuple[int, int]
START: Position = (0, 0)


class Page(NamedTuple):
    """The entries of a stream after a position."""

    chunks: Sequence[Chunk] = ()
    #: Of the last entry, also of one that is not valid. None: there is no entry.
    last: Position | None = None
    #: There were no more entries.
    is_all: bool = True


def read_after(transport: Transport, groups: Sequence[Mapping[str, Position]]) -> dict[str, Page]:
    """Read several streams, in one round trip per server.

    Args:
        transport: of their server.
        groups: the keys of up to STREAMS streams in one hash slot, each with the position after which it is read.

    Returns:
        A page of each stream, but of those whose node of a cluster cannot be reached. What is no stream has no entries.

    Raises:
        StoreError: nothing can be read.
    """
    pages: dict[str, Page] = {}
    again: list[Mapping[str, Position]] = []
    failed: list[StoreError] = []
    for group, (reply,) in zip(groups, transport.pipelines([[_command(group)] for group in groups]), strict=True):
        try:
            found = dict(reply_or_raise(reply) or ())
        except WrongKeyType:
            # One such key fails the command for all.
            again += [{key: position} for key, position in group.items()] if len(group) > 1 else ()
            found = {}
        except StoreError as error:
            failed.append(error)
            continue
        pages |= {key: _page(found.get(key.encode(), ()), _most(group)) for key in group}
    if failed and not pages:
        raise failed[0]
    return pages | read_after(transport, again) if again else pages


def _most(group: Mapping[str, Position]) -> int:
    return min(PAGE, max(2, ENTRIES // len(group)))


def _command(group: Mapping[str, Position]) -> Command:
    ids = [f"{ms}-{number}" for ms, number in group.values()]
    return ("XREAD", "COUNT", _most(group), "STREAMS", *group, *ids)


def _page(entries: Sequence[tuple[bytes, Sequence[bytes]]], most: int) -> Page:
    if not entries:
        return Page()
    # An entry that was deleted while it was read has no fields.
    chunks = [chunk for entry, fields in entries if fields and (chunk := read_chunk(entry, fields)) is not None]
    return Page(chunks, offsets.parse(entries[-1][0].decode()), len(entries) < most)
