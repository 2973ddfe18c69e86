"""Decide whether streams of messages, and what readers got of them, are as promised. Pure and offline."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.core.jsontext import loads
from tests.chaos.checker import Violation
from tests.chaos.history import Event
from tests.chaos.settings import READERS

#: The kinds of entries that the handler has streamed.
SPOKEN = ("text", "log")


class Entry(NamedTuple):
    """An entry of a stream."""

    id: str
    run: str
    attempt: int
    number: int
    total: int
    kind: str
    value: str

    @property
    def said(self) -> list[Any]:
        """Return what a reader notes of it."""
        value = self.value if self.kind in ("text", "log") else None
        outcome = loads(self.value.encode())["outcome"] if self.kind == "end" else ""
        return [self.id, self.kind, value, self.attempt, self.number, outcome]


def judged(name: str, stream: Sequence[Entry], chunks: int | None) -> Iterator[Violation]:
    """Yield what the stream of a message has not kept. `chunks`: of a whole run, if it was handled.

    S1   one run follows another, marked; each is one of the handler, from its first chunk on, without a gap
    S2   it ends once, as the message did, and then has all of the last run
    """
    spoken = {(entry.run, entry.value.partition(" ")[0]) for entry in stream if entry.kind in SPOKEN}
    runs, speakers = ({pair[place] for pair in spoken} for place in (0, 1))
    restarts = sum(entry.kind == "restart" for entry in stream)
    pairs = zip([None, *stream], stream, strict=False)
    wrong = [(before, entry) for before, entry in pairs if not _follows(before, entry)]
    if wrong or not len(spoken) == len(runs) == len(speakers) or restarts < len(runs) - 1:
        yield Violation("S1", f"{name}: {wrong[:1]} in {len(runs)} runs with {restarts} restarts", [name])
    ends = [place for place, entry in enumerate(stream) if entry.kind == "end"]
    outcome = "buried" if chunks is None else "handled"
    is_right = ends == [len(stream) - 1] and stream[-1].said[-1] == outcome
    if not is_right or (chunks is not None and stream[-1].number != chunks + 1):
        yield Violation("S2", f"{name} was {outcome} ({chunks}): {[entry[1:] for entry in stream[-3:]]}", [name])


def _follows(before: Entry | None, entry: Entry) -> bool:
    """Tell whether an entry may follow another one."""
    number, total = (before.number, before.total) if before else (0, 0)
    if entry.kind in SPOKEN and entry.value.partition(" ")[2] != str(entry.number):
        return False
    if entry.kind == "restart":
        return before is not None and before.run != entry.run and entry.number == 0 and entry.total == total
    is_same = before is None or (before.run, before.attempt) == (entry.run, entry.attempt)
    return is_same and entry.number == number + 1 and entry.total == total + len(entry.value)


def judged_readers(streams: Mapping[str, Sequence[Entry]], events: Iterable[Event]) -> Iterator[Violation]:
    """Yield what readers did not get.

    S3   from wherever it begins, a reader gets what the stream has, each once, in order
    S4   it gets all, up to the end, and then stops
    """
    read = defaultdict[str, list[Event]](list)
    for event in events:
        if event.what in ("reads", "read", "read-all", "read-failed"):
            read[event.told["reader"]].append(event)
    for message, stream in streams.items():
        known = [entry.said for entry in stream]
        places = {entry.id: place for place, entry in enumerate(stream, 1)}
        for kind in READERS:
            yield from _judge_reader(f"{kind} {message}", read[f"{kind} {message}"], known, places)


def _judge_reader(
    reader: str, events: Sequence[Event], known: Sequence[Sequence[Any]], places: Mapping[str, int]
) -> Iterator[Violation]:
    place, said = 0, ""
    for event in events:
        said = event.what
        if said == "reads":
            place = places.get(event.told["after"], 0)
        elif said == "read":
            if known[place : place + 1] != [event.told["chunk"]]:
                yield Violation("S3", f"{reader} got {event.told['chunk']}, not {known[place : place + 1]}")
                return
            place += 1
    if said != "read-all" or place != len(known):
        last = events[-1] if events else None
        yield Violation("S4", f"{reader} got {place} of {len(known)} entries, and then {last}")
