"""Runs of workflows for display."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from mq_django.conf import get_config
from mq_django.core.flow_graph import first_argument, numbers_of
from mq_django.core.ids import STEP_NAME, is_run_id, message_id_of
from mq_django.core.jsontext import LAST_MS, loads, score_ms, whole
from mq_django.core.keys import HOMES, WorkflowKeys
from mq_django.core.redaction import redact_forms, redact_text
from mq_django.core.texts import line
from mq_django.errors import DecodeError, UnknownQueue
from mq_django.inspector.stream_reader import Scanned
from mq_django.stores.dead_letters import is_entry
from mq_django.stores.workflow_home import StepState, step_state
from mq_django.transport.connections import open_transport, open_transports
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

# Read the runs of workflows of one home.

#: The fields of a run.
FIELDS = (
    *("state", "name", "policy", "round", "total", "done", "failed", "skipped", "flying", "next"),
    *("started", "finished", "lasts", "expires", "unique"),
)
#: The field of a run with its latest failure: the step's number and the reason.
FAILURE = "failure"
#: Records of steps that a command reads.
RECORDS = 1000
#: Maximum bytes of a step's message that are read. The task of a larger message is not shown.
MAX_BODY = 64 * 1024


class ListedRun(NamedTuple):
    """A run in the list of all runs of a home."""

    id: str
    #: When it was started, in ms since 1970.
    ms: int


class StuckRuns(NamedTuple):
    """Runs that do not go on, and that no supervisor can repair."""

    runs: int
    #: Why the first of them does not: see `mq_django.core.flow_graph.RunProblem`.
    kind: str
    run: str


class RunReader:
    """Reads the runs of one home."""

    def __init__(self, keys: WorkflowKeys, transport: Transport) -> None:
        self.keys = keys
        self._transport = transport

    def listed(self, before: ListedRun | None, *, limit: int) -> list[ListedRun]:
        """Return up to `limit` runs of the list, the latest first: those after another one in this order."""
        found: list[ListedRun] = []
        last, at = "+inf" if before is None else str(before.ms), 0
        while len(found) < limit:
            command = ("ZREVRANGEBYSCORE", self.keys.index, last, "-inf", "WITHSCORES", "LIMIT", at, limit)
            page = _with_scores(self._transport.ask(command))
            if not page:
                break
            at += len(page)
            # Redis orders runs with the same time by their ids.
            found += [run for run in page if before is None or (run.ms, run.id) < (before.ms, before.id)]
        return found[:limit]

    def count_alive(self) -> int:
        """Return how many runs have not ended."""
        return int(self._transport.ask(("ZCARD", self.keys.alive)))

    def alive(self, *, skipped: int, limit: int) -> list[str]:
        """Return up to `limit` runs that have not ended, as it is listed, the first `skipped` left out."""
        reply = self._transport.ask(("ZRANGE", self.keys.alive, skipped, skipped + limit - 1))
        return [run_id.decode(errors="replace") for run_id in reply]

    def fields(self, run_ids: Sequence[str]) -> list[dict[str, bytes]]:
        """Return the fields of runs; none for one that does not exist."""
        commands: list[Command] = [("HMGET", self.keys.run(run_id), *FIELDS) for run_id in run_ids]
        replies = self._transport.pipeline(commands) if commands else []
        # What is no hash is not a run.
        rows = [[None] * len(FIELDS) if isinstance(reply, Exception) else reply for reply in replies]
        return [
            {name: value for name, value in zip(FIELDS, row, strict=True) if isinstance(value, bytes)} for row in rows
        ]

    def failure(self, run_id: str) -> bytes:
        """Return the step that failed last, and the reason; empty if none has."""
        return self._transport.ask(("HGET", self.keys.run(run_id), FAILURE)) or b""

    def records(self, run_id: str, numbers: Sequence[int]) -> list[StepState]:
        """Return the states of steps with these numbers, as far as they exist, joins as well."""
        parts = [numbers[at : at + RECORDS] for at in range(0, len(numbers), RECORDS)]
        replies = (
            self._transport.pipeline([("HMGET", self.keys.steps(run_id), *part) for part in parts]) if parts else []
        )
        pairs = [
            (number, record)
            for part, reply in zip(parts, replies, strict=True)
            for number, record in zip(part, reply_or_raise(reply), strict=True)
        ]
        states = [step_state(number, record) for number, record in pairs if record is not None]
        return [state for state in states if state is not None]

    def bodies(self, run_id: str, numbers: Sequence[int], *, most: int = MAX_BODY) -> Mapping[int, bytes]:
        """Return what steps publish, without those that have more bytes than `most`."""
        if not numbers:
            return {}
        key = self.keys.bodies(run_id)
        sizes = self._transport.pipeline([("HSTRLEN", key, number) for number in numbers])
        small = [number for number, size in zip(numbers, sizes, strict=True) if 0 < reply_or_raise(size) <= most]
        if not small:
            return {}
        found = self._transport.ask(("HMGET", key, *small))
        return {number: body for number, body in zip(small, found, strict=True) if body is not None}

    def followers(self, run_id: str, numbers: Sequence[int]) -> Mapping[int, str]:
        """Return ranges of the steps that wait for each of these steps."""
        return self._texts(self.keys.after(run_id), numbers)

    def added(self, run_id: str, numbers: Sequence[int]) -> Mapping[int, str]:
        """Return ranges of the steps that each of these steps has added."""
        return self._texts(self.keys.run(run_id), numbers, "added:")

    def _texts(self, key: str, numbers: Sequence[int], prefix: str = "") -> Mapping[int, str]:
        """Return the fields of a hash with these numbers, as far as there are any."""
        if not numbers:
            return {}
        found = self._transport.ask(("HMGET", key, *[f"{prefix}{number}" for number in numbers]))
        texts = zip(numbers, found, strict=True)
        return {number: text.decode(errors="replace") for number, text in texts if text is not None}

    def has_work(self, run_id: str) -> bool:
        """Return whether changes of a run are still to be made."""
        return bool(self._transport.ask(("EXISTS", self.keys.work(run_id))))

    def stuck_command(self) -> Command:
        """Return the command that reads which runs did not go on when supervisors looked last: see stuck_in()."""
        return ("GETRANGE", self.keys.stuck, 0, 200)

    def starts(self, *, after: str = "", limit: int) -> list[tuple[str, dict[bytes, bytes]]]:
        """Return up to `limit` entries of what is to be published, the oldest first, that follow `after`."""
        first = f"({after}" if after else "-"
        found = self._transport.ask(("XRANGE", self.keys.starts, first, "+", "COUNT", limit))
        return [(entry.decode(), dict(zip(flat[::2], flat[1::2], strict=True))) for entry, flat in found or ()]


def open_run_reader(run_id: str) -> RunReader:
    """Return the reader of the home of a run, on the server of the project."""
    return RunReader(WorkflowKeys(get_config().namespace, run_id[0]), open_transport("inspect", ""))


def open_run_readers() -> list[RunReader]:
    """Return the readers of all homes."""
    return [open_run_reader(digit) for digit in HOMES]


def _with_scores(reply: Sequence[Any]) -> list[ListedRun]:
    """Return the runs in a reply: pairs, or with RESP 2 members and scores in turn."""
    has_pairs = bool(reply) and isinstance(reply[0], list | tuple)
    pairs = reply if has_pairs else list(zip(reply[::2], reply[1::2], strict=True))
    return [ListedRun(member.decode(errors="replace"), score_ms(score) or 0) for member, score in pairs]


#: Runs that a call checks, and that a round trip reads.
MAX_LOOKED, READ = 2000, 200

#: The states of runs.
RUN_STATES = ("building", "running", "succeeded", "failed", "cancelled", "expired")
#: Those in which nothing starts.
ENDED_STATES = frozenset({"succeeded", "failed", "cancelled", "expired"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run of a workflow."""

    id: str
    name: str
    #: One of RUN_STATES; another program may have written another one.
    state: str
    policy: str
    #: How often it was started or continued.
    round: int
    total: int
    done: int
    failed: int
    skipped: int
    #: Steps that are published and have not ended.
    started: int
    #: The number of the last step. Joins between steps have numbers, too.
    last: int
    #: Milliseconds since 1970; None: not yet.
    started_ms: int | None
    finished_ms: int | None
    expires_ms: int | None
    #: The name of the workflow and the unique key; "" without one. It may contain data.
    unique: str

    @property
    def share(self) -> float:
        """Return which share of the steps has ended, from 0 to 1."""
        return min(1.0, (self.done + self.failed + self.skipped) / self.total) if self.total else 0.0

    @property
    def waiting(self) -> int:
        """Return how many steps have not been started."""
        return max(0, self.total - self.done - self.failed - self.skipped - self.started)


