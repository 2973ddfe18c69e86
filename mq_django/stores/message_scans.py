"""Scan the ready or waiting messages of a queue, and delete or read those that match: steps of background jobs.

A scan goes on from a cursor. It returns each message that stays in its place, whatever is added or removed meanwhile.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig, RsmqConfig
from mq_django.core import rsmq_format
from mq_django.core.jsontext import dumps, score_ms, whole
from mq_django.core.keys import READY, RsmqKeys
from mq_django.core.message_format import (
    MAX_ENTRY_BYTES,
    decode_body,
    decode_entry,
    entry_ms,
    history_of,
    isolation,
    message_of,
)
from mq_django.core.messages import Delivery, Message
from mq_django.core.texts import line
from mq_django.errors import DecodeError
from mq_django.stores.dead_letters import (
    BATCH_OF_DATA,
    JobStep,
    delete_messages,
    fields_of,
    text_of,
)
from mq_django.stores.moving import Whole
from mq_django.stores.outbox_marks import note_ended
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport

#: The places of messages that are deleted or moved, and of all that jobs act on.
DeletableState = Literal["ready", "delayed", "unhandled", "parked"]
ActionableState = Literal["dead", DeletableState]

#: Longer bodies are read one by one, so that no script copies many of them.
MAX_BODY = 32 * 1024


class FoundMessage(NamedTuple):
    """The fields of a message that filters use."""

    member: bytes
    id: str
    name: str = ""
    key: str | None = None
    published_ms: int | None = None
    #: None unless it was asked for.
    data: Any = None


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

    def __init__(self, config: QueueConfig, transport: Transport, key: str, state: ActionableState = "ready") -> None:
        self._queue, self._keys, self._transport, self._key = config.name, config.keys, transport, key
        self._state = state

    def scan(self, cursor: str, count: int, *, with_data: bool) -> tuple[list[FoundMessage], str]:
        """Return about `count` messages, and the next cursor: empty at the end."""
        args: list[Argument] = ["SCAN", cursor if cursor.isdecimal() else "0", count, MAX_BODY]
        _now, after, *flat = self._transport.run("waiting_page", [self._key, self._keys.waiting], args)
        found = [self._found(member, body, with_data) for member, body in zip(flat[::3], flat[2::3], strict=True)]
        return found, "" if after == b"0" else after.decode()

    def named(self) -> Mapping[str, str]:
        """Return the keys that a deletion changes, by their names in the script."""
        keys = self._keys
        own = {"waiters": self._key, "waiting": keys.waiting, "unique": keys.unique}
        return own | {"claims": keys.claims, "notes": keys.step_notes}

    def whole(self, members: Sequence[bytes]) -> list[Whole]:
        """Return the messages among these that still exist; see MessageSource."""
        commands: list[Command] = [("ZSCORE", self._key, member) for member in members]
        replies = self._transport.ask_all([*commands, *self._body_commands(members)])
        each = zip(members, replies[: len(members)], self._bodies(replies[len(members) :]), strict=True)
        return [self._whole(member, score, *body) for member, score, body in each if score is not None]

    def _body_commands(self, members: Sequence[bytes]) -> list[Command]:
        return [("HGET", self._keys.waiting, member) for member in members]

    def _bodies(self, replies: Sequence[Any]) -> list[tuple[bytes, str]]:
        """Return the bodies in the replies to these commands, and the histories that are stored apart."""
        return [(body or b"", "") for body in replies]

    def _whole(self, member: bytes, score: bytes, body: bytes, history: str) -> Whole:
        due_ms = score_ms(score) if self._state == "delayed" else None
        try:
            return Whole(member, body, self._delivery(member, body, history), due_ms)
        except (DecodeError, UnicodeDecodeError):
            return Whole(member, body, None)

    def _delivery(self, member: bytes, body: bytes, history: str) -> Delivery:
        found = decode_body(body)
        message = message_of(found, queue=self._queue, entry=member)
        alone = isolation(found.get("alone"))
        return Delivery(message, READY, member, dumps(message.data), *alone, history or history_of(found), 0.0)

    def _found(self, member: bytes, body: bytes | int, with_data: bool) -> FoundMessage:
        message_id = member.decode(errors="backslashreplace")
        try:
            found = self._decoded(member, body if isinstance(body, bytes) else self._body(member))
        except (DecodeError, UnicodeDecodeError):
            return FoundMessage(member, message_id)
        return _found_message(member, found, found.published_ms, with_data)

    def _body(self, member: bytes) -> bytes:
        body: bytes | None = self._transport.ask(("HGET", self._keys.waiting, member))
        return body or b""

    def _decoded(self, member: bytes, body: bytes) -> Message:
        return message_of(decode_body(body), queue=self._queue, entry=member)


class RsmqMessages(SortedSet):
    """One place of a queue in RSMQ's format, which has all messages in one sorted set."""

    _keys: RsmqKeys

    def __init__(self, config: RsmqConfig, transport: Transport, state: ActionableState) -> None:
        super().__init__(config, transport, config.keys.zset, state)

    def named(self) -> Mapping[str, str]:
        return {name: getattr(self._keys, name) for name in ("zset", "hash", "notes", "unhandled", "retried")}

    def _decoded(self, member: bytes, body: bytes) -> Message:
        return self._delivery(member, body, "").message

    def _body_commands(self, members: Sequence[bytes]) -> list[Command]:
        keys = self._keys
        bodies: list[Command] = [("HGET", keys.hash, member) for member in members]
        return [*bodies, *(("HGET", keys.notes, member + b":story") for member in members)]

    def _bodies(self, replies: Sequence[Any]) -> list[tuple[bytes, str]]:
        half = len(replies) // 2
        return [(body or b"", text_of(history)) for body, history in zip(replies[:half], replies[half:], strict=True)]

    def _delivery(self, member: bytes, body: bytes, history: str) -> Delivery:
        found = rsmq_format.decode(
            body,
            queue=self._queue,
            message_id=line(member),
            first_ms=0,
            attempt=1,
            alone="",
            receipt=member,
            history=history,
        )
        if not isinstance(found, Delivery):
            raise DecodeError(found.reason)
        return found


