"""The verb `jobs` of the command `mq`: show, watch and cancel background jobs."""

import argparse
import time
from collections.abc import Mapping
from typing import Any, get_args

from django.core.management.base import CommandError

from mq_django import inspector
from mq_django.consumers.supervisor.redriver import work_here
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.ids import token
from mq_django.inspector import jobs
from mq_django.inspector.actions import Outcome
from mq_django.inspector.jobs import BackgroundJob, JobPlace
from mq_django.inspector.message_views import MessageView, moment_text
from mq_django.inspector.queues import quick_stats, require_queue
from mq_django.management.argument_types import whole
from mq_django.management.listing import filter_of, scans
from mq_django.management.terminal import Options, Terminal, Verb, VerbResult, add_parser, away_text, table, user_name

#: Seconds between two looks at a job.
INTERVAL = 1.0

#: The columns of the table.
_SHOWN = ("queue", "place", "what", "state", "scanned", "total", "done", "rate", "left_s", "who", "since", "filter")


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb."""
    actions = parser.add_subparsers(dest="action", metavar="list|watch|cancel")
    listing = add_parser(actions, "list", "Show the running jobs of all queues, or also the last ones of a queue.")
    listing.add_argument("--queue", help="Show the running jobs of this queue, or its last ones of the past week.")
    watching = add_parser(actions, "watch", "Follow the job of a queue until it ends. Ctrl-C does not cancel it.")
    cancelling = add_parser(actions, "cancel", "Cancel the running job of a queue. What it has done stays.")
    for each in (watching, cancelling):
        each.add_argument("queue", help="A queue, or the group of a topic as topic:group.")
        each.add_argument(
            "place",
            nargs="?",
            choices=get_args(JobPlace),
            default="dead",
            help="The messages that the job is on. Default: dead.",
        )


def run(options: Options, terminal: Terminal) -> VerbResult:
    """Do an action; without one, list."""
    match options.get("action") or "list":
        case "watch":
            return _watch(options["queue"], options["place"], terminal)
        case "cancel":
            if not jobs.cancel(options["queue"], options["place"]):
                raise CommandError("No job is running.")
            return VerbResult({"cancelled": True}, ["cancelled"])
        case _:
            return _list(options.get("queue"))


def _list(queue: str | None) -> VerbResult:
    if queue is None:
        views = inspector.overview(minutes=0)
        found = [(part.name, job) for view in views for part in view.each_part for job in part.jobs]
        away = {name: error for view in views for name, error in view.errors.items()}
    else:
        require_queue(queue)
        found = [(queue, job) for job in jobs.look_all(queue).values()]
        away = {}
    rows: list[dict[str, Any]] = [_row(name, job) for name, job in found]
    lines = table([_cells(row) for row in rows]) or ["No jobs."]
    rows += ({"queue": name, "error": error} for name, error in away.items())
    return VerbResult(rows, lines, away_text(away))


def _watch(queue: str, place: JobPlace, terminal: Terminal) -> VerbResult:
    try:
        while (found := jobs.look(queue, place)) is not None and found.state == "running":
            paced = jobs.pace_of(found)
            left = f", about {paced[1] // 1000} s left" if paced else ""
            done = f"{found.done} {_done(found)}, {found.looked} of {found.total} scanned{left}"
            terminal.progress(found.looked, found.total, done)
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        terminal.report("The job continues.")
    terminal.end_progress()
    found = jobs.look(queue, place)
    if found is None:
        raise CommandError("There is no job.")
    line = f"{found.state}: {found.done} {_done(found)}, {found.looked} of {found.total} scanned"
    line += "".join(f", {count} {word}" for word in ("missing", "refused") if (count := getattr(found, word)))
    return VerbResult(_row(queue, found), [line], code=1 if found.state == "cancelled" else 0)


def _done(job: BackgroundJob) -> str:
    return {"redrive": "redriven", "move": "moved", "delete": "deleted"}[job.order.what]


def _row(queue: str, job: BackgroundJob) -> dict[str, Any]:
    paced = jobs.pace_of(job)
    return {
        "queue": queue,
        "place": job.order.place,
        "what": job.order.what,
        "target": job.order.target or None,
        "state": job.state,
        "filter": job.order.criteria.as_dict(),
        "scanned": job.looked,
        "total": job.total,
        "done": job.done,
        "missing": job.missing,
        "refused": job.refused,
        "rate": job.rate or None,
        "left_s": None if paced is None else paced[1] // 1000,
        "who": job.order.who,
        "since": moment_text(job.since_ms),
        "changed": moment_text(job.changed_ms),
        "worker": job.worker or None,
    }


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    terms = " ".join(f"{name}={value}" for name, value in row["filter"].items())
    what = f"move to {row['target']}" if row["target"] else row["what"]
    return {**{name: row[name] for name in _SHOWN}, "what": what, "filter": terms or None}


VERBS = (Verb("jobs", "Show background jobs; watch and cancel them.", run, add_actions),)

# Actions on all messages that match: their preview, and the background job that does them.

#: Matching messages that a preview counts at most, and shows.
MAX_COUNTED, EXAMPLES = 10_000, 5


def add_job_options(parser: argparse.ArgumentParser, *, when: str = "") -> None:
    """Add the options of an action on all messages that match. `when` says which other option they need."""
    start = f"{when}: " if when else ""

    def text(what: str) -> str:
        return start + (what if when else what.capitalize())

    show = "show only how many messages match, and the first of them."
    parser.add_argument("--dry-run", action="store_true", help=text(show))
    parser.add_argument("--rate", type=whole, help=text("limit in messages per second."))
    background = "run as a background job of the consumers."
    parser.add_argument("--background", action="store_true", help=text(background))


def preview(options: Options, terminal: Terminal, done: str, *, names: set[str] | None = None) -> VerbResult:
    """Return how many messages match, and the first of them. Adds the names of those that were read to `names`."""
    queue, place, where = options["queue"], _place(options), filter_of(options)
    total, examples, counted, more = quick_stats(queue).own(place), list[MessageView](), 0, False
    names = set() if names is None else names
    scanned = 0
    for found in scans(queue, place, where, with_log=False):
        examples += found.rows[: EXAMPLES - len(examples)]
        counted, scanned = counted + len(found.rows), scanned + found.scanned
        more = bool(found.after)
        names.update(view.name for view in found.rows)
        if where == NOTHING or counted >= MAX_COUNTED:
            break
        terminal.progress(scanned, total, f"{counted} found, {scanned} of {total} scanned")
    terminal.end_progress()
    if where == NOTHING:
        counted, more = total, False
    rows = [_example(view) for view in examples]
    what = f"{counted}{' or more' if more else ''} {_named(place)}"
    lines = [f"{what} would be {done}{'. The first:' if 0 < len(rows) < counted else '.'}", *table(rows)]
    return VerbResult({"dry_run": True, "count": counted, "at_least": more, "examples": rows}, lines)


def _example(view: MessageView) -> dict[str, str]:
    error = {"error": view.error} if view.state == "dead" else {}
    return {"id": view.id, "name": view.name, **error}


def _place(options: Options) -> JobPlace:
    found: JobPlace = options.get("place") or "dead"
    return found


def _named(place: str) -> str:
    return "dead letters" if place == "dead" else f"{place} messages"


def run_job(options: Options, terminal: Terminal, what: jobs.What, done: str) -> VerbResult:
    """Run a job: the admin shows it, and consumers continue it if this process is killed."""
    queue, who, place = options["queue"], f"{user_name()}, mq", _place(options)
    criteria, rate = filter_of(options), options["rate"] or 0
    target = options.get("target") or ""
    begun = jobs.begin(queue, what, place, who=who, criteria=criteria, rate=rate, target=target)
    if begun.word == "busy":
        raise CommandError(f"Another job is running on the {_named(place)} of this queue.")
    if begun.word == "nothing":
        return result_of(Outcome(), done)
    if options["background"]:
        return _started(begun.total, place, criteria)
    return _work(queue, terminal, begun.token, done, place)


def _started(total: int, place: str, criteria: Filter) -> VerbResult:
    named = f"{total} {_named(place)}"
    which = named if criteria == NOTHING else f"those of {named} that match"
    return VerbResult({"begun": True, "total": total}, [f"started, {which}"])


def _work(queue: str, terminal: Terminal, begun: str, done: str, place: JobPlace) -> VerbResult:
    worker, pause = f"mq-{token()}", 0.0
    try:
        while (found := jobs.look(queue, place, token=begun)) is not None and found.state == "running":
            line = f"{found.done} {done}, {found.looked} of {found.total} scanned"
            terminal.progress(found.looked, found.total, line)
            time.sleep(pause)
            pause = min(1.0, work_here(queue, worker, place))
    except KeyboardInterrupt:
        jobs.cancel(queue, place)
        terminal.report("cancelled")
    terminal.end_progress()
    found = jobs.look(queue, place, token=begun)
    if found is None:
        return result_of(Outcome(), done)
    return result_of(Outcome(done=found.done, missing=found.missing, refused=found.refused), done)


def result_of(outcome: Outcome, done: str, *, ids: int = 0) -> VerbResult:
    """Return the counts of an action as a result; it is an error if some of the given ids were not found."""
    counts = {done: outcome.done, "missing": outcome.missing, "refused": outcome.refused}
    line = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == done)
    error = f"{outcome.missing} of {ids} ids were not found." if ids and outcome.missing else ""
    return VerbResult(counts, [line], str(outcome.error) if outcome.error is not None else error)
