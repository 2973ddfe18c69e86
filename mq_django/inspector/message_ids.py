"""The ids of all messages of a queue, wherever they are."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from mq_django.conf import get_config
from mq_django.core.filters import Filterable
from mq_django.core.numbers import score_ms
from mq_django.inspector.readers import reader_of
from mq_django.inspector.room_reader import place_in
from mq_django.stores.dead_letter_queue import next_to, open_dead_letters
from mq_django.transport.connections import open_wire
from mq_django.transport.sessions import reply_or_raise

#: Where a message is.
MessageState = Literal["delayed", "unhandled", "parked", "ready", "pending", "dead"]

#: Messages read at a time.
BATCH = 500


def expired_ms(name: str, message_id: str) -> int | None:
    """Return when a message was discarded because it had expired, in ms since 1970; None if not within the last week.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    config = get_config().queue(name)
    (reply,) = open_wire("inspect", config.connection).trip([("ZSCORE", config.keys.expired, message_id)])
    score = reply_or_raise(reply)
    return None if score is None else score_ms(score)


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