def list_runs(*, state: str = "", name: str = "", after: str = "", limit: int) -> Scanned[RunView]:
    """Return up to `limit` runs, the latest first, among the next MAX_LOOKED.

    Args:
        state: only runs in this state; "" for all.
        name: only runs of workflows whose name contains this, in upper or lower case.
        after: the cursor of the call before; "" to begin with the latest.
        limit: the most runs.

    Raises:
        StoreError: Redis cannot be reached.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    part = name.casefold()

    def matches(view: RunView) -> bool:
        return (not state or view.state == state) and part in view.name.casefold()

    rows: list[RunView] = []
    looked, cursor = 0, _cursor(after)
    while looked < MAX_LOOKED:
        batch = _listed(cursor)
        for one, view in _views(batch):
            if len(rows) == limit:
                return Scanned(rows, looked, _text(cursor))
            looked, cursor = looked + 1, one
            if view is not None and matches(view):
                rows.append(view)
        if len(batch) < READ:
            return Scanned(rows, looked, "")
    return Scanned(rows, looked, _text(cursor))


def _listed(after: ListedRun | None) -> list[ListedRun]:
    """Return the next runs of all homes, the latest first."""
    found = [one for reader in open_run_readers() for one in reader.listed(after, limit=READ)]
    return sorted(found, key=lambda one: (one.ms, one.id), reverse=True)[:READ]


def _views(batch: Sequence[ListedRun]) -> Iterable[tuple[ListedRun, RunView | None]]:
    """Return runs with their views; None for one that exists no more, or that another program has listed."""
    known: dict[str, RunView] = {}
    for reader in open_run_readers():
        ids = [one.id for one in batch if is_run_id(one.id) and one.id[0] == reader.keys.home]
        known |= {
            run_id: _run(run_id, fields) for run_id, fields in zip(ids, reader.fields(ids), strict=True) if fields
        }
    return [(one, known.get(one.id)) for one in batch]


def _cursor(text: str) -> ListedRun | None:
    """Return the run in a cursor; None if it is invalid."""
    ms, _, run_id = text.partition(".")
    found = whole(ms, LAST_MS)
    return ListedRun(run_id, found) if found is not None and is_run_id(run_id) else None


def _text(cursor: ListedRun | None) -> str:
    return "" if cursor is None else f"{cursor.ms}.{cursor.id}"


def count_alive() -> int:
    """Return how many runs have not ended.

    Raises:
        StoreError: Redis cannot be reached.
    """
    return sum(reader.count_alive() for reader in open_run_readers())


def stuck_in(reply: object) -> StuckRuns | None:
    """Return the runs that do not go on, in the reply to a stuck_command(); None without any."""
    count, _, first = (reply.decode(errors="replace") if isinstance(reply, bytes) else "").partition(" ")
    kind, _, run_id = first.partition(" ")
    return StuckRuns(runs, kind, run_id) if (runs := whole(count, 10**9)) else None


def run(run_id: str) -> RunView | None:
    """Return a run, or None if there is none with this id.

    Args:
        run_id: its id.

    Raises:
        StoreError: Redis cannot be reached.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    if not is_run_id(run_id):
        return None
    (fields,) = open_run_reader(run_id).fields([run_id])
    return _run(run_id, fields) if fields else None


