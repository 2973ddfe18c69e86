"""Scan the ready or waiting messages of a queue and delete those that match: what a background job does in a step.

A scan goes on from a cursor. It returns each message that stays in its place, whatever is added or removed meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig, RsmqConfig
from mq_django.core import rsmq_format
from mq_django.core.keys import READY
from mq_django.core.messages import Delivery, Message
from mq_django.core.numbers import whole
from mq_django.core.rsmq_keys import RsmqKeys
from mq_django.core.visible import line
from mq_django.core.wire import decode_body, decode_entry, entry_ms, message_of
from mq_django.errors import DecodeError
from mq_django.stores.dead_letter_queue import JobStep
from mq_django.stores.entry_fields import fields_of, text_of
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

#: The places of messages that jobs scan.
MessagePlace = Literal["ready", "delayed", "unhandled", "parked"]

#: Longer bodies are read one by one, so that no script copies many of them.
MAX_BODY = 32 * 1024


class FoundMessage(NamedTuple):
    """The fields of a message that filters use."""

    member: bytes
    id: str
    name: str = ""
    key: str | None = None
    published_ms: int | None = None


class Cursor(NamedTuple):
    """Where a scan goes on: the number of a source, and the cursor in it."""

    source: int = 0
    inner: str = ""

    def __str__(self) -> str:
        return f"{self.source}.{self.inner}"

    @classmethod
    def of(cls, text: str) -> "Cursor":
        """Return the cursor that was written as text; the first one for anything else."""
        source, separator, inner = text.partition(".")
        number = whole(source, 99)
        return cls(number, inner) if separator and number is not None else cls()


class SortedSet:
    """A sorted set of waiting messages."""

    def __init__(self, config: QueueConfig, wire: Wire, key: str) -> None:
        self._queue, self._keys, self._wire, self._key = config.name, config.keys, wire, key

    def scan(self, cursor: str, count: int) -> tuple[list[FoundMessage], str]:
        """Return about `count` messages, and the next cursor: empty at the end."""
        args: list[Argument] = [cursor if cursor.isdecimal() else "0", count, MAX_BODY]
        command = scripts.command("waiting_scan", keys=[self._key, self._keys.waiting], args=args)
        after, *flat = reply_or_raise(self._wire.trip([command])[0])
        found = [self._found(member, body) for member, body in zip(flat[::3], flat[2::3], strict=True)]
        return found, "" if after == b"0" else after.decode()

    def delete(self, members: Sequence[bytes], step: JobStep) -> list[str]:
        """Delete messages; returns a word for each, or only `STOPPED`: see the script."""
        keys = self._keys
        index = [keys.waiting, keys.unique, keys.claims, keys.message_job, keys.step_notes]
        key_names = [self._key, *index, keys.permits, keys.next_checks]
        return _words(self._wire, "waiting_delete", key_names, [*step, *members])

    def _found(self, member: bytes, body: bytes | int) -> FoundMessage:
        message_id = member.decode(errors="backslashreplace")
        try:
            found = self._decoded(member, body if isinstance(body, bytes) else self._body(member))
        except (DecodeError, UnicodeDecodeError):
            return FoundMessage(member, message_id)
        return FoundMessage(member, found.id, found.name, found.key, found.published_ms)

    def _body(self, member: bytes) -> bytes:
        body: bytes | None = reply_or_raise(self._wire.trip([("HGET", self._keys.waiting, member)])[0])
        return body or b""

    def _decoded(self, member: bytes, body: bytes) -> Message:
        return message_of(decode_body(body), queue=self._queue, entry=member)


class RsmqPlace(SortedSet):
    """One place of a queue in RSMQ's format, which has all messages in one sorted set."""

    _keys: RsmqKeys

    def __init__(self, config: RsmqConfig, wire: Wire, place: MessagePlace) -> None:
        super().__init__(config, wire, config.keys.zset)
        self._place = place

    def delete(self, members: Sequence[bytes], step: JobStep) -> list[str]:
        """See SortedSet.delete()."""
        keys = self._keys
        key_names = [keys.zset, keys.hash, keys.notes, keys.unhandled, keys.retried, keys.message_job]
        return _words(self._wire, "rsmq_delete_found", key_names, [*step, self._place, *members])

    def _decoded(self, member: bytes, body: bytes) -> Message:
        found = rsmq_format.decode(
            *(body,), queue=self._queue, message_id=line(member), first_ms=0, attempt=1, alone="", receipt=member
        )
        if not isinstance(found, Delivery):
            raise DecodeError(found.reason)
        return found.message


