"""What a history says about runs of workflows: which steps and callbacks ran, when, where, and what was done to them.

Beside the events of `tests.chaos.history`:

| what            | noted by             | tells |
|-|-|-|
| plan            | the operator, before | `plan` |
| run             | the operator, after  | `key` of the plan, `run_id` |
| run-unknown     | the operator         | `key` of a run whose start was not answered |
| step            | the task, first      | `id` of the message, `run` (key of the plan), `label`, `values`, `began` |
| step-ended      | the task, last       | the same, and `how` |
| callback        | the task             | `id`, `kind`, `run_id` |
| cancel, retry   | the operator         | `run_id` |
| redrive         | the operator         | `entries` |
| repair          | the operator         | `kind`, `run_id`, `message` |
| cancel-step     | the operator, before | `ids` of messages that are asked to be cancelled |
| purged, deleted | who deletes them     | `ids` |
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.deliveries import RESUMES
from tests.chaos.flows import Plan, plan_of
from tests.chaos.history import Event

#: Seconds between the return of a step and its settling, on a machine that others use, too.
UNSETTLED = 2.0


@dataclass(slots=True, kw_only=True)
class Execution:
    """One time that a step or a callback ran."""

    message: str
    pid: int
    began: float
    label: str = ""
    values: Sequence[int] = ()
    ended: float | None = None
    #: "returned", or the name of an exception; "" if its process did not live to tell.
    how: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault: it hit these processes between two moments."""

    began: float
    ended: float
    pids: frozenset[int]
    spares: bool
    #: The processes went on when it had ended.
    resumes: bool = False

    def precedes(self, execution: Execution) -> bool:
        """Return whether the process was stopped just before it began: it had taken the message before that."""
        at = execution.began
        return self.resumes and execution.pid in self.pids and self.began <= at <= self.ended + RESUMES

    def explains(self, execution: Execution) -> bool:
        """Return whether the execution may have been interrupted, or may not have been settled."""
        until = float("inf") if execution.ended is None else execution.ended + UNSETTLED
        return not self.spares and execution.pid in self.pids and self.began <= until and self.ended >= execution.began


@dataclass(slots=True)
class FlowHistory:
    """What a history says about runs of workflows."""

    plans: dict[str, Plan] = field(default_factory=dict)
    #: Key of the plan -> label -> executions.
    steps: dict[str, dict[str, list[Execution]]] = field(default_factory=dict)
    #: Id of the message -> executions.
    callbacks: dict[str, list[Execution]] = field(default_factory=dict)
    hits: list[Hit] = field(default_factory=list)
    #: Ids of messages that were purged, deleted by another program, or asked to be cancelled.
    removed: set[str] = field(default_factory=set)
    #: Keys of runs whose start was not answered.
    unknown: set[str] = field(default_factory=set)

    @property
    def executions(self) -> Iterator[Execution]:
        """Yield all executions of steps."""
        return (one for labels in self.steps.values() for group in labels.values() for one in group)


def read_history(events: Iterable[Event]) -> FlowHistory:
    """Return what events in order say about runs of workflows."""
    found = FlowHistory()
    events = list(events)
    healed = {str(event.told["fault"]): event.at for event in events if event.what == "healed"}
    last = {event.pid: event.at for event in events}
    open_steps: dict[tuple[str, float, int], Execution] = {}
    for event in events:
        told = event.told
        match event.what:
            case "plan":
                plan = plan_of(told["plan"])
                found.plans[plan.key] = plan
            case "run-unknown":
                found.unknown.add(str(told["key"]))
            case "step":
                execution = Execution(
                    message=event.id, pid=event.pid, began=event.at, label=str(told["label"]), values=told["values"]
                )
                open_steps[event.id, told["began"], event.pid] = execution
                found.steps.setdefault(told["run"], {}).setdefault(execution.label, []).append(execution)
            case "step-ended":
                execution = open_steps[event.id, told["began"], event.pid]
                execution.ended, execution.how = event.at, str(told["how"])
            case "callback":
                execution = Execution(
                    message=event.id, pid=event.pid, began=event.at, ended=event.at, how="returned", label=told["kind"]
                )
                found.callbacks.setdefault(event.id, []).append(execution)
            case "purged" | "cancel-step" | "deleted":
                found.removed.update(event.ids)
            case "fault":
                found.hits.append(_hit(event, healed, last))
    return found


def _hit(event: Event, healed: Mapping[str, float], last: Mapping[int, float]) -> Hit:
    told = event.told
    # Who notes its own end goes on for a moment.
    own = [last[pid] for pid in told["pids"] if str(told["kind"]).startswith("at-") and pid in last]
    ended = max(event.at, healed.get(str(told["fault"]), event.at), *own)
    resumes = told["kind"] == "stop-tree"
    return Hit(float(told["began"]), ended, frozenset(told["pids"]), bool(told.get("spares")), resumes)
