"""The dead-letter queue: look, put back, delete."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.jsontext import loads
from mq_django.core.keys import READY, RsmqKeys
from mq_django.core.messages import DeadLetter, Delivery
from mq_django.core.rsmq import encode
from mq_django.core.wire import decode_entry, entry_ms
from mq_django.stores.settling import DEAD_FIELDS
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: Dead letters a script call moves: short enough for Redis to serve others in between.
BATCH = 500

#: Bytes of a field that a page of dead letters still carries.
MAX_LISTED = 16 * 1024

_ENTRY = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)
_ADDED = frozenset(name.encode() for name in DEAD_FIELDS)


class Fields(NamedTuple):
    """An entry of the dead-letter queue as a page carries it."""

    entry: str
    #: A value that is too long for a page is its length instead.
    values: Mapping[bytes, bytes | int]


class Page(NamedTuple):
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

    def newest(self, *, limit: int, before: str = "", max_bytes: int = MAX_LISTED) -> Page:
        """Return up to `limit` dead letters, newest first, from those older than the entry `before`."""
        return self._list("NEWEST", f"({before}" if before else "+", "-", limit, max_bytes)

    def oldest(self, *, limit: int, after: str = "", until: str = "", max_bytes: int = MAX_LISTED) -> Page:
        """Return up to `limit` dead letters, oldest first: those after the entry `after`, to `until`."""
        return self._list("OLDEST", f"({after}" if after else "-", until or "+", limit, max_bytes)

    def _list(self, order: str, first: str, last: str, limit: int, max_bytes: int) -> Page:
        return _page(self._wire.trip([self._list_command(order, first, last, limit, max_bytes)])[0])

    def _list_command(self, order: str, first: str, last: str, limit: int, max_bytes: int) -> Command:
        args: list[Argument] = [order, first, last, limit, max_bytes]
        return scripts.command("dead_list", keys=[self._keys.dead], args=args)

    def some(self, entries: Sequence[str]) -> list[Fields]:
        """Return dead letters with their short fields only, those that are still there."""
        commands = [self._list_command("OLDEST", entry, entry, 1, 256) for entry in entries]
        return [letter for reply in self._wire.trip(commands) for letter in _page(reply).letters]

    def all(self, *, batch: int = BATCH) -> Iterator[Sequence[Fields]]:
        """Yield all dead letters in batches, oldest first, with their short fields only."""
        after = ""
        while found := self.oldest(limit=batch, after=after, max_bytes=256).letters:
            yield found
            after = found[-1].entry

    def entries(self, *, after: str, until: str, batch: int = BATCH) -> Iterator[list[str]]:
        """Yield the entries of the dead letters after one and up to another, in batches, oldest first."""
        while found := self.oldest(limit=batch, after=after, until=until, max_bytes=0).letters:
            yield [letter.entry for letter in found]
            after = found[-1].entry

    def find(self, message_id: bytes) -> str | None:
        """Return the entry under which a message is buried, or None."""
        (reply,) = self._wire.trip([("HGET", self._keys.dead_ids, message_id)])
        found = reply_or_raise(reply)
        return None if found is None else found.decode(errors="replace")

    def get(self, entry: str) -> DeadLetter | None:
        """Return a dead letter whole, or None when it is no longer there."""
        if not is_entry(entry):
            return None
        (reply,) = self._wire.trip([("XRANGE", self._keys.dead, entry, entry)])
        found = reply_or_raise(reply)
        if not found:
            return None
        flat = found[0][1]
        return letter_of(self._queue, entry, dict(zip(flat[::2], flat[1::2], strict=True)))

    def redrive(self, entries: Sequence[str]) -> list[str]:
        """Put up to 500 dead letters back into their queue, each at its first attempt.

        Returns for each entry `REDRIVEN`, `MISSING`, or `UNDECODABLE` for what is no message.
        """
        keys = self._keys
        if isinstance(keys, RsmqKeys):
            return self._move("rsmq_redrive", [keys.dead, keys.dead_ids, keys.zset, keys.hash], [keys.wake, *entries])
        return self._move("dead_redrive", [keys.dead, keys.dead_ids, keys.ready], entries)

    def delete(self, entries: Sequence[str]) -> list[str]:
        """Delete up to 500 dead letters for good, and return for each entry `DELETED` or `MISSING`."""
        return self._move("dead_delete", [self._keys.dead, self._keys.dead_ids], entries)

    def resubmit(self, entry: str, *, message_id: str, data_text: bytes) -> str:
        """Put a dead letter back into its queue with other data, as a new message.

        Returns `RESUBMITTED`, `MISSING`, or `UNDECODABLE` for what is no message.
        """
        keys = self._keys
        if isinstance(keys, RsmqKeys):
            return self._resubmit_to_rsmq(keys, entry, message_id, data_text)
        return self._move("dead_resubmit", [keys.dead, keys.dead_ids, keys.ready], [entry, message_id, data_text])[0]

    def _resubmit_to_rsmq(self, keys: RsmqKeys, entry: str, message_id: str, data_text: bytes) -> str:
        letter = self.get(entry)
        if letter is None or letter.message is None:
            return "MISSING" if letter is None else "UNDECODABLE"
        body = encode(letter.message._replace(id=message_id, data=loads(data_text)), data_text)
        rooms = [keys.dead, keys.dead_ids, keys.zset, keys.hash]
        return self._move("rsmq_resubmit", rooms, [entry, message_id, body, keys.wake])[0]

    def _move(self, script: str, keys: list[str], entries: Sequence[Argument]) -> list[str]:
        command = scripts.command(script, keys=keys, args=list(entries))
        reply = reply_or_raise(self._wire.trip([command])[0])
        return [word.decode() for word in ([reply] if isinstance(reply, bytes) else reply)]


def _page(reply: Any) -> Page:
    total, *flat = reply_or_raise(reply)
    return Page(total, [_listed(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)])


def _listed(entry: bytes, flat: list[bytes | int]) -> Fields:
    names = [name for name in flat[::2] if isinstance(name, bytes)]
    return Fields(entry.decode(), dict(zip(names, flat[1::2], strict=True)))


def letter_of(queue: str, entry: str, values: Mapping[bytes, bytes]) -> DeadLetter:
    """Return the dead letter in an entry's fields."""
    own = [part for name, value in values.items() if name not in _ADDED for part in (name, value)]
    raw = values.get(b"deadraw")
    found = None if raw is not None else decode_entry(own, queue=queue, home=READY, entry=entry.encode())
    message = found.message if isinstance(found, Delivery) else None
    return DeadLetter(
        entry=entry,
        id=message.id if message else text_of(values.get(b"id")) or entry,
        message=message,
        reason=text_of(values.get(b"deadreason")),
        error=text_of(values.get(b"deaderror")),
        traceback=text_of(values.get(b"deadtraceback")),
        attempts=number_of(values.get(b"deadattempts")) or 0,
        first_ms=number_of(values.get(b"deadfirst")),
        buried_ms=entry_ms(entry.encode()),
        raw=raw if raw is not None else b"" if message else b"\n".join(own),
    )


def text_of(value: bytes | int | None) -> str:
    """Return a field as text: what is not UTF-8 is spelled out, what was left out is empty."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else ""


def number_of(value: bytes | int | None) -> int | None:
    """Return a field as a number, or None when it is none."""
    return int(value) if isinstance(value, bytes) and value.isdigit() and len(value) < 20 else None
