"""What the handler of a message streams, for people: the latest entries, with secrets replaced."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from mq_django.conf import get_config
from mq_django.core.logs import get_logger
from mq_django.core.message_streams import Chunk, read_chunk
from mq_django.core.redaction import redact, redact_text
from mq_django.errors import StoreError
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Transport, reply_or_raise

logger = get_logger(__name__)

#: How many entries are read at a time, until they have so many bytes.
STEPS, ENOUGH = (10, 40, 150), 64 * 1024

Entry = tuple[bytes, list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """The latest that the latest run of a message has streamed."""

    #: The oldest first. Texts that follow one another are one chunk.
    chunks: Sequence[Chunk]
    #: How many entries are before them in the stream.
    earlier: int

    @property
    def end(self) -> Chunk | None:
        """Return the end of the stream; None before it."""
        return self.chunks[-1] if self.chunks and self.chunks[-1].kind == "end" else None


def stream_of(queue: str, message_id: str) -> StreamView | None:
    """Return the stream of a message; None without one, or if it cannot be read: a page shows the rest.

    Args:
        queue: a queue, a group or a partition.
        message_id: of the message.
    """
    config = get_config().queue(queue)
    if config.stream is None:
        return None
    transport, key = open_transport("inspect", config.connection), config.keys.message_stream(message_id)
    try:
        entries, length = _latest(transport, key)
    except StoreError as error:
        logger.warning("The stream of a message cannot be read: %s", error)
        return None
    chunks = [chunk for entry, fields in reversed(entries) if (chunk := read_chunk(entry, fields)) is not None]
    begins = max((at for at, chunk in enumerate(chunks) if chunk.kind == "restart"), default=0)
    shown = chunks[begins:]
    return StreamView(chunks=_joined(shown), earlier=length - len(shown)) if shown else None


def _latest(transport: Transport, key: str) -> tuple[list[Entry], int]:
    """Return the latest entries of a stream, the last one first, and how many it has."""
    entries, length, before = list[Entry](), 0, b"+"
    for count in STEPS:
        replies = transport.pipeline([("XREVRANGE", key, before, "-", "COUNT", count), ("XLEN", key)])
        found, length = map(reply_or_raise, replies)
        entries += found
        size = sum(len(text) for _, fields in entries for text in fields)
        if len(found) < count or size > ENOUGH:
            break
        before = b"(" + entries[-1][0]
    return entries, length


def _joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return chunks without secrets, with the texts that follow one another as one."""
    found = list[Chunk]()
    for kind, each in groupby(chunks, lambda chunk: chunk.kind):
        of_kind = list(each)
        if kind == "text":
            of_kind = [replace(of_kind[-1], value="".join(chunk.value for chunk in of_kind))]
        found += map(without_secrets, of_kind)
    return found


def without_secrets(chunk: Chunk) -> Chunk:
    """Return a chunk with the secrets in its value and its error replaced. Those in bytes stay."""
    value: Any = redact_text(chunk.value) if isinstance(chunk.value, str) else redact(chunk.value)
    return replace(chunk, value=value, error=redact_text(chunk.error))