def failure(run_id: str) -> tuple[int, str] | None:
    """Return the number of the step that failed last, and the reason, which may contain data; None if none has failed.

    Raises:
        StoreError: Redis cannot be reached.
    """
    number, _, reason = open_run_reader(run_id).failure(run_id).partition(b" ")
    found = whole(number, 10**9)
    # The queue has noted the group of the failure: an error, and the name of the message.
    said = reason.decode(errors="backslashreplace").partition(f"|{STEP_NAME}")[0]
    return None if found is None else (found, redact_text(said))


def _run(run_id: str, fields: Mapping[str, bytes]) -> RunView:
    def text(name: str) -> str:
        return line(fields.get(name, b"").decode(errors="replace"))

    number: Callable[[str], int] = lambda name: whole(fields.get(name), 10**9) or 0  # noqa: E731
    started_ms, lasts_ms = whole(fields.get("started"), LAST_MS), whole(fields.get("lasts"), LAST_MS)
    expires_ms = None if started_ms is None or lasts_ms is None else started_ms + lasts_ms
    # A run that has continued may take as long again.
    continued_until_ms = whole(fields.get("expires"), LAST_MS)
    return RunView(
        id=run_id,
        name=text("name"),
        state=text("state"),
        policy=text("policy"),
        round=number("round"),
        total=number("total"),
        done=number("done"),
        failed=number("failed"),
        skipped=number("skipped"),
        started=number("flying"),
        last=number("next"),
        started_ms=started_ms,
        finished_ms=whole(fields.get("finished"), LAST_MS),
        expires_ms=expires_ms if continued_until_ms is None else continued_until_ms,
        unique=redact_forms(text("unique")),
    )


