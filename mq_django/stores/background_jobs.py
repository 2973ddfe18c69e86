"""Background jobs that redrive, move or delete many messages: per queue one on dead letters and one on other messages.

A job is a hash in Redis. One worker at a time runs it. It has a lease of some seconds. Every step renews the lease and
updates the job's counts in the script that moves the messages, so another worker can continue when one dies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from mq_django.conf import QueueConfig, RsmqConfig, get_config
from mq_django.core import rsmq_format
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.jsontext import dumps, loads
from mq_django.core.keys import READY, RsmqKeys
from mq_django.core.messages import Delivery, Message
from mq_django.core.numbers import score, whole
from mq_django.core.texts import line
from mq_django.core.wire import decode_body, decode_entry, entry_ms, message_of
from mq_django.errors import DecodeError, InvalidFilter, UnknownQueue
from mq_django.stores.dead_letters import BATCH, JobStep, fields_of, is_entry, next_to, open_dead_letters, text_of
from mq_django.stores.moving import Mover
from mq_django.stores.outbox_marks import note_ended
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

# Scan the ready or waiting messages of a queue and delete those that match: what a background job does in a step.
#
# A scan goes on from a cursor. It returns each message that stays in its place, whatever is added or removed
# meanwhile.

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


# Background jobs that redrive, move or delete many messages: per queue one on dead letters and one on other messages.

#: Milliseconds of a lease: longer than a worker sleeps between steps, and short enough to wait for after its death.
LEASE_MS = 10_000
#: Dead letters that a step moves. This blocks Redis for about 3 ms with tracebacks of 4 KiB.
MAX_MOVED = 100
#: Steps a second of a job with a rate.
STEPS = 5
#: Seconds until a worker looks for a job again when there is none for it.
IDLE = 60.0
#: Seconds until a job looks again whether the queue that it moves to has room.
FULL = 1.0

#: What is done to dead letters; all other messages are deleted.
What = Literal["redrive", "move", "delete"]
State = Literal["running", "finished", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundJob:
    """The running job of a queue, or its last one."""

    what: What
    state: State
    #: The user who started it.
    who: str
    criteria: Filter
    #: The newest dead letter to process, and the last one processed. For other messages, the time in ms before which
    #: they were published, as an entry id; and the cursor.
    until: str
    after: str
    #: Of a job on ready or waiting messages; empty for dead letters.
    place: MessagePlace | Literal[""] = ""
    #: The queue to which it moves dead letters; empty for a job that does not.
    target: str = ""
    #: Messages per second; 0: no limit.
    rate: int
    #: Dead letters to check, and checked. Those that were gone when it finished count as checked.
    total: int
    looked: int
    done: int
    #: No longer existed; could not be redriven or moved: they are not valid messages, or the target refuses them.
    missing: int
    refused: int
    since_ms: int
    changed_ms: int
    #: Empty until a worker has claimed it.
    worker: str
    #: The same for the jobs of partitions that were begun together.
    token: str


class BackgroundJobs:
    """The job on the dead letters of one queue."""

    #: Whether its job is on messages of a place.
    _has_places = False

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._config = config
        self._wake = config.keys.wake
        self._key = config.keys.dead_job
        self._letters = open_dead_letters(config, wire)
        self._wire = wire

    def begin(
        self,
        what: What,
        *,
        who: str,
        criteria: Filter = NOTHING,
        until: str,
        total: int,
        rate: int = 0,
        place: MessagePlace | Literal[""] = "",
        target: str = "",
        token: str = "",
    ) -> bool:
        """Start a job for the messages up to the entry `until` that match; False: another job is running.

        Raises:
            InvalidFilter: the rate is below zero.
        """
        if rate < 0:
            raise InvalidFilter(f"A rate is a number of messages per second, or 0 for no limit, not {rate}")
        fields: dict[str, Argument] = {
            "what": what,
            "who": who,
            "wanted": dumps(criteria.as_dict()),
            "until": until,
            "total": total,
            "rate": rate,
            **({"place": place} if place else {}),
            **({"target": target} if target else {}),
            **({"token": token} if token else {}),
        }
        args: list[Argument] = [self._wake, *(part for field in fields.items() for part in field)]
        return self._run("jobs_begin", args) == b"BEGUN"

    def look(self) -> BackgroundJob | None:
        """Return the running job, or the last one of the past week, or None."""
        (reply,) = self._wire.trip([("HGETALL", self._key)])
        return job_of(reply_or_raise(reply))

    def cancel(self) -> bool:
        """Cancel the running job after its current step; its effects stay. False: no job is running."""
        return self._run("jobs_end", ["cancelled", ""]) == b"ENDED"

    def work(self, worker: str) -> float:
        """Run one step of the job if no other worker has it; return the seconds until the next step, IDLE for none."""
        found = self._run("jobs_claim", [worker, LEASE_MS])
        if found[0] == b"NONE":
            return IDLE
        if found[0] == b"HELD":
            return min(IDLE, (score(found[1]) or 0.0) / 1000 + 0.1)
        job = job_of(found)
        if job is None or bool(job.place) != self._has_places:
            # It cannot be read: another program or version wrote it.
            self._run("jobs_end", ["cancelled", worker])
            return IDLE
        return self._step(job, worker)

    def _step(self, job: BackgroundJob, worker: str) -> float:
        limit = max(1, min(MAX_MOVED, job.rate // STEPS)) if job.rate else MAX_MOVED
        first = next_to(job.after if is_entry(job.after) else "", "-")
        found = self._letters.traits(limit=BATCH if job.criteria else limit, first=first, last=job.until)
        if not found:
            return self._end(worker)
        chosen: list[str] = []
        for looked, letter in enumerate(found, 1):
            if job.criteria.matches(letter, letter.error):
                chosen.append(letter.entry)
            if len(chosen) == limit or looked == len(found):
                if job.what == "move":
                    return self._move(job, worker, chosen, [each.entry for each in found[:looked]])
                act = self._letters.redrive if job.what == "redrive" else self._letters.delete
                act(chosen, step=JobStep(worker, letter.entry, looked, LEASE_MS))
                break
        return len(chosen) / job.rate if job.rate else 0.0

    def _move(self, job: BackgroundJob, worker: str, chosen: list[str], looked: list[str]) -> float:
        """Move the chosen ones of the dead letters that were looked at, as far as they fit into the target."""
        try:
            target = get_config().queue(job.target)
        except UnknownQueue:
            # This project has other settings than the one that started the job.
            self._run("jobs_end", ["cancelled", worker])
            return IDLE
        mover = Mover(self._config, self._wire, target)
        words, is_full = mover.write(chosen)
        if len(words) < len(chosen):
            if not words:
                return FULL
            looked = looked[: looked.index(chosen[len(words) - 1]) + 1]
        mover.remove(chosen, words, step=JobStep(worker, looked[-1], len(looked), LEASE_MS))
        if is_full:
            return FULL
        return len(words) / job.rate if job.rate else 0.0

    def _end(self, worker: str) -> float:
        self._run("jobs_end", ["finished", worker])
        return IDLE

    def _run(self, script: str, args: list[Argument]) -> list[bytes] | bytes:
        command = scripts.command(script, keys=[self._key], args=args)
        reply: list[bytes] | bytes = reply_or_raise(self._wire.trip([command])[0])
        return reply


class MessageJobs(BackgroundJobs):
    """The job that deletes ready or waiting messages of one queue."""

    _has_places = True

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        super().__init__(config, wire)
        self._key = config.keys.message_job

    def _step(self, job: BackgroundJob, worker: str) -> float:
        if not job.place:
            return self._end(worker)
        limit = max(1, min(BATCH, job.rate // STEPS)) if job.rate else BATCH
        read = FoundMessages(self._config, self._wire, job.place).scan(Cursor.of(job.after), limit)
        if read is None:
            return self._end(worker)
        source, found, after = read
        until_ms = entry_ms(job.until.encode())
        chosen = [
            message
            for message in found
            if (message.published_ms is None or message.published_ms < until_ms) and job.criteria.matches(message)
        ]
        step = JobStep(worker, str(after), len(found), LEASE_MS)
        words = source.delete([message.member for message in chosen], step)
        deleted = [message.id for message, word in zip(chosen, words, strict=False) if word == "DELETED"]
        note_ended(self._wire, self._config, deleted)
        return len(chosen) / job.rate if job.rate else 0.0


def job_of(flat: object) -> BackgroundJob | None:
    """Return the job with these fields and values in Redis; None for none, or if it is not valid."""
    if not isinstance(flat, list) or not flat:
        return None
    found: Mapping[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
    names = (b"what", b"state", b"until", b"place", b"target")
    what, state, until, place, target = (text_of(found.get(name)) for name in names)
    if (
        what not in get_args(What)
        or place not in ("", *get_args(MessagePlace))
        or state not in get_args(State)
        or not is_entry(until)
        or (what == "move") != bool(target)
    ):
        return None
    try:
        criteria = Filter.of(loads(found.get(b"wanted", b"")))
    except (DecodeError, InvalidFilter):
        return None
    rate = whole(found.get(b"rate"))
    if rate is None:
        return None
    numbers = ("total", "looked", "done", "missing", "refused")
    known: dict[str, Any] = {name: whole(found.get(name.encode())) or 0 for name in numbers}
    known |= {name: text_of(found.get(name.encode())) for name in ("who", "after", "worker", "token")}
    # Messages that came after they were counted are looked at, too.
    known["total"] = max(known["total"], known["looked"])
    return BackgroundJob(
        **known,
        what=what,  # type: ignore[arg-type]  # checked by get_args()
        state=state,  # type: ignore[arg-type]
        until=until,
        place=place,  # type: ignore[arg-type]
        target=target,
        criteria=criteria,
        rate=rate,
        since_ms=whole(found.get(b"since")) or 0,
        changed_ms=whole(found.get(b"changed")) or 0,
    )
