"""The ids of all messages of a queue, wherever they are."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.filters import Filterable
from mq_django.core.lookup import Place
from mq_django.core.numbers import score_ms
from mq_django.inspector.one_queue import one_queue
from mq_django.inspector.readers import reader_of
from mq_django.inspector.room_reader import place_in
from mq_django.stores.dead_letter_queue import next_to, open_dead_letters
from mq_django.transport.connections import open_wire
from mq_django.transport.sessions import reply_or_raise

#: Where a message is.
MessageState = Literal["delayed", "unhandled", "parked", "ready", "pending", "dead"]

#: Messages read at a time.
BATCH = 500
DAY_MS = 86_400_000


class Ended(NamedTuple):
    """What became of a message, and when, in ms since 1970."""

    place: Literal[Place.EXPIRED, Place.REPLACED]
    ms: int


def ended(name: str, message_id: str) -> Ended | None:
    """Return that a message has expired within the last week, or was replaced within the last day; else None.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    config = one_queue(name)
    keys = (config.keys.expired, config.keys.replaced)
    replies = open_wire("inspect", config.connection).trip([("ZSCORE", key, message_id) for key in keys])
    expired_ms, replaced_ms = (score_ms(reply_or_raise(reply)) for reply in replies)
    if expired_ms is not None:
        return Ended(Place.EXPIRED, expired_ms)
    # As in lua/parts/replaced.lua: the ids are deleted later.
    if replaced_ms is not None and replaced_ms > clock.now_ms() - DAY_MS:
        return Ended(Place.REPLACED, replaced_ms)
    return None


class _Ids(list[str]):
    """A matcher that matches nothing, so that no view is built, and collects the ids of all messages."""

    def matches(self, message: Filterable) -> bool:
        self.append(message.id)
        return False


def ids(name: str) -> Iterator[tuple[MessageState, list[str]]]:
    """Yield the ids of all messages in a queue, in pages of at most 500 with their place.

    A message that moves meanwhile may be returned twice, or not at all.
    """
    config = get_config().queue(name)
    for part in config.parts:
        yield from ids(part.name)
    if config.parts:
        return
    wire = open_wire("inspect", config.connection)
    reader, dead = reader_of(config, wire), open_dead_letters(config, wire)
    reads: dict[MessageState, Callable[[_Ids, str], Iterable[tuple[str, Any]]]] = {
        "delayed": lambda found, after: reader.waiting("delayed", found, start=place_in(after), limit=BATCH)[2],
        "unhandled": lambda found, after: reader.waiting("unhandled", found, start=place_in(after), limit=BATCH)[2],
        "parked": lambda found, after: reader.waiting("parked", found, start=place_in(after), limit=BATCH)[2],
        "pending": lambda found, after: reader.pending(found, after=after, limit=BATCH),
        "ready": lambda found, after: reader.ready(found, after=after, limit=BATCH),
        "dead": lambda found, after: (
            (letter.entry, found.matches(letter)) for letter in dead.traits(limit=BATCH, first=next_to(after, "-"))
        ),
    }
    for place, read in reads.items():
        yield from ((place, found) for found in _pages(read))


def _pages(read: Callable[[_Ids, str], Iterable[tuple[str, Any]]]) -> Iterator[list[str]]:
    after = ""
    while True:
        found = _Ids()
        for cursor, _ in read(found, after):
            after = cursor
        if not found:
            return
        yield found
