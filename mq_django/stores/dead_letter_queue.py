"""The dead-letter queue: look, count, put back, delete."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.filters import FailureGroup
from mq_django.core.keys import READY, RsmqKeys
from mq_django.core.messages import DeadLetter, Delivery
from mq_django.core.numbers import whole
from mq_django.core.wire import decode_entry, entry_ms, moment_ms
from mq_django.errors import DecodeError
from mq_django.stores.settling import DEAD_FIELDS
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: Dead letters a script call moves: short enough for Redis to serve others in between.
BATCH = 500

#: Bytes of a field that a page of dead letters still carries, and that a filter looks at: an error has up to 4 KiB.
MAX_LISTED = 16 * 1024
MAX_TRAIT = 4 * 1024

_ENTRY = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)
_ADDED = frozenset(name.encode() for name in DEAD_FIELDS)


class Fields(NamedTuple):
    """An entry of the dead-letter queue as a page carries it."""

    entry: str
    #: A value that is too long for a page is its length instead.
    values: Mapping[bytes, bytes | int]


class Letter(NamedTuple):
    """What a filter looks at of a dead letter."""

    entry: str
    id: str
    name: str
    key: str | None
    error: str
    published_ms: int | None


class Counted(NamedTuple):
    """How many dead letters there are of a name and an error."""

    #: None: of all for which there was no room, beyond 1000.
    group: FailureGroup | None
    letters: int
    #: When one was buried last: ms since 1970.
    buried_ms: int


class Step(NamedTuple):
    """A step of a job, which counts itself with what it moves: see `mq_django.stores.background_jobs`."""

    worker: str
    #: The last entry that was looked at.
    after: str
    looked: int
    lease_ms: int


NO_STEP = Step("", "", 0, 0)

#: How much of each dead letter a page has: all, all but its traceback and history, or what a filter looks at.
Which = Literal["WHOLE", "LISTED", "TRAITS"]


class LetterPage(NamedTuple):
    """A page of dead letters, and how many there are in all."""

    total: int
    letters: Sequence[Fields]


def is_entry(text: str) -> bool:
    """Tell whether `text` can be the id of an entry: Redis refuses a whole batch for one that cannot."""
    found = _ENTRY.fullmatch(text)
    return found is not None and all(int(part) < 2**64 for part in found.groups())


class DeadLetters:
    """The dead-letter queue of one queue."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._queue = config.name
        self._keys = config.keys
        self._wire = wire

    def newest(
        self, *, limit: int, before: str = "", max_bytes: int = MAX_LISTED, which: Which = "LISTED"
    ) -> LetterPage:
        """Return up to `limit` dead letters, newest first, from those older than the entry `before`."""
        return _page(self._wire.trip([self._list("NEWEST", _next(before) or "+", "-", limit, max_bytes, which)])[0])

    def oldest(
        self, *, limit: int, after: str = "", until: str = "", max_bytes: int = MAX_LISTED, which: Which = "LISTED"
    ) -> LetterPage:
        """Return up to `limit` dead letters, oldest first: those after the entry `after`, to `until`."""
        command = self._list("OLDEST", _next(after) or "-", until or "+", limit, max_bytes, which)
        return _page(self._wire.trip([command])[0])

    def traits(self, *, limit: int, after: str = "", until: str = "", before: str | None = None) -> list[Letter]:
        """Return what a filter looks at, oldest first; with `before`, an entry or empty, newest first."""
        if before is not None:
            found = self.newest(limit=limit, before=before, max_bytes=MAX_TRAIT, which="TRAITS")
        else:
            found = self.oldest(limit=limit, after=after, until=until, max_bytes=MAX_TRAIT, which="TRAITS")
        return [_letter(fields) for fields in found.letters]

    def _list(self, order: str, first: str, last: str, limit: int, max_bytes: int, which: Which) -> Command:
        args: list[Argument] = [order, first, last, limit, max_bytes, which]
        return scripts.command("dead_list", keys=[self._keys.dead], args=args)

    def some(self, entries: Sequence[str]) -> list[Fields]:
        """Return dead letters, those that are still there, without what is long."""
        if not entries:
            return []
        command = scripts.command("dead_some", keys=[self._keys.dead], args=[MAX_LISTED, *entries])
        return list(_page(self._wire.trip([command])[0]).letters)

    def all(self, *, batch: int = BATCH) -> Iterator[Sequence[Fields]]:
        """Yield all dead letters in batches, oldest first, with what a filter looks at."""
        after = ""
        while found := self.oldest(limit=batch, after=after, max_bytes=MAX_TRAIT, which="TRAITS").letters:
            yield found
            after = found[-1].entry

    def groups(self) -> list[Counted]:
        """Return how many dead letters there are by name and error, as was counted at their burying."""
        (reply,) = self._wire.trip([("HGETALL", self._keys.dead_groups)])
        flat = reply_or_raise(reply)
        return [found for pair in zip(flat[::2], flat[1::2], strict=True) if (found := _counted(*pair))]

    def entries(self, *, after: str, until: str, batch: int = BATCH) -> Iterator[list[str]]:
        """Yield the entries of the dead letters after one and up to another, in batches, oldest first."""
        while found := self.oldest(limit=batch, after=after, until=until, max_bytes=0, which="TRAITS").letters:
            yield [letter.entry for letter in found]
            after = found[-1].entry

    def find(self, message_id: bytes) -> str | None:
        """Return the entry under which a message is buried, or None."""
        (reply,) = self._wire.trip([("HGET", self._keys.dead_ids, message_id)])
        found = reply_or_raise(reply)
        return None if found is None else found.decode(errors="replace")

    def get(self, entry: str) -> DeadLetter | None:
        """Return a dead letter whole, or None when it is no longer there."""
        return next(iter(self.get_many([entry])), None)

    def get_many(self, entries: Sequence[str]) -> list[DeadLetter]:
        """Return dead letters whole, those that are still there."""
        known = [entry for entry in entries if is_entry(entry)]
        commands: list[Command] = [("XRANGE", self._keys.dead, entry, entry) for entry in known]
        found: list[DeadLetter] = []
        for entry, reply in zip(known, self._wire.trip(commands) if commands else [], strict=True):
            for _, flat in reply_or_raise(reply):
                found.append(letter_of(self._queue, entry, dict(zip(flat[::2], flat[1::2], strict=True))))
        return found

    def redrive(self, entries: Sequence[str], *, step: Step = NO_STEP) -> list[str]:
        """Put up to 500 dead letters back into their queue, each at its first attempt.

        Returns for each entry `REDRIVEN`, `MISSING`, or `UNDECODABLE` for what is no message; for a step of a job that
        is over, or another's, `STOPPED` alone.
        """
        keys = self._keys
        if isinstance(keys, RsmqKeys):
            key_names = [keys.zset, keys.hash, keys.notes]
            return self._move("rsmq_redrive", [keys.dead_job, *key_names], [*step, keys.wake, *entries])
        return self._move("dead_redrive", [keys.dead_job, keys.ready], [*step, *entries])

    def delete(self, entries: Sequence[str], *, step: Step = NO_STEP) -> list[str]:
        """Delete up to 500 dead letters for good, and return for each entry `DELETED` or `MISSING`, as `redrive`."""
        return self._move("dead_delete", [self._keys.dead_job], [*step, *entries])

    def resubmit(self, entry: str, *, message_id: str, text: bytes) -> str:
        """Put a dead letter back into its queue with other data, as a new message.

        `text` is the data's, or of a queue in RSMQ's format the whole body. Returns `RESUBMITTED`, `MISSING`, or
        `UNDECODABLE` for what is no message.
        """
        keys = self._keys
        if isinstance(keys, RsmqKeys):
            args: list[Argument] = [entry, message_id, text, keys.wake]
            return self._move("rsmq_resubmit", [keys.zset, keys.hash], args)[0]
        return self._move("dead_resubmit", [keys.ready], [entry, message_id, text])[0]

    def _move(self, script: str, key_names: list[str], args: Sequence[Argument]) -> list[str]:
        keys = self._keys
        command = scripts.command(
            script, keys=[keys.dead, keys.dead_ids, keys.dead_groups, *key_names], args=list(args)
        )
        reply = reply_or_raise(self._wire.trip([command])[0])
        return [word.decode() for word in ([reply] if isinstance(reply, bytes) else reply)]


