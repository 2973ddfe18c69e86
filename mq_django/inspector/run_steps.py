"""The steps of runs of workflows for display."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.flow_graph import numbers_of
from mq_django.core.jsontext import loads
from mq_django.core.step_ids import STEP_NAME, message_id_of
from mq_django.core.visible import line
from mq_django.errors import DecodeError, UnknownQueue
from mq_django.inspector.run_reader import RECORDS, RunReader, open_run_reader
from mq_django.inspector.scan import Scanned
from mq_django.inspector.workflow_runs import RunView
from mq_django.stores.dead_letter_queue import is_entry
from mq_django.stores.workflow_home import StepState
from mq_django.transport.connections import open_wires
from mq_django.transport.fan_out import fan_out

#: Steps that one call looks at.
MAX_LOOKED = 10_000
#: Steps of which a list is shown as a graph, and the most edges of it.
MAX_GRAPH, MAX_EDGES = 200, 2000
#: Predecessors that a list shows.
MAX_BEFORE = 1000

#: What the states of steps in `lua/parts/flow_steps.lua` are called.
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

    @property
    def took(self) -> float | None:
        """Return the seconds from the start to the end of the step, with the time in its queue; None if unknown."""
        if not self.began_ms or not self.ended_ms:
            return None
        return max(0, self.ended_ms - self.began_ms) / 1000


def look_at_steps(view: RunView, *, state: str = "", after: int = 0, limit: int) -> Scanned[StepLine]:
    """Return up to `limit` steps by number, among the next MAX_LOOKED numbers; joins are left out.

    Args:
        view: their run.
        state: only steps in this state, one of STEP_STATES; "" for all.
        after: the number of the step before.
        limit: the most steps.

    Raises:
        StoreError: Redis cannot be reached.
    """
    reader, end = open_run_reader(view.id), min(view.last, after + MAX_LOOKED)
    found: list[StepState] = []
    at = after
    while at < end:
        for step in reader.records(view.id, range(at + 1, min(at + RECORDS, end) + 1)):
            if not step.is_join and (not state or STEP_STATES.get(step.state) == state):
                if len(found) == limit:
                    return Scanned(_lines(reader, view.id, found), at - after, str(found[-1].number))
                found.append(step)
        at = min(at + RECORDS, end)
    return Scanned(_lines(reader, view.id, found), at - after, str(at) if at < view.last else "")


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
    reader, looked = open_run_reader(view.id), min(view.last, MAX_LOOKED)
    counts, chosen = dict.fromkeys(STEP_STATES.values(), 0), defaultdict[str, list[StepState]](list)
    for at in range(0, looked, RECORDS):
        for step in reader.records(view.id, range(at + 1, min(at + RECORDS, looked) + 1)):
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
    # A step that was added by another one, and waits for none of those that were added with it, follows that one.
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
    by_place: dict[str, list[StepLine]] = defaultdict(list)
    for one in steps:
        if one.state == "failed" and one.message_id:
            with suppress(UnknownQueue):
                for place in get_config().queue(one.queue).places_of(one.message_id):
                    by_place[place.name].append(one)
    configs, asked = [get_config().queue(place) for place in by_place], list(by_place.values())
    wires = open_wires("inspect", [config.connection for config in configs])
    trips = [
        [("HMGET", config.keys.dead_ids, *[one.message_id for one in group])]
        for config, group in zip(configs, asked, strict=True)
    ]
    found: dict[int, str] = {}
    for group, (reply,) in zip(asked, fan_out(wires, trips), strict=True):
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
    )
