"""Runs of workflows for display."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mq_django.core.flow_graph import numbers_of
from mq_django.core.jsontext import loads
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.step_ids import STEP_NAME, message_id_of
from mq_django.core.visible import line
from mq_django.errors import DecodeError
from mq_django.producers.step_starts import open_home, open_homes
from mq_django.stores.workflow_home import StepState, WorkflowHome

#: Runs of one page of the list.
PAGE = 50
#: The most steps of which a run's page shows more than the count.
MAX_STEPS = 10_000

#: What the states of steps in `lua/parts/flow_steps.lua` are called.
STEP_STATES: Mapping[str, str] = {
    "B": "building",
    "W": "waiting",
    "H": "held",
    "S": "started",
    "D": "done",
    "F": "failed",
    "K": "skipped",
    "P": "passed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run of a workflow."""

    id: str
    name: str
    #: building, running, succeeded, failed, cancelled or expired.
    state: str
    policy: str
    #: How often it was started or continued.
    round: int
    total: int
    done: int
    failed: int
    skipped: int
    started: int
    #: Milliseconds since 1970; None: not yet.
    started_ms: int | None
    finished_ms: int | None
    expires_ms: int | None
    unique: str

    @property
    def share(self) -> float:
        """Return which share of the steps has ended, from 0 to 1."""
        return min(1.0, (self.done + self.failed + self.skipped) / self.total) if self.total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A step of a run."""

    number: int
    #: The task's path.
    task: str
    queue: str
    #: One of STEP_STATES.
    state: str
    #: The id of its latest message; "" before it was started.
    message_id: str
    #: Milliseconds since 1970; None: not yet.
    began_ms: int | None
    ended_ms: int | None
    #: The steps that it waits for, without joins between them.
    after: Sequence[int] = ()


def runs(*, before_ms: int | None = None, state: str = "") -> list[RunView]:
    """Return up to PAGE runs, the latest first.

    Args:
        before_ms: only runs that were started before this time, in ms since 1970.
        state: only runs in this state; "" for all.

    Raises:
        StoreError: Redis cannot be reached.
    """
    found: list[RunView] = []
    for home in open_homes():
        for ids in home.latest(before_ms=before_ms):
            views = [_run(run_id, fields) for run_id, fields in zip(ids, home.read_many(ids), strict=True) if fields]
            found += [view for view in views if not state or view.state == state]
            if len(found) >= PAGE:
                break
    return sorted(found, key=lambda view: view.started_ms or 0, reverse=True)[:PAGE]


def run(run_id: str) -> RunView | None:
    """Return a run, or None if there is none with this id.

    Raises:
        StoreError: Redis cannot be reached.
    """
    fields = open_home(run_id).read(run_id)
    return _run(run_id, fields) if fields else None


def steps(run_id: str) -> list[StepLine]:
    """Return the steps of a run by number, up to MAX_STEPS.

    Raises:
        StoreError: Redis cannot be reached.
    """
    home = open_home(run_id)
    states: dict[int, StepState] = {}
    cursor = -1
    while cursor and len(states) < MAX_STEPS:
        cursor, batch = home.records(run_id, max(cursor, 0))
        states |= {state.number: state for state in batch}
    numbers = sorted(states)[:MAX_STEPS]
    before = _before(home, run_id)
    bodies = home.bodies(run_id, numbers) if numbers else []
    return [
        _step(run_id, states[number], body, before.get(number, ()))
        for number, body in zip(numbers, bodies, strict=True)
    ]


def _before(home: WorkflowHome, run_id: str) -> dict[int, list[int]]:
    """Return what each step waits for. A join is replaced by what it waits for."""
    before: dict[int, list[int]] = {}
    for number, text in home.followers(run_id).items():
        for other in _numbers(text)[:MAX_STEPS]:
            before.setdefault(other, []).append(number)
    joins = home.joins(run_id, sorted({each for others in before.values() for each in others}))
    return {
        number: sorted({each for other in others for each in (before.get(other, []) if other in joins else [other])})
        for number, others in before.items()
    }


def _numbers(text: str) -> list[int]:
    try:
        return numbers_of(text)
    except ValueError:
        return []


def _step(run_id: str, state: StepState, body: bytes, after: Sequence[int]) -> StepLine:
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
        after=after,
    )


def _run(run_id: str, fields: Mapping[str, bytes]) -> RunView:
    def text(name: str) -> str:
        return line(fields.get(name, b"").decode(errors="replace"))

    def number(name: str) -> int:
        return whole(fields.get(name), 10**9) or 0

    started_ms = whole(fields.get("started"), LAST_MS)
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
        started_ms=started_ms,
        finished_ms=whole(fields.get("finished"), LAST_MS),
        expires_ms=None if started_ms is None else started_ms + (whole(fields.get("lasts"), LAST_MS) or 0),
        unique=text("unique"),
    )
