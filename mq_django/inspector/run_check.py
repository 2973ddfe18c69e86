"""Find what deletions by other programs and failovers have taken from runs of workflows."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.flow_graph import RunProblem
from mq_django.core.ids import is_run_id, message_id_of
from mq_django.core.jsontext import LAST_MS, loads, whole
from mq_django.errors import DecodeError, UnknownQueue
from mq_django.inspector.workflow_runs import RECORDS, ListedRun, RunReader, open_run_reader, open_run_readers
from mq_django.stores.workflow_home import StepState
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, reply_or_raise

#: What is younger may be under way, in ms: consumers and supervisors continue it within seconds.
OLD_MS = 30_000
#: Runs, ids and entries that a round trip reads.
READ = 200
#: A longer value of an entry is not read: an id is shorter.
MAX_BYTES = 256
#: Bytes of what a step publishes that are read.
MAX_BODY = 16 * 1024 * 1024
#: How often a message is searched before it counts as gone: it may move while it is searched.
SEARCHES = 2


@dataclass(slots=True)
class RunCheck:
    """The result of a check."""

    problems: list[RunProblem] = field(default_factory=list)
    #: How many runs were looked at.
    runs: int = 0
    #: Queues that were not searched to their end in the time.
    not_searched: list[str] = field(default_factory=list)


def check_runs(
    run_id: str = "",
    *,
    seconds: float,
    old_ms: int = OLD_MS,
    with_ended: bool = True,
    progressed: Callable[[], object] = lambda: None,
) -> RunCheck:
    """Look for steps whose messages are gone, for what is not published, and for runs that do not go on.

    Args:
        run_id: only this run; "" for all.
        seconds: how long queues are searched.
        old_ms: what is younger is not looked at.
        with_ended: look at runs that have ended, too.
        progressed: called again and again.

    Raises:
        StoreError: Redis cannot be reached.
    """
    check, before_ms = RunCheck(), clock.now_ms() - old_ms
    waiting: set[str] = set()
    suspects: dict[str, dict[str, RunProblem]] = defaultdict(dict)
    for reader in [open_run_reader(run_id)] if run_id else open_run_readers():
        for entry, fields in _entries(reader):
            start = _start(reader, entry, fields)
            waiting.add(start.message_id)
            if (whole(entry.partition("-")[0], LAST_MS) or 0) < before_ms and run_id in ("", start.run):
                check.problems.append(start)
        for batch in [[run_id]] if run_id else _listed(reader, with_ended=with_ended):
            progressed()
            check.runs += len(batch)
            for problem in _problems(reader, batch, before_ms):
                if problem.kind != "message":
                    check.problems.append(problem)
                elif problem.message_id not in waiting:
                    suspects[problem.queue][problem.message_id] = problem
    deadline = time.monotonic() + seconds
    for queue, group in sorted(suspects.items()):
        progressed()
        _search(check, queue, group, deadline)
    return check


def _entries(reader: RunReader) -> Iterator[tuple[str, Mapping[bytes, bytes]]]:
    after = ""
    while found := reader.starts(after=after, limit=READ):
        yield from found
        after = found[-1][0]


def _start(reader: RunReader, entry: str, fields: Mapping[bytes, bytes]) -> RunProblem:
    run, step = (fields.get(name, b"").decode(errors="replace") for name in (b"run", b"step"))
    of_round = whole(fields.get(b"round"), 10**9) or 0
    message_id = message_id_of(run, step, of_round)
    return RunProblem("start", run, reader.keys.home, step, message_id=message_id, round=of_round, entry=entry)


def _listed(reader: RunReader, *, with_ended: bool) -> Iterator[list[str]]:
    """Yield the runs of a home in batches, each once."""
    seen: set[str] = set()

    def fresh(run_ids: Iterable[str]) -> list[str]:
        found = [run_id for run_id in run_ids if run_id not in seen]
        seen.update(found)
        return found

    after: ListedRun | None = None
    while with_ended and (batch := reader.listed(after, limit=READ)):
        yield fresh(one.id for one in batch)
        after = batch[-1]
    skipped = 0
    while alive := reader.alive(skipped=skipped, limit=READ):
        yield fresh(alive)
        skipped += len(alive)


def _problems(reader: RunReader, run_ids: Sequence[str], before_ms: int) -> Iterator[RunProblem]:
    """Yield the problems of runs. Whether the message of a started step is gone is not known yet."""
    for run_id, fields in zip(run_ids, reader.fields(run_ids), strict=True):
        # A run that has ended is deleted after its time, and later from the list of all runs.
        state = fields.get("state", b"")
        if not is_run_id(run_id) or state in (b"", b"building"):
            continue
        flying, last = (whole(fields.get(name), 10**9) or 0 for name in ("flying", "next"))
        if flying:
            yield from _started(reader, run_id, last, before_ms)
        elif state == b"running" and _is_stopped(reader, run_id):
            yield RunProblem("stopped", run_id, reader.keys.home)


def _is_stopped(reader: RunReader, run_id: str) -> bool:
    """Return whether a run has nothing left to do, as it is now: it may have ended since it was read."""
    has_work, (fields,) = reader.has_work(run_id), reader.fields([run_id])
    return not has_work and fields.get("state") == b"running" and fields.get("flying") == b"0"


def _started(reader: RunReader, run_id: str, last: int, before_ms: int) -> Iterator[RunProblem]:
    """Yield the steps of a run whose messages must be in their queues."""
    for at in range(0, last, RECORDS):
        found = reader.records(run_id, range(at + 1, min(at + RECORDS, last) + 1))
        started = [step for step in found if step.state == "S" and not step.is_join and step.began_ms < before_ms]
        for part in range(0, len(started), READ):
            group = started[part : part + READ]
            bodies = reader.bodies(run_id, [step.number for step in group], most=MAX_BODY)
            yield from (_suspect(run_id, step, bodies.get(step.number, b"")) for step in group)


def _suspect(run_id: str, step: StepState, body: bytes) -> RunProblem:
    try:
        queue = str(loads(body)["queue"])
    except (DecodeError, LookupError, TypeError):
        queue = ""
    message_id = message_id_of(run_id, step.number, step.round)
    return RunProblem(
        kind="message",
        run=run_id,
        home=run_id[0],
        step=str(step.number),
        queue=queue,
        message_id=message_id,
        round=step.round,
        seq=step.seq,
    )


def _search(check: RunCheck, queue: str, suspects: Mapping[str, RunProblem], deadline: float) -> None:
    """Add those whose messages are in no place of their queue."""
    try:
        config = get_config().queue(queue)
    except UnknownQueue:
        check.problems += [problem._replace(kind="queue") for problem in suspects.values()]
        return
    transport = open_transport("inspect", config.connection)
    searches = [_Search(part, transport, deadline) for part in config.each_part]
    left = {*suspects}
    for _ in range(SEARCHES):
        for search in searches:
            left = search.missing(left)
    found = [suspects[known]._replace(kind="dead") for search in searches for known in sorted(search.dead)]
    if any(search.is_late for search in searches):
        check.not_searched.append(queue)
    else:
        found += [suspects[message_id] for message_id in sorted(left)]
    check.problems += filter(_is_unchanged, found)


def _is_unchanged(problem: RunProblem) -> bool:
    """Return whether nothing was heard of a step since it was read."""
    states = open_run_reader(problem.run).records(problem.run, [whole(problem.step) or 0])
    return [(step.state, step.seq, step.round) for step in states] == [("S", problem.seq, problem.round)]


class _Search:
    """A search of all places of one queue or partition for messages."""

    def __init__(self, config: QueueConfig, transport: Transport, deadline: float) -> None:
        self._keys, self._transport, self._deadline = config.keys, transport, deadline
        #: Whether time was up before everything was searched.
        self.is_late = False
        #: Those that are dead letters, without a note that their runs have not got yet.
        self.dead: set[str] = set()

    def missing(self, message_ids: Iterable[str]) -> set[str]:
        """Return the messages, of some, that are nowhere in their queue, and about which there is no note."""
        left = self._not_indexed({*message_ids})
        for stream in self._keys.streams():
            left = self._not_in(stream, left)
        # It may have moved to such a place since.
        return self._not_indexed(left)

    def _not_indexed(self, message_ids: set[str]) -> set[str]:
        keys, ordered = self._keys, sorted(message_ids)
        left: set[str] = set()
        for at in range(0, len(ordered), READ):
            part = ordered[at : at + READ]
            commands: list[Command] = [
                ("HEXISTS", key, message_id)
                for message_id in part
                for key in (keys.waiting, keys.unique, keys.dead_ids, keys.step_notes)
            ]
            replies = [reply_or_raise(reply) for reply in self._transport.pipeline(commands)]
            for message_id, found in zip(part, zip(*[iter(replies)] * 4, strict=True), strict=True):
                # Of a parked message only `unique` has the id.
                waits, parked, dead, noted = found
                if dead and not (waits or parked or noted):
                    self.dead.add(message_id)
                elif not any(found):
                    left.add(message_id)
        return left

    def _not_in(self, stream: str, message_ids: set[str]) -> set[str]:
        """Return those that are in no entry of a stream, which has ready and pending messages."""
        after, left = "-", {message_id.encode() for message_id in message_ids}
        while left:
            if time.monotonic() > self._deadline:
                self.is_late = True
                break
            _more, *flat = self._transport.run("topic_page", [stream], [after, "+", "xrange", READ, MAX_BYTES])
            for fields in flat[1::2]:
                left -= {value for name, value in zip(fields[::2], fields[1::2], strict=True) if name == b"id"}
            if not flat:
                break
            after = f"({flat[-2].decode()}"
        return {message_id.decode() for message_id in left}