class ReadyStream:
    """The undelivered messages of a stream."""

    def __init__(self, config: QueueConfig, wire: Wire, key: str) -> None:
        self._queue, self._keys, self._wire, self._key = config.name, config.keys, wire, key

    def scan(self, cursor: str, count: int) -> tuple[list[FoundMessage], str]:
        """See SortedSet.scan()."""
        args: list[Argument] = [self._keys.group, cursor, count, MAX_BODY]
        command = scripts.command("entries_ready", keys=[self._key], args=args)
        flat = reply_or_raise(self._wire.trip([command])[0])
        found = [self._found(entry, fields) for entry, fields in zip(flat[::2], flat[1::2], strict=True)]
        return found, found[-1].member.decode() if len(found) >= count else ""

    def delete(self, members: Sequence[bytes], step: JobStep) -> list[str]:
        """See SortedSet.delete()."""
        keys = self._keys
        args: list[Argument] = [*step, keys.group, *members]
        key_names = [self._key, keys.claims, keys.message_job, keys.step_notes, keys.permits, keys.next_checks]
        return _words(self._wire, "stream_delete", key_names, args)

    def _found(self, entry: bytes, flat: list[Any]) -> FoundMessage:
        is_cut = any(isinstance(value, int) for value in flat[1::2])
        found = None if is_cut else decode_entry(flat, queue=self._queue, stream=READY, entry=entry)
        if not isinstance(found, Delivery):
            fields = fields_of(flat)
            message_id = text_of(fields.get(b"id")) or entry.decode()
            return FoundMessage(entry, message_id, text_of(fields.get(b"type")), published_ms=entry_ms(entry))
        message = found.message
        return FoundMessage(entry, message.id, message.name, message.key, message.published_ms or entry_ms(entry))


Source = SortedSet | ReadyStream


class FoundMessages:
    """The messages of one place of a queue."""

    def __init__(self, config: QueueConfig, wire: Wire, place: MessagePlace) -> None:
        self._sources = [*_sources(config, wire, place)]

    def scan(self, cursor: Cursor, count: int) -> tuple[Source, list[FoundMessage], Cursor] | None:
        """Return a source, about `count` messages of it, and the next cursor; None at the end."""
        if cursor.source >= len(self._sources):
            return None
        source = self._sources[cursor.source]
        found, inner = source.scan(cursor.inner, count)
        if inner:
            return source, found, Cursor(cursor.source, inner)
        return source, found, Cursor(cursor.source + 1)


def _sources(config: QueueConfig, wire: Wire, place: MessagePlace) -> Iterator[Source]:
    keys = config.keys
    if isinstance(config, RsmqConfig):
        yield RsmqPlace(config, wire, place)
    elif place == "ready":
        yield SortedSet(config, wire, keys.priority)
        yield ReadyStream(config, wire, keys.urgent)
        yield ReadyStream(config, wire, keys.ready)
    else:
        yield SortedSet(config, wire, {"delayed": keys.due, "unhandled": keys.unhandled, "parked": keys.parked}[place])


def _words(wire: Wire, script: str, keys: list[str], args: list[Argument]) -> list[str]:
    reply = reply_or_raise(wire.trip([scripts.command(script, keys=keys, args=args)])[0])
    return [word.decode() for word in ([reply] if isinstance(reply, bytes) else reply)]
