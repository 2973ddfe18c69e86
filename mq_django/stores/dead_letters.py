"""The dead-letter queue: read, redrive, delete and resubmit."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig, RsmqConfig
from mq_django.core import clock, rsmq_format
from mq_django.core.filters import may_match
from mq_django.core.jsontext import dumps
from mq_django.core.keys import READY as READY_STREAM
from mq_django.core.keys import QueueKeys, RsmqKeys
from mq_django.core.message_format import decode_entry, encode_entry, entry_ms, moment, moment_ms
from mq_django.core.messages import Bury, Delivery, Retry, Undecodable
from mq_django.core.publication import Publication
from mq_django.core.retries import FAILED, MAX_DATA, MAX_TRACEBACK, READY, Attempt, with_attempt
from mq_django.errors import DecodeError, MessageTooLarge
from mq_django.stores.base import Settlement
from mq_django.stores.outbox_marks import note_rows
from mq_django.stores.partition_transport import transport_of
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport

# The fields of a stream's entry as scripts return them, with long values replaced by their length.

#: A value that is too long for a page is replaced by its length.
Fields = Mapping[bytes, bytes | int]


def fields_of(flat: Sequence[bytes | int]) -> Fields:
    """Return the fields of a flat list of names and values."""
    names = [name for name in flat[::2] if isinstance(name, bytes)]
    return dict(zip(names, flat[1::2], strict=True))


def text_of(value: bytes | int | None) -> str:
    """Return a value as text: bytes that are not UTF-8 are escaped, a length is empty text."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else ""


# What is written when a delivery has failed: its attempt history, and the fields of its dead letter.

#: Bytes stored of an entry that could not be decoded.
MAX_RAW = 64 * 1024

#: The fields of a dead letter that are not the message's own.
DEAD_FIELDS = frozenset(
    (
        *("deadreason", "deaderror", "deadtraceback", "deadattempts", "deadfirst"),
        *("deadraw", "deadbody", "deadstory", "deaddue"),
    )
)
#: The reason of a dead letter that is on its way to another queue: see `mq_django.stores.moving`.
MOVED = "moved"


def history_of(consumer: str, settlement: Settlement) -> str:
    """Return the history of a failed message with this attempt; empty if it is invalid or its data is too long."""
    delivery, outcome, _, micros, *_ = settlement
    assert isinstance(outcome, Retry | Bury)
    if isinstance(delivery, Undecodable) or len(delivery.data_text) > MAX_DATA:
        return ""
    # The traceback of a dead letter has a field of its own. A redrive moves it into the history.
    status, traceback = (READY, outcome.traceback) if isinstance(outcome, Retry) else (FAILED, None)
    now_ms = clock.now_ms()
    started_ms = None if micros is None else now_ms - micros // 1000
    attempt = Attempt(status, delivery.message.attempt, consumer, started_ms, now_ms, outcome.error, traceback)
    return with_attempt(delivery.history, attempt)


def message_fields(delivery: Delivery | Undecodable) -> list[str | bytes]:
    """Return the fields of a dead letter that are the message's own, its id first."""
    if isinstance(delivery, Undecodable):
        return ["id", "", "deadraw", b"\n".join(delivery.fields)[:MAX_RAW]]
    headers = delivery.message.headers
    if not DEAD_FIELDS.isdisjoint(headers):
        # A header of the message must not be read as one of our fields.
        others = {name: value for name, value in headers.items() if name not in DEAD_FIELDS}
        delivery = delivery._replace(message=delivery.message._replace(headers=others))
    fields = encode_entry(delivery.message, delivery.data_text)
    if delivery.message.published_ms is not None:
        fields += ("time", moment(delivery.message.published_ms))
    return fields


def failure_fields(delivery: Delivery | Undecodable, outcome: Bury) -> list[str | bytes]:
    """Return the fields of a dead letter that tell why it was buried."""
    message = delivery.message if isinstance(delivery, Delivery) else None
    first = message.published_ms if message else None
    return [
        *("deadreason", outcome.reason),
        *("deaderror", outcome.error[:MAX_TRACEBACK].encode(errors="replace")),
        *("deadtraceback", outcome.traceback[-MAX_TRACEBACK:].encode(errors="replace")),
        *("deadattempts", str(message.attempt if message else 1)),
        *("deadfirst", str(first or "")),
    ]


