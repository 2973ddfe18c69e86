"""The streams of messages: one STREAM with a TTL for each message whose handler streams.

Only the holder of a delivery appends to it. To send a chunk again has no effect: the script compares the numbers.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.logs import get_logger
from mq_django.core.message_streams import MAX_ERROR, Chunk, Numbered, RunStream, end_text, read_chunk
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Ack, Bury, Cancel, Expire, StepEnd
from mq_django.core.texts import line
from mq_django.errors import StoreError
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


_OUTCOMES: Mapping[type, str] = {
    Ack: "handled",
    StepEnd: "handled",
    Bury: "buried",
    Cancel: "cancelled",
    Expire: "expired",
}


def ends_of_batch(
    config: QueueConfig, batch: Sequence[Settlement], streamed: Collection[StreamEntry]
) -> tuple[list[str], list[Argument]]:
    """Return the keys of the streams of messages that are settled for good, and what `lua/settle.lua` appends to them.

    Args:
        config: of their queue.
        batch: the deliveries with their outcomes.
        streamed: those whose runs have streamed. They get an end in any case, and so do messages that have failed:
            somebody may wait for it. Of others only an earlier run can have streamed.
    """
    assert config.stream is not None
    keys, ends = list[str](), list[Argument]([config.stream.ttl_ms])
    for number, (delivery, outcome, *_) in enumerate(batch, 1):
        if isinstance(delivery, Delivery):
            failed = isinstance(outcome, Bury | Cancel | Expire)
            error = line(outcome.error[:MAX_ERROR]) if isinstance(outcome, Bury | Cancel) else ""
            is_needed = failed or (delivery.stream, delivery.entry) in streamed
            attempt = delivery.message.attempt if is_needed else ""
            keys.append(config.keys.message_stream(delivery.message.id))
            ends += (number, attempt, end_text(_OUTCOMES[type(outcome)], error))
    return keys, ends


def end_streams(
    transport: Transport, config: QueueConfig, message_ids: Sequence[str | bytes], how: str, *, always: bool = False
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
    ids = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in message_ids]
    keys = [config.keys.message_stream(each) for each in ids]
    args: list[Argument] = [1 if always else "", end_text("cancelled", how), config.stream.ttl_ms]
    try:
        for at in range(0, len(keys), BATCH):
            command = scripts.command("streams_end", keys=keys[at : at + BATCH], args=args)
            reply_or_raise(transport.pipeline([command])[0])
    except StoreError as error:
        logger.warning("The streams of cancelled messages of queue %s have no end: %s", config.name, error)


class StreamPage(NamedTuple):
    """Some entries of a stream."""

    chunks: Sequence[Chunk]
    #: The id of the last entry, also of one that is not valid; where the page began if there is none.
    last: str


def read_page(transport: Transport, config: QueueConfig, message_id: str, after: str, count: int) -> StreamPage:
    """Read up to `count` entries of a message's stream, each of up to 64 KiB.

    Args:
        transport, config: of its queue or partition.
        message_id: of the message.
        after: the id of an entry, after which is read; "" for the beginning.
        count: from 1 on.

    Raises:
        StoreError: Redis cannot be reached, or refuses the command.
    """
    start = f"({after}" if after else "-"
    command = ("XRANGE", config.keys.message_stream(message_id), start, "+", "COUNT", count)
    found = reply_or_raise(transport.pipeline([command])[0])
    chunks = [chunk for entry, fields in found if (chunk := read_chunk(entry, fields)) is not None]
    return StreamPage(chunks, found[-1][0].decode() if found else after)
