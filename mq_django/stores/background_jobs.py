"""Background jobs that redrive, move or delete many messages: per queue one on dead letters and one on other messages.

A job is a hash in Redis. One worker at a time runs it. It has a lease of some seconds. Every step renews the lease and
updates the job's counts in the script that moves the messages, so another worker can continue when one dies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mq_django.conf import QueueConfig, get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.jsontext import dumps, loads
from mq_django.core.numbers import score, whole
from mq_django.core.wire import entry_ms
from mq_django.errors import DecodeError, InvalidFilter, UnknownQueue
from mq_django.stores.dead_letter_queue import BATCH, JobStep, is_entry, next_to, open_dead_letters
from mq_django.stores.ended_messages import note_ended
from mq_django.stores.entry_fields import text_of
from mq_django.stores.found_messages import Cursor, FoundMessages, MessagePlace
from mq_django.stores.moving import Mover
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

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
