"""Publish the rows in the outbox of one database to the queues and topics of one server, each by itself."""

import time
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial

from mq_django.conf import DeliveryOptions, QueueConfig
from mq_django.models import OutboxState
from mq_django.outbox.claims import OutboxTables
from mq_django.outbox.place_relay import Announce, PlaceRelay, is_place, with_parts
from mq_django.outbox.retained_rows import RetainedRows

#: Seconds after which the open claim of another process is continued, if it has not changed.
TAKE_OVER = 1.0


class DatabaseRelay:
    """Publishes the rows of one database.

    Args:
        alias: the alias of the database.
        destinations: the queues and topics, by name.
        announce: is called when a message is published.
        take_over: seconds after which the open claim of another process is continued.
    """

    def __init__(
        self,
        alias: str,
        destinations: Mapping[str, DeliveryOptions],
        announce: Announce,
        *,
        take_over: float = TAKE_OVER,
    ) -> None:
        self.tables = OutboxTables(alias)
        self._destinations = destinations
        self._announce = announce
        self._take_over = take_over
        #: By destination, number of partitions, and partition.
        self._places: dict[tuple[str, int, int], PlaceRelay] = {}
        #: By queue.
        self._retained: dict[str, RetainedRows] = {}
        #: State -> its open claim of another process, and since when it is known, on the monotonic clock.
        self._seen: dict[int, tuple[int, str, float]] = {}
        #: Destinations whose number of partitions is recorded.
        self._checked: set[str] = set()

    def steps(self) -> Iterator[tuple[DeliveryOptions, Callable[[], bool]]]:
        """Yield what there is to do: the place, and a function that does it and returns whether there may be more.

        Without rows it takes one query. The next queue or topic is looked for when all steps of one are done.

        Raises:
            DatabaseError: from the database.
        """
        # First: an id may be used again by a row that is published in this round.
        yield from self._retained_steps()
        open_states, first = self.tables.look()
        known_states = [state for state in open_states if state.destination in self._destinations]
        states = [state for state in known_states if is_place(state.part, state.parts)]
        for state in states:
            place = self._place(state.destination, state.parts, state.part)
            yield place.place, partial(self._continue, state, place)
        open_places = {(state.destination, state.parts, state.part) for state in states}
        for key, known in self._places.items():
            if key not in open_places:
                # Another process may have finished it.
                known.claim = None
        for name in self.tables.destinations(first):
            if name in self._destinations:
                yield from self._waiting_steps(name, open_places)

    def _retained_steps(self) -> Iterator[tuple[DeliveryOptions, Callable[[], bool]]]:
        """Yield the queues whose rows are kept until their messages are handled."""
        for name, each in self._destinations.items():
            if each.keeps_rows and isinstance(each, QueueConfig):
                retained = self._retained.get(name)
                if retained is None:
                    retained = self._retained[name] = RetainedRows(self.tables, each)
                if retained.is_due:
                    yield each, retained.step

    @property
    def is_waiting(self) -> bool:
        """Return whether a claim of this process is open, because a queue is full or a replica is slow."""
        return any(place.claim is not None for place in self._places.values())

    def _waiting_steps(
        self, name: str, open_places: Container[tuple[str, int, int]]
    ) -> Iterator[tuple[DeliveryOptions, Callable[[], bool]]]:
        whole = self._destinations[name]
        parts = len(whole.parts) or 1
        if parts == 1:
            place = self._place(name, 1, whole.number)
            if (name, 1, whole.number) not in open_places:
                yield place.place, partial(self._advance_only, place)
            return
        found = self.tables.parts(name, parts)
        if self.tables.has_others(name, parts) or not all(is_place(part, parts) for part in found):
            yield whole, partial(self._place_again, whole)
        for part in found:
            if is_place(part, parts) and (name, parts, part) not in open_places:
                place = self._place(name, parts, part)
                yield place.place, partial(self._advance, place)

    def _advance_only(self, place: PlaceRelay) -> bool:
        """Advance the only place of a destination; without rows there, look for those that are placed elsewhere."""
        return place.advance() or (place.claim is None and self._place_again(place.destination, only=True))

    def _advance(self, place: PlaceRelay) -> bool:
        if place.destination.parts and place.destination.name not in self._checked:
            place.check_count()
            self._checked.add(place.destination.name)
        return place.advance()

    def _continue(self, state: OutboxState, place: PlaceRelay) -> bool:
        """Go on with an open claim: with that of this process, or with one that nobody seems to go on with."""
        name = None if place.claim is None else place.claim.name
        if name is None or (name.number, name.token) != (state.number, state.token):
            place.claim = None
            if not self._may_take_over(state):
                return False
            place.resume(self.tables.read(state))
        if place.parts == (len(self._destinations[state.destination].parts) or 1):
            return place.advance()
        whole = self._destinations[state.destination]
        self._place(state.destination, len(whole.parts) or 1, whole.each_part[0].number).check_count()
        place.end(whole)
        return True

    def _may_take_over(self, state: OutboxState) -> bool:
        number, token, since = self._seen.get(state.pk, (0, "", 0.0))
        if (number, token) != (state.number, state.token):
            since = time.monotonic()
            self._seen[state.pk] = (state.number, state.token, since)
        return time.monotonic() - since >= self._take_over

    def _place_again(self, whole: DeliveryOptions, *, only: bool = False) -> bool:
        if only and not self.tables.is_misplaced(whole):
            return False
        self._place(whole.name, len(whole.parts) or 1, whole.each_part[0].number).check_count()
        return self.tables.place_again(whole) > 0

    def _place(self, name: str, parts: int, part: int) -> PlaceRelay:
        found = self._places.get((name, parts, part))
        if found is None:
            whole = with_parts(self._destinations[name], parts)
            found = self._places[name, parts, part] = PlaceRelay(self.tables, whole, part, self._announce)
        return found
