"""Decide from a history, and from what is left of workflows, whether what is promised about them was kept.

Pure and offline, like `tests.chaos.checker`. The invariants:

W1  each run that has begun ends, and as its plan says: `done` and the other counts are those of its steps
W2  a step runs again only after it has failed, was cancelled or purged, or when a fault hit the process that ran it
W3  a step starts only after those that it waits for have returned, and gets their values
W4  each message of a step or a callback is published once
W5  when a run has ended, its callbacks of this round are published, and in no round others than belong together
W6  at rest nothing is left to be published, changed or passed on, and a check finds nothing
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.checker import Verdict, Violation, violations_of
from tests.chaos.flow_history import Execution, FlowHistory, read_history
from tests.chaos.flow_places import EndedRun, FlowRest
from tests.chaos.flows import Plan
from tests.chaos.history import Event

STEP_NAMES = ("step:tests.chaos.tasks.work", "step:tests.chaos.tasks.work_once")
CALLBACK_NAMES = {kind: f"tests.chaos.tasks.tell_{kind}" for kind in ("success", "failure", "finish")}
#: The state of a run -> the callback that belongs to it, beside that of the finish.
KINDS = {"succeeded": "success", "failed": "failure", "expired": "failure"}
#: The fate of a run -> how it may end.
ENDS: Mapping[str, Sequence[str]] = {
    "succeed": ("succeeded",),
    "resume": ("succeeded",),
    "cancel": ("cancelled", "succeeded"),
    "fail": ("failed",),
}


@dataclass(frozen=True, kw_only=True)
class FlowEnding:
    """How the runs of workflows have ended."""

    rest: FlowRest
    #: Whether the operator has seen all of them end in time.
    is_ended: bool = True
    #: Seconds from the last start until nothing was left.
    seconds: float = 0.0
    #: Sentences about supervisors that ended by themselves.
    given_up: Sequence[str] = ()


def check_flows(events: Iterable[Event], ending: FlowEnding) -> Verdict:
    """Return the verdict on runs of workflows, from the events in order and from their end."""
    told, rest = read_history(events), ending.rest
    verdict = Verdict(
        messages=sum(1 for _ in told.executions),
        faults=len(told.hits),
        runs=len(_begun(rest)),
        recoveries=[ending.seconds],
    )
    for judge in (_ends, _repeats, _orders, _publishing, _callbacks, _left):
        verdict.violations += judge(told, ending, verdict)
    return verdict


def _begun(rest: FlowRest) -> list[EndedRun]:
    return [run for run in rest.runs if run.state != "building"]


def _ends(told: FlowHistory, ending: FlowEnding, verdict: Verdict) -> Iterator[Violation]:
    """W1: each run has ended as it must."""
    runs = _begun(ending.rest)
    names = {run.name for run in runs}
    lost = [key for key in told.plans if key not in names and key not in told.unknown]
    hanging = [_of(run) for run in runs if run.state == "running" or run.flying]
    wrong = [_of(run) for run in runs if run.state != "running" and run.state not in ENDS[told.plans[run.name].fate]]
    uncounted = [f"{_of(run)}: {why}" for run in runs if (why := _miscounted(run, told.plans[run.name]))]
    verdict.lost = len(lost)
    yield from violations_of("W1", lost, "runs are lost")
    yield from violations_of("W1", hanging, "runs hang")
    yield from violations_of("W1", wrong, "runs have not ended as they must")
    yield from violations_of("W1", uncounted, "runs have wrong counts")
    if not ending.is_ended:
        yield Violation("W1", f"not all runs have ended within {ending.seconds:.0f} s")


def _of(run: EndedRun) -> str:
    return f"{run.name} ({run.id}, {run.state})"


def _miscounted(run: EndedRun, plan: Plan) -> str:
    """Return what is wrong with the counts of a run that has ended, or ""."""
    steps = len(plan.steps)
    records = run.records
    counts = f"{run.done} done, {run.failed} failed, {run.skipped} skipped, {run.flying} started of {run.total}"
    if run.state == "succeeded":
        return "" if (run.done, run.total) == (steps, steps) and not (run.failed or run.skipped) else counts
    if run.total > steps or run.done + run.failed + run.skipped > run.total:
        return counts
    if run.failed != records.get("F", 0):
        return f"{counts}, and {records.get('F', 0)} records say failed"
    if run.state != "failed" or run.policy != "continue":
        return ""
    # All others have ended, but for steps that a failed one would have added.
    doomed, not_added = plan.doomed(), {step.label for step in plan.steps if step.added_by in plan.doomed()}
    expected = (steps - len(not_added), steps - len(doomed))
    return "" if (run.total, run.done) == expected and run.failed + run.skipped == run.total - run.done else counts


def _repeats(told: FlowHistory, _: FlowEnding, verdict: Verdict) -> Iterator[Violation]:
    """W2: each repetition has a reason."""
    groups = {f"{key}.{label}": group for key, labels in told.steps.items() for label, group in labels.items()}
    groups.update(told.callbacks)
    verdict.duplicates = sum(max(0, sum(one.how == "returned" for one in group) - 1) for group in groups.values())
    again = [
        name for name, group in groups.items() if any(not _may_repeat(told, one) for one in _repeated(told, group))
    ]
    verdict.duplicates_without_fault = len(again)
    yield from violations_of("W2", again, "steps and callbacks ran again without a reason")


def _repeated(told: FlowHistory, group: Sequence[Execution]) -> Sequence[Execution]:
    """Return the executions after which there was another one, without those of processes that had been stopped."""
    fresh = [one for one in group if not any(hit.precedes(one) for hit in told.hits)]
    return sorted(fresh, key=lambda one: one.began)[:-1]


def _may_repeat(told: FlowHistory, one: Execution) -> bool:
    if one.how not in ("returned", ""):
        return True
    return one.message in told.removed or any(hit.explains(one) for hit in told.hits)


def _orders(told: FlowHistory, _: FlowEnding, __: Verdict) -> Iterator[Violation]:
    """W3: steps start after those that they wait for, with their values."""
    early, wrong, unplanned = [], [], []
    for key, labels in told.steps.items():
        plan = told.plans[key]
        waits, values, inputs = plan.waits(), plan.values(), {step.label: step.inputs for step in plan.steps}
        returned = {label: _first_return(group) for label, group in labels.items()}
        for label, group in labels.items():
            if label not in waits:
                unplanned.append(f"{key}.{label}")
                continue
            ready = max((returned.get(before, float("inf")) for before in waits[label]), default=0.0)
            early += [f"{key}.{label}" for one in group if one.began < ready]
            expected = [values[before] for before in inputs[label]]
            wrong += [f"{key}.{label}" for one in group if list(one.values) != expected]
    yield from violations_of("W3", early, "steps started before those that they wait for had returned")
    yield from violations_of("W3", wrong, "steps got wrong values")
    yield from violations_of("W3", unplanned, "steps were in no plan")


def _first_return(group: Sequence[Execution]) -> float:
    return min((one.ended for one in group if one.how == "returned" and one.ended is not None), default=float("inf"))


def _known_ids(told: FlowHistory, rest: FlowRest) -> set[str]:
    """Return the ids of all messages of steps and callbacks that were published for certain."""
    ran = {one.message for one in told.executions}
    return {*rest.claimed, *ran, *told.callbacks, *told.removed}


def _publishing(told: FlowHistory, ending: FlowEnding, _: Verdict) -> Iterator[Violation]:
    """W4: as many messages were published as there are ids."""
    ids = _known_ids(told, ending.rest)
    published = ending.rest.published
    steps = {found for found in ids if found.startswith("w:")}
    counted = sum(published.get(name, 0) for name in STEP_NAMES)
    if counted != len(steps):
        yield Violation("W4", f"Redis counted {counted} published steps, and {len(steps)} ids are known")
    for kind, name in CALLBACK_NAMES.items():
        known = len([found for found in ids if found.startswith("w-") and found.split(".")[1] == kind])
        if published.get(name, 0) != known:
            yield Violation(
                "W4", f"Redis counted {published.get(name, 0)} callbacks on {kind}, and {known} ids are known"
            )


def _callbacks(told: FlowHistory, ending: FlowEnding, _: Verdict) -> Iterator[Violation]:
    """W5: one set of callbacks a round, and that of the last one."""
    rounds: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    ids = [found for found in _known_ids(told, ending.rest) if found.startswith("w-")]
    for found in ids:
        run_id, kind, of_round = found.removeprefix("w-").split(".")
        rounds[run_id][int(of_round)].add(kind)
    mixed = [
        f"{run_id}.{of_round}"
        for run_id, each in rounds.items()
        for of_round, kinds in each.items()
        if "finish" not in kinds or {"success", "failure"} <= kinds
    ]
    missing = [_of(run) for run in _begun(ending.rest) if not _has_last(run, rounds[run.id])]
    known = {run.id: run.round for run in ending.rest.runs}
    later = [f"{run_id}.{max(each)}" for run_id, each in rounds.items() if each and max(each) > known.get(run_id, 0)]
    unheard = [found for found in ids if not {found} & {*told.callbacks, *told.removed, *ending.rest.dead}]
    yield from violations_of("W5", mixed, "rounds have callbacks that do not belong together")
    yield from violations_of("W5", missing, "runs have ended without their callbacks")
    yield from violations_of("W5", later, "callbacks are of rounds that have not been")
    yield from violations_of("W5", unheard, "callbacks were published and never ran")


def _has_last(run: EndedRun, rounds: Mapping[int, set[str]]) -> bool:
    """Return whether a run that has ended has the callbacks of its last round, and no other ones."""
    if run.state == "running":
        return True
    return rounds.get(run.round, set()) == {"finish", *filter(None, [KINDS.get(run.state)])}


def _left(told: FlowHistory, ending: FlowEnding, verdict: Verdict) -> Iterator[Violation]:
    """W6: nothing is left."""
    rest = ending.rest
    numbers = {"starts": rest.starts, "busy": rest.busy, "alive": rest.alive, "queues": rest.queued}
    for place, number in numbers.items():
        if number:
            yield Violation("W6", f"{number} entries are left in {place}")
    verdict.leaked = sum(numbers.values()) + len(rest.notes)
    yield from violations_of("W6", rest.notes, "notes about steps are left")
    yield from violations_of("W6", rest.problems, "problems are found by a check")
    yield from violations_of(
        "W6", [_of(run) for run in rest.runs if run.stays and run.state != "running"], "runs never expire"
    )
    for sentence in ending.given_up:
        yield Violation("W6", sentence)
