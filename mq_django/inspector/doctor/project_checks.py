"""Check the settings, the code and the outboxes of the project, as this process has them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.core import checks

from mq_django.conf import Config, read
from mq_django.core.schedules import Every
from mq_django.inspector.doctor.findings import DoctorCheck, Level, Seen, named
from mq_django.inspector.outbox_views import OutboxProblem, outbox_databases, outboxes, publish_database, uses_outbox
from mq_django.inspector.problem_sentences import outbox_sentence
from mq_django.registry import names, schedules

#: The tag of our system checks.
TAG = "mq_django"

#: System checks of what is right in development.
_NOTES = {"mq_django.W002"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFacts:
    """The settings, and what the system checks say about them and the code."""

    config: Config
    #: Whether the settings can be read.
    is_readable: bool
    checked: Sequence[checks.CheckMessage]


def project_facts() -> ProjectFacts:
    """Run the system checks of mq_django, also those for deployments."""
    config, problems = read(getattr(settings, "MQ_DJANGO", {}))
    checked = checks.run_checks(tags=[TAG], include_deployment_checks=True)
    return ProjectFacts(config=config, is_readable=not problems, checked=checked)


def _of_checks(project: ProjectFacts) -> Iterator[Seen]:
    for message in (message for message in project.checked if not message.is_silenced()):
        level: Level | None = "error" if message.is_serious() else "note" if message.id in _NOTES else None
        yield Seen(f"{message.msg} ({message.id})", level, message.hint or "docs/settings.md lists all settings.")


def _of_unused(project: ProjectFacts) -> Iterator[str]:
    queues = project.config.queues.values()
    found = [queue.name for queue in queues if not queue.external and not any(names(queue.name))]
    if found:
        yield f"Nothing in this project handles messages of {named(found)}: there is no handler and no task."


HOUR = 3600


def _of_ticks(project: ProjectFacts) -> Iterator[str]:
    """Report schedules that publish more than the rate limit of their queue lets through."""
    for queue in project.config.queues.values():
        rate = queue.rate_limit.queue
        allowed = None if rate is None else rate.count * HOUR / rate.window.total_seconds()
        published = _ticks_an_hour(project, queue.name)
        # Nearly the same rate is the same rate, with an error of rounding.
        if allowed is not None and published > allowed * 1.001:
            yield (
                f"Schedules publish {published:,.0f} messages an hour to {queue.name}, and its RATE_LIMIT allows "
                f"{allowed:,.0f}: messages wait longer and longer."
            )


def _ticks_an_hour(project: ProjectFacts, queue: str) -> float:
    """Return the messages an hour of schedules with `every` that go on for ever, and wait until they are handled."""
    every = {entry.id: entry for entry in (*project.config.schedules.values(), *schedules().values())}
    periods = [
        entry.when.period
        for entry in every.values()
        if entry.queue == queue and isinstance(entry.when, Every) and entry.expires is None and entry.ends is None
    ]
    return sum(HOUR / period.total_seconds() for period in periods)


def _of_tables(project: ProjectFacts) -> Iterator[Seen]:
    """Report a database without the tables of the outbox, where messages are published. Others may have them."""
    if not project.is_readable or not uses_outbox():
        return
    alias = publish_database()
    if alias not in outbox_databases():
        yield Seen(
            f"A queue or topic has OUTBOX, and database {alias} has no table of it: publishing raises NoOutbox.",
            advice=f"Run manage.py migrate mq_django --database {alias}, and let DATABASE_ROUTERS allow that.",
            where=f"database {alias}",
        )


def _of_outbox(what: OutboxProblem, project: ProjectFacts) -> Iterator[Seen]:
    """Report the outboxes with a problem."""
    for view in outboxes() if project.is_readable and uses_outbox() else ():
        if what in view.problems(project.config.thresholds):
            name = view.destination or view.database
            yield Seen(f"{name} {outbox_sentence(view, what)}", where=f"database {view.database}")


PROJECT_CHECKS: tuple[DoctorCheck[ProjectFacts], ...] = (
    DoctorCheck("D203", "warning", "system checks", _of_checks),
    DoctorCheck(
        *("D207", "warning", "schedules and rate limits", _of_ticks),
        'Raise RATE_LIMIT, let the schedules fire less often, or give their messages an expiry ("expires").',
    ),
    DoctorCheck(
        *("D404", "warning", "queues without handlers", _of_unused),
        "Write a handler in an installed app, or name its module in MQ_DJANGO['MODULES']. If other programs "
        "handle the queue, set its EXTERNAL to True.",
    ),
    DoctorCheck("D601", "error", "tables of the outbox", _of_tables),
    DoctorCheck(
        *("D602", "error", "outbox: unreadable", partial(_of_outbox, "unreadable")),
        "Start the database, or correct DATABASES.",
    ),
    DoctorCheck(
        *("D603", "error", "outbox: stopped", partial(_of_outbox, "stopped")),
        "Messages stay in the database until this is decided: see docs/transactions.md.",
    ),
    DoctorCheck(
        *("D604", "warning", "outbox: late", partial(_of_outbox, "late")),
        "A relay runs in each runconsumer without --no-relay, and as mq outbox --relay. Its log says what fails.",
    ),
    DoctorCheck(
        *("D605", "warning", "outbox: set aside", partial(_of_outbox, "set aside")),
        "Look at them with manage.py mq outbox --set-aside or in the admin, then retry or discard them.",
    ),
)