def _next(entry: str) -> str:
    return f"({entry}" if entry else ""


def _letter(fields: Fields) -> Letter:
    values = fields.values
    key = values.get(b"partitionkey")
    return Letter(
        entry=fields.entry,
        id=text_of(values.get(b"id")) or fields.entry,
        name=text_of(values.get(b"type")),
        key=None if key is None else text_of(key),
        error=text_of(values.get(b"deaderror")),
        published_ms=_published(values.get(b"time"), fields.entry),
    )


def _published(value: bytes | int | None, entry: str) -> int | None:
    try:
        return moment_ms(text_of(value) or None) or entry_ms(entry.encode())
    except DecodeError:
        return None


def _counted(field: bytes, value: bytes) -> Counted | None:
    error, separator, name = field.decode(errors="backslashreplace").partition("|")
    numbers = [whole(part) for part in value.split(b" ")]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        return None
    return Counted(FailureGroup(name, error) if separator else None, numbers[0], numbers[1])


def _page(reply: Any) -> LetterPage:
    total, *flat = reply_or_raise(reply)
    return LetterPage(total, [_listed(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)])


def _listed(entry: bytes, flat: list[bytes | int]) -> Fields:
    names = [name for name in flat[::2] if isinstance(name, bytes)]
    return Fields(entry.decode(), dict(zip(names, flat[1::2], strict=True)))


def letter_of(queue: str, entry: str, values: Mapping[bytes, bytes]) -> DeadLetter:
    """Return the dead letter in an entry's fields."""
    own = [part for name, value in values.items() if name not in _ADDED for part in (name, value)]
    raw = values.get(b"deadraw")
    found = None if raw is not None else decode_entry(own, queue=queue, home=READY, entry=entry.encode())
    message = found.message if isinstance(found, Delivery) else None
    bytes_of = raw if raw is not None else b"" if message else b"\n".join(own)
    return DeadLetter(
        entry=entry,
        id=message.id if message else text_of(values.get(b"id")) or entry,
        message=message,
        reason=text_of(values.get(b"deadreason")),
        error=text_of(values.get(b"deaderror")),
        traceback=text_of(values.get(b"deadtraceback")),
        attempts=whole(values.get(b"deadattempts")) or 0,
        first_ms=whole(values.get(b"deadfirst")),
        buried_ms=entry_ms(entry.encode()),
        raw=bytes_of,
        history=text_of(values.get(b"deadstory")),
        size=len(found.data_text) if isinstance(found, Delivery) else len(bytes_of),
    )


def text_of(value: bytes | int | None) -> str:
    """Return a field as text: what is not UTF-8 is spelled out, what was left out is empty."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else ""