# The steps of runs of workflows for display.

#: Steps that a call checks.
MAX_STEPS_LOOKED = 10_000
#: Steps of which a list is shown as a graph, and the most edges of it.
MAX_GRAPH, MAX_EDGES = 200, 2000
#: Predecessors that a list shows.
MAX_BEFORE = 1000

#: Names of the states of steps in `lua/workflows_advance.lua`.
STEP_STATES: Mapping[str, str] = {
    "F": "failed",
    "S": "started",
    "H": "held",
    "W": "waiting",
    "B": "building",
    "K": "skipped",
    "P": "passed",
    "D": "done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A step of a run."""

    number: int
    #: The task's path; "" if it is not known.
    task: str
    queue: str
    #: One of STEP_STATES.
    state: str
    #: The id of its latest message; "" before it was started.
    message_id: str
    #: Milliseconds since 1970; None: not yet.
    began_ms: int | None
    ended_ms: int | None
    #: Whether it has no message: it stands between steps and those that wait for all of them.
    is_join: bool = False
    #: The steps that it waits for, joins as well.
    before: Sequence[int] = ()
    #: Its first argument that is no value of another step, as text with secrets replaced: it is data.
    argument: str = ""

    @property
    def took(self) -> float | None:
        """Return the seconds from the start to the end of the step, with the time in its queue; None if unknown."""
        if not self.began_ms or not self.ended_ms:
            return None
        return max(0, self.ended_ms - self.began_ms) / 1000


def list_steps(view: RunView, *, state: str = "", after: int | str = 0, limit: int) -> Scanned[StepLine]:
    """Return up to `limit` steps by number, among the next MAX_LOOKED numbers; joins are left out.

    Args:
        view: their run.
        state: only steps in this state, one of STEP_STATES; "" for all.
        after: the number of the step before, or `after` of the page before.
        limit: the most steps.

    Raises:
        StoreError: Redis cannot be reached.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    first = whole(after, 10**9) or 0
    reader, end = open_run_reader(view.id), min(view.last, first + MAX_STEPS_LOOKED)
    found: list[StepState] = []
    at = first
    while at < end:
        for step in reader.records(view.id, range(at + 1, min(at + RECORDS, end) + 1)):
            if not step.is_join and (not state or STEP_STATES.get(step.state) == state):
                if len(found) == limit:
                    return Scanned(_lines(reader, view.id, found), at - first, str(found[-1].number))
                found.append(step)
        at = min(at + RECORDS, end)
    return Scanned(_lines(reader, view.id, found), at - first, str(at) if at < view.last else "")


@dataclass(frozen=True, slots=True)
class StepCounts:
    """The steps of a run by state."""

    #: In the order of STEP_STATES; without states that no step has.
    counts: Mapping[str, int]
    #: The first of each state.
    first: Mapping[str, Sequence[StepLine]]
    #: How many numbers were looked at.
    looked: int


def count_steps(view: RunView, *, examples: int) -> StepCounts:
    """Return how many of the first MAX_LOOKED steps are in each state, and the first ones of each.

    Raises:
        StoreError: Redis cannot be reached.
    """
    reader, looked = open_run_reader(view.id), min(view.last, MAX_STEPS_LOOKED)
    counts, chosen = dict.fromkeys(STEP_STATES.values(), 0), defaultdict[str, list[StepState]](list)
    for step in reader.records(view.id, range(1, looked + 1)):
        state = STEP_STATES.get(step.state)
        if state is None or step.is_join:
            continue
        counts[state] += 1
        if len(chosen[state]) < examples:
            chosen[state].append(step)
    lines = {one.number: one for one in _lines(reader, view.id, [step for group in chosen.values() for step in group])}
    return StepCounts(
        {state: count for state, count in counts.items() if count},
        {state: [lines[step.number] for step in group] for state, group in chosen.items()},
        looked,
    )


def graph_steps(view: RunView) -> list[StepLine] | None:
    """Return all steps of a run with the steps that they wait for; None if there are too many for a graph.

    Raises:
        StoreError: Redis cannot be reached.
    """
    # Joins have numbers as well, and can be as many as the steps.
    if view.total > MAX_GRAPH or view.last > 2 * MAX_GRAPH:
        return None
    reader, numbers = open_run_reader(view.id), range(1, view.last + 1)
    states = reader.records(view.id, numbers)
    if sum(not step.is_join for step in states) > MAX_GRAPH:
        return None
    before = _edges({step.number for step in states}, reader.followers(view.id, numbers))
    if before is None:
        return None
    # A step that another one added, and that waits for none of the steps added with it, follows the other one.
    for number, text in reader.added(view.id, numbers).items():
        for other in _numbers(text):
            if before.get(other) == [] and other != number:
                before[other].append(number)
    return _lines(reader, view.id, states, before)


def _edges(numbers: Collection[int], followers: Mapping[int, str]) -> dict[int, list[int]] | None:
    """Return the steps that each step waits for, from ranges of those that wait for it; None: there are too many."""
    before: dict[int, list[int]] = {number: [] for number in numbers}
    edges = 0
    for number, text in sorted(followers.items()):
        for other in _numbers(text):
            if other in before and number in before and other != number:
                before[other].append(number)
                edges += 1
        if edges > MAX_EDGES:
            return None
    return before


def step(run_id: str, number: int) -> StepLine | None:
    """Return a step of a run; None if it has none with this number, or it is a join.

    Raises:
        StoreError: Redis cannot be reached.
    """
    reader = open_run_reader(run_id)
    found = [each for each in reader.records(run_id, [number]) if not each.is_join]
    return _lines(reader, run_id, found)[0] if found else None


def dead_letters_of(steps: Sequence[StepLine]) -> Mapping[int, str]:
    """Return the entries of the dead letters of failed steps, by the steps' numbers, as far as there are any.

    Raises:
        StoreError: Redis cannot be reached.
    """
    by_partition: dict[str, list[StepLine]] = defaultdict(list)
    for one in steps:
        if one.state == "failed" and one.message_id:
            with suppress(UnknownQueue):
                for partition in get_config().queue(one.queue).partitions_for_id(one.message_id):
                    by_partition[partition.name].append(one)
    configs, asked = [get_config().queue(partition) for partition in by_partition], list(by_partition.values())
    transports = open_transports("inspect", [config.connection for config in configs])
    pipelines = [
        [("HMGET", config.keys.dead_ids, *[one.message_id for one in group])]
        for config, group in zip(configs, asked, strict=True)
    ]
    found: dict[int, str] = {}
    for group, (reply,) in zip(asked, fan_out(transports, pipelines), strict=True):
        entries = [None] * len(group) if isinstance(reply, Exception) else reply
        texts = [(entry or b"").decode(errors="replace") for entry in entries]
        found |= {one.number: entry for one, entry in zip(group, texts, strict=True) if is_entry(entry)}
    return found


def names_before(steps: Sequence[StepLine]) -> Mapping[int, Sequence[int]]:
    """Return for each step of a graph up to MAX_BEFORE steps that it waits for. A join stands for its own."""
    known = {one.number: one for one in steps}

    def behind(number: int) -> Iterator[int]:
        for other in known[number].before:
            yield from known[other].before if known[other].is_join else [other]

    return {one.number: sorted({*behind(one.number)})[:MAX_BEFORE] for one in steps if not one.is_join}


def _numbers(text: str) -> list[int]:
    """Return the numbers of ranges; none if they are invalid, or too many for a graph."""
    try:
        return numbers_of(text, 2 * MAX_GRAPH)
    except ValueError:
        return []


def _lines(
    reader: RunReader, run_id: str, states: Sequence[StepState], before: Mapping[int, Sequence[int]] | None = None
) -> list[StepLine]:
    bodies = reader.bodies(run_id, [state.number for state in states if not state.is_join])
    return [
        _line(run_id, state, bodies.get(state.number, b""), (before or {}).get(state.number, ())) for state in states
    ]


def _line(run_id: str, state: StepState, body: bytes, before: Sequence[int]) -> StepLine:
    try:
        fields = loads(body) if body else {}
    except DecodeError:
        fields = {}
    known = fields if isinstance(fields, dict) else {}
    return StepLine(
        number=state.number,
        task=line(str(known.get("name", ""))).removeprefix(STEP_NAME),
        queue=line(str(known.get("queue", ""))),
        state=STEP_STATES.get(state.state, state.state),
        message_id=message_id_of(run_id, state.number, state.round) if state.round else "",
        began_ms=state.began_ms or None,
        ended_ms=state.ended_ms or None,
        is_join=state.is_join,
        before=before,
        argument=first_argument(known.get("data")),
    )
