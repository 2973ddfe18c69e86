"""Background jobs that redrive, move or delete many messages: per queue one for each place of its messages.

The jobs of a queue are in one hash in Redis. One worker at a time runs a job. It has a lease of some seconds. Every
step renews the lease and updates the job's counts in the script that moves the messages, so another worker can continue
when one dies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mq_django.conf import QueueConfig, get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.jsontext import dumps, loads, score, whole
from mq_django.core.message_format import (
    entry_ms,
)
from mq_django.errors import DecodeError, InvalidFilter, UnknownQueue
from mq_django.stores import dead_letters
from mq_django.stores.activity import Actor, attempt, record
from mq_django.stores.message_scans import (
    ActionableState,
    Cursor,
    FoundMessage,
    delete_found,
    scan_state,
)
from mq_django.stores.moving import Mover
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, reply_or_raise

# The jobs of a queue, and their steps.

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

What = Literal["redrive", "move", "delete"]
State = Literal["running", "finished", "cancelled"]

#: The actions of jobs on messages in each state.
ACTIONS: Mapping[ActionableState, Sequence[What]] = {
    state: get_args(What) if state == "dead" else ("move", "delete") for state in get_args(ActionableState)
}

#: The fields of a job in Redis, each after its place and a colon.
_TEXTS = ("until", "target", "who", "token")
#: Dead letters on their way to another queue that the last step of a move has left, separated by spaces.
_HELD = "held"
_COUNTS = ("total", "looked", "done", "missing", "refused")
_FIELDS = ("what", "state", "wanted", "rate", "after", "since", "changed", "worker", _HELD, *_TEXTS, *_COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What a job does, and to which messages."""

    messages: ActionableState = "dead"
    what: What
    criteria: Filter = NOTHING
    #: The newest dead letter to process. For other messages, the time in ms before which they were published, as an
    #: entry id.
    until: str
    #: The queue to which it moves dead letters; empty for a job that does not.
    target: str = ""
    #: The user who started it.
    who: str
    #: Jobs of partitions that were begun together have the same.
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundJob:
    """The running job of a place, or its last one."""

    order: JobOrder
    state: State
    #: The last dead letter that was processed; of other messages the cursor.
    after: str
    #: Messages per second; 0: no limit.
    rate: int
    #: How many messages there are to check, and how many are checked. At the end, those that are gone count as checked.
    total: int
    looked: int
    done: int
    #: They no longer existed.
    missing: int
    #: They could not be redriven or moved: they are not valid messages, or the target refuses them.
    refused: int
    since_ms: int
    changed_ms: int
    #: Empty until a worker has claimed it.
    worker: str
    #: The dead letters that the last step has made of the messages that it moves.
    held: Sequence[str] = ()


