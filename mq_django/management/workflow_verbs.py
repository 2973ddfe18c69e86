"""The verb `workflows` of the command `mq`: runs of workflows, what can be done with them, and their check."""

from functools import partial
from typing import Any

from django.core.management.base import CommandError

from mq_django import inspect
from mq_django.core.flow_graph import RunProblem, RunProblemKind
from mq_django.core.texts import escape, repr_of
from mq_django.inspector import workflow_runs
from mq_django.inspector.open_steps import OpenStep, explain_steps
from mq_django.inspector.run_check import check_runs
from mq_django.inspector.stream_reader import Scanned
from mq_django.inspector.workflow_runs import RUN_STATES, STEP_STATES, RunView, StepLine
from mq_django.management.message_verbs import first
from mq_django.management.terminal import Options, Terminal, VerbResult, columns, confirm, table
from mq_django.producers import workflow_run
from mq_django.producers.workflow_run import NO_RUN, REPAIRS, repair
from mq_django.stores.activity import recorded

#: Runs, and steps of one run, that are shown without --limit.
RUNS, STEPS = 20, 100
#: Seconds for which `--check` searches queues.
SECONDS = 60.0

#: What is shown of a run.
_FACTS = (
    "run=id name state policy round steps=total done failed skipped running=started started=started_ms finished_ms "
    "expires_ms unique?"
)

#: What is wrong with a run, as a sentence.
PROBLEMS: dict[RunProblemKind, str] = {
    "message": "The message of a started step is in no place of its queue.",
    "dead": "The message of a started step is a dead letter.",
    "start": "A step or callback may start, and is not published.",
    "queue": "The queue of a started step is not in the settings.",
    "stopped": "The run has nothing left to do, and has not ended.",
}


#: Consumers repair by themselves, too.
_repair = recorded("repair run", queue="", about=lambda given: [given["problem"].run])(repair)


def workflows(options: Options, _: Terminal) -> VerbResult:
    """Show runs of workflows and their steps, act on a run, or check runs."""
    if options["check"]:
        return _check(options["run"] or "", repairs=options["repair"])
    acts = options["cancel"] or options["retry"] or options["skip"] is not None
    if options["run"] is None:
        if acts:
            raise CommandError("Give the id of a run.", returncode=2)
        return _list(options)
    view = _view(options["run"])
    return _act(view, options) if acts else _show(view, options)


def _view(run_id: str) -> RunView:
    view = inspect.run(run_id)
    if view is None:
        raise CommandError(f"{NO_RUN.format(escape(run_id)[:100])}.")
    return view


def _state(options: Options, known: tuple[str, ...]) -> str:
    state: str = options["state"] or ""
    if state and state not in known:
        raise CommandError(f"--state is one of {', '.join(known)}, not {repr_of(escape(state))}", returncode=2)
    return state


def _list(options: Options) -> VerbResult:
    read = partial(inspect.runs, state=_state(options, RUN_STATES), name=options["name"])
    rows = first(read, limit=options["limit"] or RUNS).rows
    shown = [
        {
            **columns(view, "run=id name state"),
            "done": f"{view.done}/{view.total}",
            **columns(view, "failed running=started started=started_ms"),
        }
        for view in rows
    ]
    return VerbResult([columns(view, _FACTS) for view in rows], table(shown) or ["No runs."])


def _show(view: RunView, options: Options) -> VerbResult:
    state = _state(options, tuple(STEP_STATES.values()))

    def read(*, after: str, limit: int) -> Scanned[StepLine]:
        return inspect.steps(view, state=state, after=int(after or 0), limit=limit)

    found = first(read, limit=options["limit"] or STEPS)
    reasons = explain_steps(view, found.rows, dead=workflow_runs.dead_letters_of(found.rows))
    rows = [_step(step, reasons.get(step.number)) for step in found.rows]
    # Text with spaces is last, and data is only in JSON.
    shown = [{name: value for name, value in row.items() if name != "argument"} for row in rows]
    facts = columns(view, _FACTS)
    if failed := workflow_runs.failure(view.id):
        facts["failure"] = f"step {failed[0]}: {failed[1]}"
    width = max(map(len, facts))
    lines = [f"{name:<{width}}  {escape(str(value))}" for name, value in facts.items() if value is not None]
    more = [f"The first {len(rows)} are shown; --limit shows up to 500."] if found.after else []
    return VerbResult({**facts, "list": rows}, [*lines, "", *(table(shown) or ["No steps."]), *more])


def _step(step: StepLine, reason: OpenStep | None) -> dict[str, Any]:
    seconds = None if step.took is None else round(step.took, 3)
    row = columns(step, "step=number task queue state started=began_ms ended_ms")
    about = {"argument": step.argument or None, "why": reason.why if reason else None}
    return {**row, "seconds": seconds, "message": step.message_id or None, **about}


def _act(view: RunView, options: Options) -> VerbResult:
    what = "cancels" if options["cancel"] else "retries" if options["retry"] else f"skips step {options['skip']} of"
    confirm(options, f"This {what} run {view.id} of {view.name}.")
    if options["cancel"]:
        done = workflow_run.cancel(view.id)
        return VerbResult({"cancelled": done}, ["cancelled" if done else f"was already {escape(view.state)}"])
    if options["retry"]:
        if view.state in ("building", "succeeded"):
            raise CommandError(f"Run {view.id} is {view.state}: there is nothing to retry.")
        retried = workflow_run.retry(view.id)
        error = f"{retried.refused} steps cannot be published" if retried.refused else ""
        return VerbResult({"steps": retried.steps}, [f"{retried.steps} failed steps run again"], error)
    if workflow_run.skip(view.id, options["skip"]):
        return VerbResult({"skipped": True}, ["skipped"])
    return VerbResult({"skipped": False}, [], f"Step {options['skip']} of run {view.id} has not failed")


def _check(run_id: str, *, repairs: bool) -> VerbResult:
    if run_id:
        _view(run_id)
    check = check_runs(run_id, seconds=SECONDS)
    rows = [_problem(problem, is_repaired=repairs and _repair(problem)) for problem in check.problems]
    left = [row for row in rows if not row["repaired"]]
    shown = [{**row, "repaired": "yes" if row["repaired"] else "no"} for row in rows]
    lines = table(shown) or ["No problems found."]
    note = f"Looked at {check.runs} runs."
    if check.not_searched:
        note += f" Not searched to the end in {SECONDS:.0f} s: {', '.join(check.not_searched)}."
    if any(row["problem"] in REPAIRS for row in left) and not repairs:
        note += " Repair with --repair."
    found = {"runs": check.runs, "problems": rows, "not_searched": check.not_searched}
    return VerbResult(found, lines, code=1 if left or check.not_searched else 0, note=note)


def _problem(problem: RunProblem, *, is_repaired: bool) -> dict[str, Any]:
    row = columns(problem, "problem=kind run step? queue? message=message_id?")
    sentence = REPAIRS[problem.kind] if is_repaired else PROBLEMS[problem.kind]
    return {**row, "repaired": is_repaired, "sentence": sentence}