def moved_fields(delivery: Delivery, target: str, due: str) -> list[str | bytes]:
    """Return the fields of the dead letter of a message that is being moved; `due` is its due time, if it has one."""
    message = delivery.message
    return [
        *message_fields(delivery),
        *("deadreason", MOVED),
        *("deaderror", f"On its way to queue {target!r}"),
        *("deadattempts", str(message.attempt - 1)),
        *("deadfirst", str(message.published_ms or "")),
        *(("deadstory", delivery.history) if delivery.history else ()),
        *(("deaddue", due) if due else ()),
    ]


def buried_history(fields: Mapping[bytes, bytes]) -> str:
    """Return the attempt history of a dead letter with the traceback of the last attempt, as a redrive writes it."""
    history = text_of(fields.get(b"deadstory"))
    if not history.endswith("}") or b"deadtraceback" not in fields:
        return history
    traceback = dumps(text_of(fields.get(b"deadtraceback"))).decode()
    return f'{history[:-1]},"traceback":{traceback}}}'


#: Dead letters that a script call moves: few enough to block Redis only shortly.
BATCH = 500

#: As many if their data are read and have few bytes, and the first ones of a search. So a reply has some megabytes even
#: if all entries have one; where long ones follow short ones, it may have 50.
BATCH_OF_DATA, SMALL, FIRST = 50, 64 * 1024, 5


def next_count(count: int, texts: Sequence[bytes]) -> int:
    """Return how many entries a search reads at a time after some with these texts."""
    return min(2 * count, BATCH_OF_DATA) if sum(map(len, texts)) < SMALL else FIRST


#: Bytes of a field that filters use: an error has up to 4 KiB.
MAX_TRAIT = 4 * 1024

_ENTRY = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)
_ADDED = frozenset(name.encode() for name in DEAD_FIELDS)

#: The fields to read: all, all but traceback and history, or those that filters use.
Which = Literal["WHOLE", "LISTED", "TRAITS"]


class Letter(NamedTuple):
    """The fields of a dead letter that filters use."""

    entry: str
    id: str
    name: str
    key: str | None
    error: str
    published_ms: int | None
    #: None unless it was asked for.
    data: Any = None


class JobStep(NamedTuple):
    """A step of a job, counted by the script that moves the messages: see `mq_django.stores.background_jobs`."""

    worker: str
    #: The last entry that was checked.
    after: str
    looked: int
    lease_ms: int
    #: Where the messages are, as in `ActionableState` there.
    state: str = "dead"


NO_STEP = JobStep("", "", 0, 0)


def is_entry(text: str) -> bool:
    """Return whether `text` can be an entry id. Redis rejects a whole batch with an invalid one."""
    found = _ENTRY.fullmatch(text)
    return found is not None and all(int(part) < 2**64 for part in found.groups())