class BackgroundJobs:
    """The jobs of one queue."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._config = config
        self._letters = dead_letters.open_dead_letters(config, transport)
        self._transport = transport

    def begin(self, order: JobOrder, *, total: int, rate: int = 0) -> bool:
        """Start a job; False: another one on messages of the place is running.

        Raises:
            InvalidFilter: the rate is below zero.
        """
        if rate < 0:
            raise InvalidFilter(f"A rate is a number of messages per second, or 0 for no limit, not {rate}")
        fields: dict[str, Argument] = {name: getattr(order, name) for name in ("what", *_TEXTS)}
        fields |= {"wanted": dumps(order.criteria.as_dict()), "total": total, "rate": rate}
        args = [self._config.keys.wake, order.messages, *(part for field in fields.items() for part in field)]
        return self._run("jobs_begin", args) == b"BEGUN"

    def read(self) -> dict[ActionableState, BackgroundJob]:
        """Return for each state its running job, or its last one. Ended jobs are kept for a week after the last end."""
        return jobs_of(self._transport.ask(("HGETALL", self._config.keys.jobs)))

    def running(self) -> list[ActionableState]:
        """Return the places on which a job is running, also one that cannot be read."""
        return self.read_running(self._transport.pipeline([self.running_command()])[0])

    def running_command(self) -> Command:
        """Return the command of running()."""
        return ("HMGET", self._config.keys.jobs, *(f"{state}:state" for state in get_args(ActionableState)))

    @staticmethod
    def read_running(reply: Any) -> list[ActionableState]:
        """Return what running() returns, by the reply to its command."""
        words = zip(get_args(ActionableState), reply_or_raise(reply), strict=True)
        return [state for state, word in words if word == b"running"]

    def cancel(self, state: ActionableState = "dead") -> bool:
        """Cancel the running job after its current step; its effects stay. False: no job is running."""
        return self._end(state, "cancelled", "")

    def matching(self, order: JobOrder) -> Iterator[int]:
        """Yield of each batch of messages how many a job with this order would change. Changes nothing."""
        with_data = bool(order.criteria.data)
        if order.messages != "dead":
            where, after = (self._config, self._transport), Cursor()
            while read := scan_state(*where, order.messages, after, dead_letters.BATCH, with_data=with_data):
                _, messages, after = read
                yield len(_chosen(order, messages))
            return
        first = "-"
        while letters := self._letters.traits(
            limit=dead_letters.BATCH, first=first, last=order.until, data=order.criteria.data
        ):
            first = dead_letters.next_to(letters[-1].entry, "-")
            yield sum(order.criteria.matches(letter, letter.error) for letter in letters)

    def work(self, worker: str, state: ActionableState = "dead") -> float:
        """Run one step of a job if no other worker has it; return the seconds until the next step, IDLE for none."""
        found = self._run("jobs_claim", [state, worker, LEASE_MS])
        if found[0] == b"NONE":
            return IDLE
        if found[0] == b"HELD":
            return min(IDLE, (score(found[1]) or 0.0) / 1000 + 0.1)
        job = jobs_of(found).get(state)
        if job is None:
            # It cannot be read: another program or version wrote it.
            self._end(state, "cancelled", worker)
            return IDLE
        try:
            return self._letters_step(job, worker) if state == "dead" else self._messages_step(job, worker)
        except _Over as over:
            if self._end(state, over.state, worker):
                self._note_end(job, over.state)
            return IDLE

    def _note_end(self, job: BackgroundJob, state: State) -> None:
        """Record the result, which the job itself keeps for a week only."""
        with attempt():
            # Its end has counted the messages that are gone.
            ended = self.read().get(job.order.messages)
            job = ended if ended is not None and ended.order.token == job.order.token else job
        order, counts = job.order, {"missing": job.missing, "refused": job.refused}
        words = [f"{count} {word}" for word, count in counts.items() if count]
        about = {"verb": "finish job", "done": job.done, "job": order.token, "target": order.target}
        about |= {"about": [order.what], "where": order.criteria.as_dict()}
        about["result"] = ", ".join([*words, *(["cancelled"] if state == "cancelled" else [])])
        with attempt():
            record(Actor(order.who, "consumer"), [self._config.name], about)

    def _letters_step(self, job: BackgroundJob, worker: str) -> float:
        """Act on some dead letters, and return the seconds until the next step."""
        order, limit = job.order, _limit(job, MAX_MOVED)
        first = dead_letters.next_to(job.after if dead_letters.is_entry(job.after) else "", "-")
        found = self._letters.traits(
            limit=dead_letters.BATCH if order.criteria else limit,
            first=first,
            last=order.until,
            data=order.criteria.data,
        )
        if not found:
            raise _Over("finished")
        matching = [at for at, letter in enumerate(found) if order.criteria.matches(letter, letter.error)][:limit]
        looked = [letter.entry for letter in (found[: matching[-1] + 1] if len(matching) == limit else found)]
        chosen = [found[at].entry for at in matching]
        if order.what == "move":
            return self._move(job, worker, chosen, looked)
        act = self._letters.redrive if order.what == "redrive" else self._letters.delete
        act(chosen, step=dead_letters.JobStep(worker, looked[-1], len(looked), LEASE_MS))
        return _pause(job, len(chosen))

    def _move(self, job: BackgroundJob, worker: str, chosen: list[str], looked: list[str]) -> float:
        """Move the chosen ones of the dead letters that were looked at, as far as they fit into the target."""
        mover = self._mover(job)
        words, is_full = mover.write(chosen)
        if len(words) < len(chosen):
            if not words:
                return FULL
            looked = looked[: looked.index(chosen[len(words) - 1]) + 1]
        mover.remove(chosen, words, step=dead_letters.JobStep(worker, looked[-1], len(looked), LEASE_MS))
        return FULL if is_full else _pause(job, len(words))

    def _mover(self, job: BackgroundJob) -> Mover:
        try:
            target = get_config().queue(job.order.target)
        except UnknownQueue:
            # This project has other settings than the one that started the job.
            raise _Over("cancelled") from None
        return Mover(self._config, self._transport, target)

    def _messages_step(self, job: BackgroundJob, worker: str) -> float:
        """Delete or move some messages; see _letters_step()."""
        order, is_move = job.order, job.order.what == "move"
        if is_move and job.held and (left := self._mover(job).left(job.held)):
            return self._move_held(job, self._mover(job), worker, left, job.after)
        limit = _limit(job, MAX_MOVED if is_move else dead_letters.BATCH)
        begin, with_data = Cursor.of(job.after), bool(order.criteria.data)
        read = scan_state(self._config, self._transport, order.messages, begin, limit, with_data=with_data)
        if read is None:
            raise _Over("finished")
        source, found, after = read
        chosen = _chosen(order, found)
        step = dead_letters.JobStep(worker, str(after), len(found), LEASE_MS, order.messages)
        if not is_move:
            delete_found(self._config, self._transport, source, chosen, step)
            return _pause(job, len(chosen))
        mover = self._mover(job)
        # A scan of a sorted set may return more than it was asked for, and some twice.
        members = [*dict.fromkeys(message.member for message in chosen)]
        held = mover.hold(source, members, step=step, before=job.after)
        at = str(after) if held.is_whole else job.after
        pause = self._move_held(job, mover, worker, held.entries, at) if held.entries else 0.0
        return FULL if held.is_full else pause

    def _move_held(self, job: BackgroundJob, mover: Mover, worker: str, held: Sequence[str], after: str) -> float:
        """Write the dead letters that a step has made to the target, and remove them."""
        words, is_full = mover.write(held)
        state = job.order.messages
        mover.remove(held, words, step=dead_letters.JobStep(worker, after, 0, LEASE_MS, state))
        if not is_full and len(words) == len(held):
            # Those that the target has refused since it was asked stay dead letters.
            self._transport.ask(("HDEL", self._config.keys.jobs, f"{state}:{_HELD}"))
        return FULL if is_full else _pause(job, len(words))

    def _end(self, state: ActionableState, ending: State, worker: str) -> bool:
        return self._run("jobs_end", [state, ending, worker]) == b"ENDED"

    def _run(self, script: str, args: list[Argument]) -> list[bytes] | bytes:
        reply: list[bytes] | bytes = self._transport.run(script, [self._config.keys.jobs], args)
        return reply


class _Over(Exception):
    """There is nothing left to do for a job."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state