class ReadyStream:
    """The undelivered messages of a stream."""

    def __init__(self, config: QueueConfig, transport: Transport, key: str) -> None:
        self._queue, self._keys, self._transport, self._key = config.name, config.keys, transport, key

    def scan(self, cursor: str, count: int, *, with_data: bool) -> tuple[list[FoundMessage], str]:
        """See SortedSet.scan()."""
        args: list[Argument] = [self._keys.group, cursor, count, MAX_ENTRY_BYTES if with_data else MAX_BODY]
        more, *flat = self._transport.run("entries_ready", [self._key], args)
        found = [self._found(entry, fields, with_data) for entry, fields in zip(flat[::2], flat[1::2], strict=True)]
        return found, found[-1].member.decode() if more or len(found) >= count else ""

    def named(self) -> Mapping[str, str]:
        """See SortedSet.named()."""
        return {"stream": self._key, "claims": self._keys.claims, "notes": self._keys.step_notes}

    def whole(self, members: Sequence[bytes]) -> list[Whole]:
        """See SortedSet.whole()."""
        found = self._transport.ask_all([("XRANGE", self._key, entry, entry) for entry in members])
        return [self._whole(*row) for rows in found for row in rows]

    def _whole(self, entry: bytes, flat: list[bytes]) -> Whole:
        found = decode_entry(flat, queue=self._queue, stream=READY, entry=entry)
        return Whole(entry, b"", found if isinstance(found, Delivery) else None)

    def _found(self, entry: bytes, flat: list[Any], with_data: bool) -> FoundMessage:
        is_cut = any(isinstance(value, int) for value in flat[1::2])
        found = None if is_cut else decode_entry(flat, queue=self._queue, stream=READY, entry=entry)
        if not isinstance(found, Delivery):
            fields = fields_of(flat)
            message_id = text_of(fields.get(b"id")) or entry.decode()
            return FoundMessage(entry, message_id, text_of(fields.get(b"type")), published_ms=entry_ms(entry))
        return _found_message(entry, found.message, found.message.published_ms or entry_ms(entry), with_data)


def _found_message(member: bytes, found: Message, published_ms: int | None, with_data: bool) -> FoundMessage:
    return FoundMessage(member, found.id, found.name, found.key, published_ms, found.data if with_data else None)


Source = SortedSet | ReadyStream


def scan_state(
    config: QueueConfig,
    transport: Transport,
    state: ActionableState,
    cursor: Cursor,
    count: int,
    *,
    with_data: bool = False,
) -> tuple[Source, list[FoundMessage], Cursor] | None:
    """Return a source of messages in a state, about `count` of them, and the next cursor; None at the end.

    With data they are at most about BATCH_OF_DATA.
    """
    sources = [*_sources(config, transport, state)]
    if cursor.source >= len(sources):
        return None
    source = sources[cursor.source]
    found, inner = source.scan(cursor.inner, min(count, BATCH_OF_DATA) if with_data else count, with_data=with_data)
    return source, found, Cursor(cursor.source, inner) if inner else Cursor(cursor.source + 1)


def _sources(config: QueueConfig, transport: Transport, state: ActionableState) -> Iterator[Source]:
    keys = config.keys
    if isinstance(config, RsmqConfig):
        yield RsmqMessages(config, transport, state)
    elif state == "ready":
        yield SortedSet(config, transport, keys.priority)
        yield ReadyStream(config, transport, keys.front)
        yield ReadyStream(config, transport, keys.ready)
    else:
        key = {"delayed": keys.due, "unhandled": keys.unhandled, "parked": keys.parked}[state]
        yield SortedSet(config, transport, key, state)


def sources_by_name(config: QueueConfig, transport: Transport, state: ActionableState) -> Mapping[str, Source]:
    """Return the sources of messages in a state, each by its name in references if they are ready, else by ""."""
    names = ("priority", "front", "ready") if state == "ready" else ("",)
    return dict(zip(names, _sources(config, transport, state), strict=False))


def delete_found(
    config: QueueConfig, transport: Transport, source: Source, found: Sequence[FoundMessage], step: JobStep
) -> list[str]:
    """Delete messages that a scan has found, and return the ids of those that were still there."""
    words = delete_messages(transport, config.keys, source.named(), step, [message.member for message in found])
    deleted = [message.id for message, word in zip(found, words, strict=False) if word == "DELETED"]
    note_ended(transport, config, deleted)
    return deleted
