"""Start background jobs for the command `mq`, and run them in its process."""

import time

from django.core.management.base import CommandError

from mq_django.consumers.supervisor.redriver import work_here
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.ids import token
from mq_django.inspector import jobs
from mq_django.inspector.actions import Outcome
from mq_django.management.terminal import Terminal
from mq_django.management.user_name import user_name
from mq_django.management.verb import Options, VerbResult
from mq_django.stores.background_jobs import BackgroundJobs, MessageJobs

#: Seconds between two progress lines of a long job.
PROGRESS = 2.0

KINDS_OF_JOBS: dict[jobs.Kind, type[BackgroundJobs]] = {"dead": BackgroundJobs, "messages": MessageJobs}


def given(options: Options) -> dict[str, str | int]:
    """Return the filter and the rate. An empty value, as of an unset shell variable, would select everything."""
    found = {option: options[option] for option in ("name", "error", "key", "rate") if options[option] is not None}
    for option, value in found.items():
        if not value:
            raise CommandError(f"--{option} is {value!r}: omit it, or give it a value.", returncode=2)
    return found


def run_job(
    options: Options,
    terminal: Terminal,
    what: jobs.What,
    criteria: Filter = NOTHING,
    *,
    rate: int = 0,
    background: bool = False,
) -> VerbResult:
    """Run a job: the admin shows it, and consumers continue it if this process is killed."""
    queue, done, who = options["queue"], "redriven" if what == "redrive" else "deleted", f"{user_name()}, mq"
    place = options.get("place", "dead")
    if place == "dead":
        begun = jobs.begin(queue, what, who=who, criteria=criteria, rate=rate)
    else:
        begun = jobs.begin_deleting(queue, place, who=who, criteria=criteria, rate=rate)
    if begun.word == "busy":
        others = "dead letters" if place == "dead" else "messages"
        raise CommandError(f"Another job is running on the {others} of this queue.")
    if begun.word == "nothing":
        return result_of(Outcome(), done)
    if background:
        named = f"{begun.total} {'dead letters' if place == 'dead' else f'{place} messages'}"
        which = named if criteria == NOTHING else f"those of {named} that match"
        return VerbResult({"begun": True, "total": begun.total}, [f"started, {which}"])
    return _work(queue, terminal, begun.total, done, "dead" if place == "dead" else "messages")


def _work(queue: str, terminal: Terminal, total: int, done: str, kind: jobs.Kind) -> VerbResult:
    worker = f"mq-{token()}"
    reported = time.monotonic()
    try:
        while (found := jobs.look(queue, kind)) is not None and found.state == "running":
            time.sleep(min(1.0, work_here(queue, worker, KINDS_OF_JOBS[kind])))
            if time.monotonic() - reported > PROGRESS:
                reported = time.monotonic()
                terminal.report(f"{found.done} {done}, {found.looked} of {total} scanned")
    except KeyboardInterrupt:
        jobs.cancel(queue, kind)
        terminal.report("cancelled")
    found = jobs.look(queue, kind)
    if found is None:
        return result_of(Outcome(), done)
    return result_of(Outcome(done=found.done, missing=found.missing, refused=found.refused), done)


def result_of(outcome: Outcome, done: str, *, ids: int = 0) -> VerbResult:
    """Return the counts of an action as a result; it is an error if some of the given ids were not found."""
    counts = {done: outcome.done, "missing": outcome.missing, "refused": outcome.refused}
    line = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == done)
    error = f"{outcome.missing} of {ids} ids were not found." if ids and outcome.missing else ""
    return VerbResult(counts, [line], str(outcome.error) if outcome.error is not None else error)