def _chosen(order: JobOrder, found: Sequence[FoundMessage]) -> list[FoundMessage]:
    """Return the messages that a job deletes."""
    until_ms = entry_ms(order.until.encode())
    return [
        message
        for message in found
        if (message.published_ms is None or message.published_ms < until_ms) and order.criteria.matches(message)
    ]


def _limit(job: BackgroundJob, most: int) -> int:
    """Return how many messages a step may change."""
    return max(1, min(most, job.rate // STEPS)) if job.rate else most


def _pause(job: BackgroundJob, count: int) -> float:
    """Return the seconds that the rate leaves for a step that has changed so many messages."""
    return count / job.rate if job.rate else 0.0


def jobs_of(flat: object) -> dict[ActionableState, BackgroundJob]:
    """Return the jobs in these fields and values in Redis by place, without those that are not valid."""
    fields = dead_letters.fields_of(flat) if isinstance(flat, list) else {}
    if not fields:
        # As in most queues, of which a page may show all.
        return {}
    found = {state: _job_of(state, fields) for state in get_args(ActionableState)}
    return {state: job for state, job in found.items() if job is not None}


def _job_of(state: ActionableState, fields: dead_letters.Fields) -> BackgroundJob | None:
    own = {name: fields.get(f"{state}:{name}".encode()) for name in _FIELDS}
    texts = {name: dead_letters.text_of(own[name]) for name in _TEXTS}
    what, word, rate = dead_letters.text_of(own["what"]), dead_letters.text_of(own["state"]), whole(own["rate"])
    if (
        what not in ACTIONS[state]
        or word not in get_args(State)
        or rate is None
        or not dead_letters.is_entry(texts["until"])
        or (what == "move") != bool(texts["target"])
    ):
        return None
    try:
        criteria = Filter.of(loads(dead_letters.text_of(own["wanted"]).encode()))
    except (DecodeError, InvalidFilter):
        return None
    counts = {name: whole(own[name]) or 0 for name in _COUNTS}
    # Messages that came after they were counted are looked at, too.
    counts["total"] = max(counts["total"], counts["looked"])
    return BackgroundJob(
        order=JobOrder(messages=state, what=what, criteria=criteria, **texts),  # type: ignore[arg-type]  # it is an action
        state=word,  # type: ignore[arg-type]  # checked by get_args()
        after=dead_letters.text_of(own["after"]),
        rate=rate,
        since_ms=whole(own["since"]) or 0,
        changed_ms=whole(own["changed"]) or 0,
        worker=dead_letters.text_of(own["worker"]),
        held=[*filter(dead_letters.is_entry, dead_letters.text_of(own[_HELD]).split())],
        **counts,
    )
