"""The verbs `redrive`, `move`, `purge` and `jobs` of the command `mq`: what changes messages, and its background jobs.

An action on all messages that match runs as a job in this process: the admin shows it, and consumers continue it if
this process is killed.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from django.core.management.base import CommandError

from mq_django import inspect
from mq_django.conf import get_config
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.ids import token
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.texts import escape
from mq_django.errors import DecodeError
from mq_django.inspector import dead_letters, jobs
from mq_django.inspector.actions import Outcome
from mq_django.inspector.jobs import ActionableState, BackgroundJob
from mq_django.inspector.message_lists import find_message
from mq_django.inspector.message_views import MessageView, moment_text
from mq_django.inspector.queues import quick_stats
from mq_django.management.message_verbs import SELECTING, filter_of, scans
from mq_django.management.terminal import Options, Terminal, VerbResult, columns, confirm, table, user_name, with_away

REMOVABLE = ("ready", "delayed", "unhandled", "parked", "dead")

#: Seconds between two looks at a job.
INTERVAL = 1.0

#: Matching messages that a preview counts at most, and shows.
MAX_COUNTED, EXAMPLES = 10_000, 5

#: Names without a handler that a preview shows.
MAX_NAMES = 5

#: Shown by `--errors` in place of a name for the dead letters of all further groups.
OTHERS = "(others)"

#: The past tense of each action.
DONE = {"redrive": "redriven", "move": "moved", "delete": "deleted"}

#: The columns of the table of jobs.
_SHOWN = ("queue", "messages", "what", "state", "scanned", "total", "done", "rate", "left_s", "who", "since", "filter")


def redrive(options: Options, terminal: Terminal) -> VerbResult:
    """Put dead letters back into their queue or into another one, or show their errors."""
    queue, ids, target = options["queue"], options["ids"], options["target"]
    if options["errors"]:
        return _errors(queue)
    if bool(ids) == options["all"]:
        raise CommandError("Give the ids of messages, --all, or --errors.", returncode=2)
    if options["data"] is not None:
        return _resubmit(options)
    if target is not None:
        dead_letters.check_target(queue, target)
    if options["all"]:
        return _all(options, terminal, "redrive" if target is None else "move", "dead")
    if target is None:
        return result_of(inspect.redrive(queue, ids), "redriven", ids=len(ids))
    return result_of(inspect.move(queue, target, ids), "moved", ids=len(ids))


def move(options: Options, terminal: Terminal) -> VerbResult:
    """Put messages into another queue: some by their ids, or all in a state that match."""
    queue, ids, state, target = options["queue"], options["ids"], options["state"], options["target"]
    if bool(ids) == (state is not None):
        raise CommandError("Give the ids of messages, or --state.", returncode=2)
    if target is None:
        raise CommandError("Name the other queue: --to.", returncode=2)
    dead_letters.check_target(queue, target)
    if ids:
        return result_of(jobs.move_messages(queue, target, ids), "moved", ids=len(ids))
    return _all(options, terminal, "move", state)


def _errors(queue: str) -> VerbResult:
    """Show the counts of dead letters by name and error."""
    rows = [
        {
            "count": found.count,
            "name": found.group.name if found.group else None,
            "error": found.group.error if found.group else None,
            "last": moment_text(found.buried_ms),
        }
        for found in inspect.dead_groups(queue)
    ]
    shown = [{**row, "name": OTHERS} if row["name"] is None else row for row in rows]
    return VerbResult(rows, table(shown) or ["No dead letters."])


def _resubmit(options: Options) -> VerbResult:
    """Put a dead letter back with other data, as a new message."""
    if len(options["ids"]) != 1 or options["target"] is not None:
        raise CommandError("--data needs the id of one message, and no --to.", returncode=2)
    queue, (message_id,), written = options["queue"], options["ids"], options["data"]
    try:
        made = inspect.resubmit(queue, message_id, sys.stdin.read() if written == "-" else written)
    except DecodeError as error:
        raise CommandError(f"The data is {error}", returncode=2) from error
    if made is None:
        raise CommandError(f"Queue {escape(queue)} has no dead letter {escape(message_id)} that can be resubmitted.")
    return VerbResult({"id": made}, [made])


def purge(options: Options, terminal: Terminal) -> VerbResult:
    """Delete messages: some by their ids, or all in a state that match."""
    queue, ids, state = options["queue"], options["ids"], options["state"]
    if ids:
        return _purge_ids(options)
    if state is None:
        raise CommandError("Give the ids of messages, or --state.", returncode=2)
    if not options["dry_run"]:
        terms = _filter_text(options)
        which = f" that match {terms}" if terms else ""
        confirm(options, f"This deletes {_counted(queue, state, filter_of(options, state=state))}{escape(which)}.")
    return _all(options, terminal, "delete", state)


def _purge_ids(options: Options) -> VerbResult:
    """Cancel messages by their ids, or delete dead letters."""
    queue, ids, is_dead = options["queue"], options["ids"], options["state"] == "dead"
    if options["state"] is not None and not is_dead:
        raise CommandError("With ids, --state is dead, or is not given.", returncode=2)
    if any(options[name] not in (None, False) for name in (*SELECTING, "rate", "background", "dry_run")):
        raise CommandError("A filter, --rate, --background and --dry-run are for --state without ids.", returncode=2)
    confirm(options, f"This deletes {len(ids)} {'dead letters' if is_dead else 'messages'}.")
    if is_dead:
        return result_of(inspect.delete(queue, ids), "deleted", ids=len(ids))
    # Before it is asked to stop, after which it is soon gone. All are asked, also what is moving and was not found.
    gone = [each for each in ids if options["running"] and _is_gone(queue, each)]
    outcome = inspect.cancel(queue, ids, running=options["running"], force=options["force"])
    if outcome.error is None:
        outcome.asked, outcome.missing = max(0, outcome.asked - len(gone)), outcome.missing + len(gone)
    result = result_of(outcome, "deleted", ids=len(ids))
    if not options["running"]:
        return result
    lines = [f"{line}, {outcome.asked} asked to stop" for line in result.lines]
    return VerbResult({**result.found, "asked": outcome.asked}, lines, result.error)


def _is_gone(queue: str, message_id: str) -> bool:
    """Return whether a message neither waits, is ready nor runs; False for a unique key, which cancelling looks up."""
    if message_id.startswith(UNIQUE_PREFIX):
        return False
    found = [find_message(part.name, message_id) for part in get_config().queue(queue).partitions_for_id(message_id)]
    return not any(view is not None and view.state not in ("dead", "handled") for view in found)


def _filter_text(options: Options) -> str:
    """Return the options that select messages as they were given; empty without one."""
    given = {name: options[name] for name in SELECTING if options[name] is not None}
    texts = {name: " ".join(map(repr, value)) if name == "group" else value for name, value in given.items()}
    return " and ".join(f"--{name.replace('_', '-')} {text}" for name, text in texts.items())


def _all(options: Options, terminal: Terminal, what: jobs.What, state: ActionableState) -> VerbResult:
    """Do something with all messages that match, or show what would be done."""
    if options["dry_run"]:
        return _preview(options, terminal, what, state)
    queue, done, criteria = options["queue"], DONE[what], filter_of(options, state=state)
    counted = _counted(queue, state, criteria) if options["background"] else ""
    rate, target = options["rate"] or 0, options.get("target") or ""
    begun = inspect.start_job(queue, what, state, who=user_name(), criteria=criteria, rate=rate, target=target)
    if begun.word == "busy":
        raise CommandError(f"Another job is running on the {_named(state)} of this queue.")
    if begun.word == "nothing":
        return result_of(Outcome(), done)
    if options["background"]:
        which = "" if criteria == NOTHING else " that match"
        return VerbResult({"begun": True, "total": begun.total}, [f"started, {counted}{which}"])
    worker = f"mq-{token()}"
    try:
        _follow(queue, state, terminal, lambda: min(1.0, work_here(queue, worker, state)), begun.token)
    except KeyboardInterrupt:
        inspect.cancel_job(queue, state)
        terminal.report("cancelled")
    terminal.end_progress()
    found = jobs.get_job(queue, state, token=begun.token)
    outcome = Outcome() if found is None else Outcome(done=found.done, missing=found.missing, refused=found.refused)
    return result_of(outcome, done)


def _counted(queue: str, state: ActionableState, criteria: Filter) -> str:
    """Return how many messages a job would change, as far as they were counted."""
    found = jobs.count_matching(queue, state, criteria)
    at_least = "more than " if found.count == jobs.MAX_COUNTED else "at least "
    return f"{at_least if found.is_more else ''}{found.count} {_named(state)}"


def _follow(queue: str, state: ActionableState, terminal: Terminal, work: Callable[[], float], begun: str = "") -> None:
    """Show how far a job is until it ends. `work` returns the seconds until it is called again."""
    pause = 0.0
    while (found := jobs.get_job(queue, state, token=begun)) is not None and found.state == "running":
        paced = jobs.pace_of(found)
        left = f", about {paced[1] // 1000} s left" if paced else ""
        terminal.progress(found.looked, found.total, f"{_so_far(found)}{left}")
        time.sleep(pause)
        pause = work()


def _so_far(job: BackgroundJob) -> str:
    return f"{job.done} {DONE[job.order.what]}, {job.looked} of {job.total} scanned"


def _preview(options: Options, terminal: Terminal, what: jobs.What, state: ActionableState) -> VerbResult:
    """Return how many messages match, and the first of them; of a move also those without a handler."""
    queue, where = options["queue"], filter_of(options, state=state)
    total, examples, counted, more, scanned = quick_stats(queue).own(state), list[MessageView](), 0, False, 0
    names = set[str]()
    for found in scans(queue, state, where, with_log=False):
        examples += found.rows[: EXAMPLES - len(examples)]
        counted, scanned, more = counted + len(found.rows), scanned + found.scanned, bool(found.after)
        names.update(view.name for view in found.rows)
        if where == NOTHING or counted >= MAX_COUNTED:
            break
        # Messages that came after they were counted are scanned, too.
        total = max(total, scanned)
        terminal.progress(scanned, total, f"{counted} found, {scanned} of {total} scanned")
    terminal.end_progress()
    if where == NOTHING:
        counted, more = total, False
    rows = [
        {"id": view.id, "name": view.name, **({"error": view.error} if state == "dead" else {})} for view in examples
    ]
    target = options.get("target")
    done = DONE[what] + (f" to {escape(target)}" if target else "")
    matching = f"{counted}{' or more' if more else ''} {_named(state)}"
    lines = [f"{matching} would be {done}{'. The first:' if 0 < len(rows) < counted else '.'}", *table(rows)]
    row = {"dry_run": True, "count": counted, "at_least": more, "examples": rows}
    if not target:
        return VerbResult(row, lines)
    if where == NOTHING and state == "dead":
        # Only the first messages were read.
        names |= {group.group.name for group in inspect.dead_groups(queue) if group.group}
    unhandled = dead_letters.without_handler(target, names - {""})
    shown = ", ".join(map(escape, unhandled[:MAX_NAMES])) + (", …" if len(unhandled) > MAX_NAMES else "")
    note = f"Queue {escape(target)} has no handler for {shown}: such messages wait until it has one."
    return VerbResult({**row, "without_handler": unhandled}, lines, note=note if unhandled else "")


def _named(state: str) -> str:
    return "dead letters" if state == "dead" else f"{state} messages"


def result_of(outcome: Outcome, done: str, *, ids: int = 0) -> VerbResult:
    """Return the counts of an action as a result; it is an error if some of the given ids were not found."""
    counts = {done: outcome.done, "missing": outcome.missing, "refused": outcome.refused}
    line = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == done)
    error = f"{outcome.missing} of {ids} ids were not found." if ids and outcome.missing else ""
    return VerbResult(counts, [line], str(outcome.error) if outcome.error is not None else error)


# The verb `jobs`.


def jobs_list(options: Options, _: Terminal) -> VerbResult:
    """Show the running jobs of all queues, or also the last ones of a queue."""
    queue, away = options["queue"], dict[str, str]()
    if queue is None:
        views = inspect.queues(minutes=0)
        found = [(part.name, job) for view in views for part in view.each_part for job in part.jobs]
        away = {name: error for view in views for name, error in view.errors.items()}
    else:
        found = [(queue, job) for job in inspect.jobs(queue).values()]
    rows = [_row(name, job) for name, job in found]
    return with_away(rows, table([_cells(row) for row in rows]), "No jobs.", away)


def jobs_watch(options: Options, terminal: Terminal) -> VerbResult:
    """Follow the job of a queue until it ends. Ctrl-C does not cancel it."""
    queue, state = options["queue"], options["state"]
    try:
        _follow(queue, state, terminal, lambda: INTERVAL)
    except KeyboardInterrupt:
        terminal.report("The job continues.")
    terminal.end_progress()
    found = jobs.get_job(queue, state)
    if found is None:
        raise CommandError("There is no job.")
    more = "".join(f", {count} {word}" for word in ("missing", "refused") if (count := getattr(found, word)))
    code = 1 if found.state == "cancelled" else 0
    return VerbResult(_row(queue, found), [f"{found.state}: {_so_far(found)}{more}"], code=code)


def jobs_cancel(options: Options, _: Terminal) -> VerbResult:
    """Cancel the running job of a queue. Its effects stay."""
    if not inspect.cancel_job(options["queue"], options["state"]):
        raise CommandError("No job is running.")
    return VerbResult({"cancelled": True}, ["cancelled"])


def _row(queue: str, job: BackgroundJob) -> dict[str, Any]:
    paced = jobs.pace_of(job)
    return {
        "queue": queue,
        **columns(job.order, "messages what target? who"),
        "filter": job.order.criteria.as_dict(),
        **columns(job, "state scanned=looked total done missing refused rate? since_ms changed_ms worker?"),
        "left_s": None if paced is None else paced[1] // 1000,
    }


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    terms = " ".join(f"{name}={value}" for name, value in row["filter"].items())
    what = f"move to {row['target']}" if row["target"] else row["what"]
    return {**{name: row[name] for name in _SHOWN}, "what": what, "filter": terms or None}
