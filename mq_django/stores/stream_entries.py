"""Read the streams of messages, several in one command. Their entries are written by `message_streams`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mq_django.core import offsets
from mq_django.core.message_streams import Chunk, read_chunk
from mq_django.errors import StoreError, WrongKeyType
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, reply_or_raise

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