class DeadLetters:
    """The dead-letter queue of one queue."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._config = config
        self._keys = config.keys
        self._transport = transport_of(config, transport)
        self._at_once = FIRST

    def read(
        self,
        *,
        limit: int,
        first: str = "-",
        last: str = "+",
        newest_first: bool = False,
        max_bytes: int = MAX_TRAIT,
        which: Which = "TRAITS",
    ) -> tuple[int, list[tuple[str, Fields]]]:
        """Return the number of dead letters, and up to `limit` of those from `first` to `last`, as in XRANGE."""
        found: list[tuple[str, Fields]] = []
        order, begins, ends = ("NEWEST", last, first) if newest_first else ("OLDEST", first, last)
        while True:
            args: list[Argument] = [order, begins, ends, limit - len(found), max_bytes, which]
            total, more, *flat = self._transport.run("dead_list", [self._keys.dead], args)
            found += [(entry.decode(), fields_of(each)) for entry, each in zip(flat[::2], flat[1::2], strict=True)]
            if not more:
                return total, found
            begins = f"({found[-1][0]}"

    def traits(
        self, *, limit: int, first: str = "-", last: str = "+", newest_first: bool = False, data: str = ""
    ) -> list[Letter]:
        """Return the fields that filters use; for a filter of data of fewer letters. See read()."""
        if not data:
            _, found = self.read(limit=limit, first=first, last=last, newest_first=newest_first)
            return [_letter(*row) for row in found]
        # A script would be much more work for Redis.
        name, *bounds = ("XREVRANGE", last, first) if newest_first else ("XRANGE", first, last)
        command: Command = (name, self._keys.dead, *bounds, "COUNT", min(limit, self._at_once))
        rows = self._transport.ask(command)
        texts = [text for _, flat in rows for text in flat]
        self._at_once = next_count(self._at_once, texts)
        if not may_match(texts, data):
            # Without data, none matches.
            return [Letter(entry.decode(), "", "", None, "", None) for entry, _ in rows]
        found = [(entry.decode(), fields_of(flat)) for entry, flat in rows]
        return [_letter(*row)._replace(data=self._data(*row, data)) for row in found]

    def _data(self, entry: str, fields: Fields, data: str) -> Any:
        """Return the data of a dead letter, None if it is not a valid message or cannot match."""
        if not may_match((value for value in fields.values() if isinstance(value, bytes)), data):
            return None
        complete = {field: value for field, value in fields.items() if isinstance(value, bytes)}
        found = buried(self._config.name, entry, complete) if len(complete) == len(fields) else None
        return found.message.data if isinstance(found, Delivery) else None

    def find(self, message_ids: Sequence[str | bytes]) -> list[str | None]:
        """Return for each message id the entry of its dead letter, or None."""
        reply = self._transport.ask(("HMGET", self._keys.dead_ids, *message_ids))
        return [None if entry is None else entry.decode(errors="replace") for entry in reply]

    def whole(self, entries: Sequence[str]) -> list[tuple[str, dict[bytes, bytes]]]:
        """Return the dead letters among these that still exist, with all fields."""
        commands: list[Command] = [("XRANGE", self._keys.dead, entry, entry) for entry in entries if is_entry(entry)]
        return [
            (found.decode(), dict(zip(flat[::2], flat[1::2], strict=True)))
            for rows in self._transport.ask_all(commands)
            for found, flat in rows
        ]

    def redrive(self, entries: Sequence[str], *, step: JobStep = NO_STEP) -> list[str]:
        """Put up to 500 dead letters back into their queue, each at its first attempt.

        Returns for each entry `REDRIVEN`, `MISSING`, or `UNDECODABLE` if it is not a valid message; only `STOPPED` if
        `step` belongs to a job that this worker no longer runs.
        """
        return self._redrive(step, "", b"", entries)

    def _redrive(self, step: JobStep, message_id: str, text: bytes, entries: Sequence[str]) -> list[str]:
        """Redrive dead letters; with a `message_id` one of them as a new message."""
        keys = self._keys
        key_names = [keys.jobs, keys.ready, keys.cancels, keys.step_notes, keys.permits, keys.front]
        return self._move("dead_redrive", key_names, [*step, keys.group, message_id, text, *entries])

    def delete(self, entries: Sequence[str], *, step: JobStep = NO_STEP) -> list[str]:
        """Delete up to 500 dead letters. Returns `DELETED` or `MISSING` for each, or `STOPPED` as `redrive`."""
        keys = self._keys
        # A database that keeps rows until their messages have ended needs ids, not entries.
        known = self._ids(entries) if self._config.keeps_rows else {}
        named = {"dead": keys.dead, "dead-ids": keys.dead_ids, "dead-groups": keys.dead_groups}
        words = delete_messages(self._transport, keys, named, step, entries)
        deleted = [entry for entry, word in zip(entries, words, strict=False) if word == "DELETED"]
        note_rows(self._transport, self._config, [known[entry] for entry in deleted if entry in known])
        return words

    def each(
        self, entries: Sequence[str], *, max_bytes: int = MAX_TRAIT, which: Which = "TRAITS"
    ) -> list[tuple[str, Fields]]:
        """Return the dead letters among these that still exist; see read()."""
        args: list[Argument] = ["EACH", "", "", 0, max_bytes, which, *filter(is_entry, entries)]
        _total, _more, *flat = self._transport.run("dead_list", [self._keys.dead], args) if entries else (0, 0)
        return [(entry.decode(), fields_of(each)) for entry, each in zip(flat[::2], flat[1::2], strict=True)]

    def _ids(self, entries: Sequence[str]) -> dict[str, bytes]:
        """Return the ids of the messages in dead letters that still exist, by their entries."""
        values = {entry: fields.get(b"id") for entry, fields in self.each(entries)}
        return {entry: value for entry, value in values.items() if isinstance(value, bytes)}

    def resubmit(self, entry: str, *, message_id: str, text: bytes) -> str:
        """Put a dead letter back into its queue with other data, as a new message.

        `text` is the JSON of the data, or the whole body of a queue in RSMQ's format. Returns `REDRIVEN`, `MISSING`, or
        `UNDECODABLE` if the entry is not a valid message.
        """
        known = self._ids([entry]) if self._config.keeps_rows else {}
        (word,) = self._redrive(NO_STEP, message_id, text, [entry])
        if word == "REDRIVEN":
            note_rows(self._transport, self._config, list(known.values()))
        return word

    def written(self, made: Publication) -> bytes:
        """Return the `text` for resubmit().

        Raises:
            MessageTooLarge: it exceeds the maxsize of the queue.
        """
        return made.data_text

    def _move(self, script: str, key_names: list[str], args: Sequence[Argument]) -> list[str]:
        keys = self._keys
        command = scripts.command(
            script, keys=[keys.dead, keys.dead_ids, keys.dead_groups, *key_names], args=list(args)
        )
        return _words(self._transport, command)


class RsmqDeadLetters(DeadLetters):
    """The dead letters of a queue in RSMQ's format: they are redriven into RSMQ's own keys."""

    _config: RsmqConfig
    _keys: RsmqKeys

    def _redrive(self, step: JobStep, message_id: str, text: bytes, entries: Sequence[str]) -> list[str]:
        keys = self._keys
        key_names = [keys.jobs, keys.zset, keys.hash, keys.notes]
        return self._move("rsmq_redrive", key_names, [*step, keys.wake, message_id, text, *entries])

    def written(self, made: Publication) -> bytes:
        """See DeadLetters.written(): it is the whole body that other programs read."""
        body = rsmq_format.encode(made.message, made.data_text)
        if 0 <= self._config.maxsize < rsmq_format.units(body.decode()):
            raise MessageTooLarge(f"The message is longer than the maxsize of queue {self._config.name!r}")
        return body


def open_dead_letters(config: QueueConfig, transport: Transport) -> DeadLetters:
    """Return the dead letters of a queue."""
    return RsmqDeadLetters(config, transport) if isinstance(config, RsmqConfig) else DeadLetters(config, transport)


def delete_messages(
    transport: Transport, keys: QueueKeys, named: Mapping[str, str], step: JobStep, members: Sequence[str | bytes]
) -> list[str]:
    """Delete messages of the place with these keys; return a word for each, or only `STOPPED`: see the script."""
    named = {"jobs": keys.jobs, "permits": keys.permits, "checks": keys.next_checks, **named}
    args: list[Argument] = [*step, " ".join(named), keys.group, *members]
    return _words(transport, scripts.command("messages_delete", keys=list(named.values()), args=args))


def _words(transport: Transport, command: Command) -> list[str]:
    reply = transport.ask(command)
    return [word.decode() for word in ([reply] if isinstance(reply, bytes) else reply)]


def next_to(entry: str, otherwise: str) -> str:
    """Return the exclusive bound of a range at an entry; `otherwise` if `entry` is empty."""
    # Redis refuses an exclusive end at 0-0, which no entry has.
    return (f"({entry}" if entry.strip("0-") else entry) or otherwise


def buried(queue: str, entry: str, fields: Mapping[bytes, bytes]) -> Delivery | bytes:
    """Return the message as it was last delivered, or the bytes of an entry that is not a valid message."""
    if b"deadraw" in fields:
        return fields[b"deadraw"]
    own = [part for name, value in fields.items() if name not in _ADDED for part in (name, value)]
    found = decode_entry(own, queue=queue, stream=READY_STREAM, entry=entry.encode())
    return found if isinstance(found, Delivery) else b"\n".join(own)


def _letter(entry: str, values: Fields) -> Letter:
    key = values.get(b"partitionkey")
    return Letter(
        entry=entry,
        id=text_of(values.get(b"id")) or entry,
        name=text_of(values.get(b"type")),
        key=None if key is None else text_of(key),
        error=text_of(values.get(b"deaderror")),
        published_ms=_published(values.get(b"time"), entry),
    )


def _published(value: bytes | int | None, entry: str) -> int | None:
    try:
        return moment_ms(text_of(value) or None) or entry_ms(entry.encode())
    except DecodeError:
        return None
