"""The verb `activity` of the command `mq`: who did what to queues, and when."""

from functools import partial
from typing import Any

from mq_django import inspect
from mq_django.inspector.action_log import jobs_of_actions
from mq_django.inspector.jobs import BackgroundJob
from mq_django.inspector.message_views import moment_text
from mq_django.management.message_verbs import first
from mq_django.management.terminal import Options, Terminal, VerbResult, columns, table
from mq_django.stores.activity import Action


def activity(options: Options, _: Terminal) -> VerbResult:
    """Show who did what to queues and when, the newest first."""
    since, until = options["since"], options["until"]
    read = partial(
        inspect.actions,
        queue=options["queue"] or "",
        who=options["who"],
        source=options["source"] or "",
        verbs=[options["what"]] if options["what"] else (),
        since_ms=since and since.ms,
        until_ms=until and until.ms,
    )
    found = first(read, after=options["after"] or "", limit=options["limit"])
    jobs = jobs_of_actions(found.rows)
    rows = [(each, jobs.get(each.job) if each.verb != "finish job" else None) for each in found.rows]
    note = f"There are more: --after {found.after}" if found.after and rows else ""
    lines = table([_cells(*row) for row in rows]) or ["None."]
    return VerbResult([_row(*row) for row in rows], lines, note=note)


def _row(found: Action, job: BackgroundJob | None) -> dict[str, Any]:
    ended = None if job is None else {**columns(job, "state done missing refused")}
    return {
        "at": moment_text(found.ms),
        **columns(found, "id who source verb"),
        "queues": list(found.queues),
        "more_queues": found.more,
        "about": list(found.about),
        "filter": dict(found.where),
        **columns(found, "done result? target? reason? job? error?"),
        "job_result": ended,
    }


def _cells(found: Action, job: BackgroundJob | None) -> dict[str, Any]:
    more = [f"and {found.more} more"] if found.more else []
    about = [*found.about, *([f"to {found.target}"] if found.target else [])]
    about += [f"{name}={value}" for name, value in found.where.items()]
    done = str(found.done) if job is None else f"{job.done} of {found.done}, {job.state}"
    error = f"interrupted: {found.error}" if found.error else ""
    return {
        "at": moment_text(found.ms),
        **columns(found, "who source verb"),
        "queues": [*found.queues, *more] or None,
        "about": about or None,
        "result": ", ".join(filter(None, (done, found.result, error))),
        **columns(found, "reason?"),
    }
