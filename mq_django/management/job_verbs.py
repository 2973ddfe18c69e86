"""The verb `jobs` of the command `mq`: show, watch and cancel background jobs."""

import argparse
import time
from collections.abc import Mapping
from typing import Any, get_args

from django.core.management.base import CommandError

from mq_django import inspector
from mq_django.inspector import jobs
from mq_django.inspector.jobs import BackgroundJob, Kind
from mq_django.inspector.queues import require_queue
from mq_django.management.as_dict import moment_text
from mq_django.management.tables import away_text, table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult, add_parser

#: Seconds between two looks at a job.
INTERVAL = 1.0

#: The columns of the table.
_SHOWN = ("queue", "kind", "what", "state", "scanned", "total", "done", "rate", "left_s", "who", "since", "filter")


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
            "kind",
            nargs="?",
            choices=get_args(Kind),
            default="dead",
            help="The job on dead letters, which is the default, or the one on other messages.",
        )


def run(options: Options, terminal: Terminal) -> VerbResult:
    """Do an action; without one, list."""
    match options.get("action") or "list":
        case "watch":
            return _watch(options["queue"], options["kind"], terminal)
        case "cancel":
            if not jobs.cancel(options["queue"], options["kind"]):
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
        found = [(queue, job) for kind in get_args(Kind) if (job := jobs.look(queue, kind))]
        away = {}
    rows: list[dict[str, Any]] = [_row(name, job) for name, job in found]
    lines = table([_cells(row) for row in rows]) or ["No jobs."]
    rows += ({"queue": name, "error": error} for name, error in away.items())
    return VerbResult(rows, lines, away_text(away))


def _watch(queue: str, kind: Kind, terminal: Terminal) -> VerbResult:
    try:
        while (found := jobs.look(queue, kind)) is not None and found.state == "running":
            paced = jobs.pace_of(found)
            left = f", about {paced[1] // 1000} s left" if paced else ""
            done = f"{found.done} {_done(found)}, {found.looked} of {found.total} scanned{left}"
            terminal.progress(found.looked, found.total, done)
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        terminal.report("The job continues.")
    terminal.end_progress()
    found = jobs.look(queue, kind)
    if found is None:
        raise CommandError("There is no job.")
    line = f"{found.state}: {found.done} {_done(found)}, {found.looked} of {found.total} scanned"
    line += "".join(f", {count} {word}" for word in ("missing", "refused") if (count := getattr(found, word)))
    return VerbResult(_row(queue, found), [line], code=1 if found.state == "cancelled" else 0)


def _done(job: BackgroundJob) -> str:
    return {"redrive": "redriven", "move": "moved", "delete": "deleted"}[job.what]


def _row(queue: str, job: BackgroundJob) -> dict[str, Any]:
    paced = jobs.pace_of(job)
    return {
        "queue": queue,
        "kind": "messages" if job.place else "dead",
        "what": job.what,
        "target": job.target or None,
        "place": job.place or "dead",
        "state": job.state,
        "filter": job.criteria.as_dict(),
        "scanned": job.looked,
        "total": job.total,
        "done": job.done,
        "missing": job.missing,
        "refused": job.refused,
        "rate": job.rate or None,
        "left_s": None if paced is None else paced[1] // 1000,
        "who": job.who,
        "since": moment_text(job.since_ms),
        "changed": moment_text(job.changed_ms),
        "worker": job.worker or None,
    }


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    terms = " ".join(f"{name}={value}" for name, value in row["filter"].items())
    what = f"move to {row['target']}" if row["target"] else row["what"]
    return {**{name: row[name] for name in _SHOWN}, "what": what, "filter": terms or None}


VERBS = (Verb("jobs", "Show background jobs; watch and cancel them.", run, add_actions),)
