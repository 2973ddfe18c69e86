"""The verb `workflows` of the command `mq`: runs of workflows, what can be done with them, and their check."""

import argparse
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.flow_graph import RunProblem, RunProblemKind
from mq_django.core.texts import escape, repr_of
from mq_django.inspector import workflow_runs
from mq_django.inspector.message_views import moment_text
from mq_django.inspector.run_check import check_runs
from mq_django.inspector.workflow_runs import RUN_STATES, STEP_STATES, RunView, StepLine
from mq_django.management.argument_types import count, page_size
from mq_django.management.terminal import Options, Terminal, Verb, VerbResult, table
from mq_django.producers import workflow_run
from mq_django.producers.workflow_run import REPAIRS, repair

#: Runs, and steps of one run, that are shown without --limit.
RUNS, STEPS = 20, 100
#: Seconds for which `--check` searches queues.
SECONDS = 60.0

#: What is wrong with a run, as a sentence.
PROBLEMS: dict[RunProblemKind, str] = {
    "message": "The message of a started step is in no place of its queue.",
    "dead": "The message of a started step is a dead letter.",
    "start": "A step or callback may start, and is not published.",
    "queue": "The queue of a started step is not in the settings.",
    "stopped": "The run has nothing left to do, and has not ended.",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("run", nargs="?", help="The id of a run, which is shown with its steps. Default: all runs.")
    parser.add_argument("--state", help="Only runs in this state; of a run, only steps in this state.")
    parser.add_argument("--name", default="", help="Only runs of workflows whose name contains this.")
    parser.add_argument(
        "--limit", type=page_size, help=f"Default: {RUNS} runs, or {STEPS} steps of a run. At most 500."
    )
    act = parser.add_mutually_exclusive_group()
    act.add_argument("--cancel", action="store_true", help="End the run: no further step starts.")
    act.add_argument(
        "--retry", action="store_true", help="Let the run continue that has ended. Failed steps run again."
    )
    act.add_argument(
        "--skip", type=count, metavar="STEP", help="Let the run continue as if this failed step had succeeded."
    )
    act.add_argument(
        "--check",
        action="store_true",
        help="Find steps whose messages were deleted or lost, starts that are not published, runs that do not go on.",
    )
    parser.add_argument("--repair", action="store_true", help="With --check: repair what was found.")
    parser.add_argument("--yes", action="store_true", help="Confirm --cancel, --retry or --skip without prompting.")


def workflows(options: Options, _: Terminal) -> VerbResult:
    """Show runs of workflows or one of them, act on one, or check them."""
    if options["repair"] and not options["check"]:
        raise CommandError("--repair needs --check.", returncode=2)
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
    view = workflow_runs.run(run_id)
    if view is None:
        raise CommandError(f"There is no run {escape(run_id)[:100]}: it has ended a week ago, or waits for a commit.")
    return view


def _state(options: Options, known: tuple[str, ...]) -> str:
    state: str = options["state"] or ""
    if state and state not in known:
        raise CommandError(f"--state is one of {', '.join(known)}, not {repr_of(escape(state))}", returncode=2)
    return state


def _list(options: Options) -> VerbResult:
    state, name, limit = _state(options, RUN_STATES), options["name"], options["limit"] or RUNS
    rows: list[RunView] = []
    after = ""
    while True:
        found = workflow_runs.look_at_runs(state=state, name=name, after=after, limit=limit - len(rows))
        rows, after = [*rows, *found.rows], found.after
        if len(rows) >= limit or not after:
            break
    shown = [
        {
            "run": view.id,
            "name": view.name,
            "state": view.state,
            "done": f"{view.done}/{view.total}",
            "failed": view.failed,
            "running": view.started,
            "started": moment_text(view.started_ms),
        }
        for view in rows
    ]
    return VerbResult([_as_dict(view) for view in rows], table(shown) or ["No runs."])


def _as_dict(view: RunView) -> dict[str, Any]:
    return {
        "run": view.id,
        "name": view.name,
        "state": view.state,
        "policy": view.policy,
        "round": view.round,
        "steps": view.total,
        "done": view.done,
        "failed": view.failed,
        "skipped": view.skipped,
        "running": view.started,
        "started": moment_text(view.started_ms),
        "finished": moment_text(view.finished_ms),
        "expires": moment_text(view.expires_ms),
        "unique": view.unique or None,
    }


def _show(view: RunView, options: Options) -> VerbResult:
    state, limit = _state(options, tuple(STEP_STATES.values())), options["limit"] or STEPS
    steps: list[StepLine] = []
    after = 0
    while True:
        found = workflow_runs.look_at_steps(view, state=state, after=after, limit=limit - len(steps))
        steps, after = [*steps, *found.rows], int(found.after or 0)
        if len(steps) >= limit or not after:
            break
    rows = [_step(step) for step in steps]
    facts: dict[str, Any] = _as_dict(view)
    if failed := workflow_runs.failure(view.id):
        facts["failure"] = f"step {failed[0]}: {failed[1]}"
    width = max(map(len, facts))
    lines = [f"{name:<{width}}  {escape(str(value))}" for name, value in facts.items() if value is not None]
    more = [f"The first {len(rows)} are shown; --limit shows up to 500."] if after else []
    return VerbResult({**facts, "list": rows}, [*lines, "", *(table(rows) or ["No steps."]), *more])


def _step(step: StepLine) -> dict[str, Any]:
    return {
        "step": step.number,
        "task": step.task,
        "queue": step.queue,
        "state": step.state,
        "started": moment_text(step.began_ms),
        "ended": moment_text(step.ended_ms),
        "seconds": None if step.took is None else round(step.took, 3),
        "message": step.message_id or None,
    }


def _act(view: RunView, options: Options) -> VerbResult:
    what = "cancels" if options["cancel"] else "retries" if options["retry"] else f"skips step {options['skip']} of"
    if not options["yes"]:
        raise CommandError(f"This {what} run {view.id} of {view.name}. Confirm with --yes.", returncode=2)
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
    rows = [_problem(problem, is_repaired=repairs and repair(problem)) for problem in check.problems]
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
    return {
        "problem": problem.kind,
        "run": problem.run,
        "step": problem.step or None,
        "queue": problem.queue or None,
        "message": problem.message_id or None,
        "repaired": is_repaired,
        "sentence": REPAIRS[problem.kind] if is_repaired else PROBLEMS[problem.kind],
    }


VERBS = (
    Verb("workflows", "Show runs of workflows and their steps, act on a run, or check runs.", workflows, add_options),
)
