"""Looks at the settings and the code of the project, which are those of this process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.core import checks

from mq_django.conf import Config, QueueConfig, get_config, read
from mq_django.core.limits import Rate
from mq_django.core.schedules import Every
from mq_django.inspector.doctor.findings import DoctorFinding, Level, Look, mib, named
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.inspector.outbox_views import OutboxProblem, outbox_databases, outboxes, publish_database, uses_outbox
from mq_django.inspector.problem_sentences import outbox_sentence
from mq_django.registry import names, schedules

#: The tag of our system checks.
TAG = "mq_django"

#: The code of the finding for a system check. All others are reported as `OTHER`.
_CODES = {"W001": "D204", "W002": "D205", "W003": "D401", "W004": "D401", "W006": "D402", "W005": "D403"}
OTHER = "D203"
#: Checks of what is right in development.
_NOTES = {"D205"}


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


def _of_checks(code: str, project: ProjectFacts) -> Iterator[DoctorFinding]:
    for message in project.checked:
        if _CODES.get(str(message.id).rpartition(".")[2], OTHER) == code:
            level: Level = "error" if message.is_serious() else "note" if code in _NOTES else "warning"
            yield DoctorFinding(
                code=code,
                level=level,
                seen=message.msg,
                advice=message.hint or "docs/settings.md lists all settings.",
            )


def _of_unused(project: ProjectFacts) -> Iterator[DoctorFinding]:
    found = [queue.name for queue in project.config.queues.values() if queue.consume and not any(names(queue.name))]
    if found:
        yield DoctorFinding(
            code="D404",
            level="warning",
            seen=f"Nothing in this project handles messages of {named(found)}: there is no handler and no task.",
            advice="Write a handler in an installed app, or name its module in MQ_DJANGO['MODULES']. If other programs "
            "handle the queue, set its CONSUME to False.",
        )


PROJECT_LOOKS: tuple[Look[ProjectFacts], ...] = (
    Look("system checks", (OTHER,), partial(_of_checks, OTHER)),
    Look("caches on the same database", ("D204",), partial(_of_checks, "D204")),
    Look("embedded server", ("D205",), partial(_of_checks, "D205")),
    Look("handlers of queues that are not configured", ("D401",), partial(_of_checks, "D401")),
    Look("handlers that never run", ("D402",), partial(_of_checks, "D402")),
    Look("tasks that run where they are enqueued", ("D403",), partial(_of_checks, "D403")),
    Look("queues without handlers", ("D404",), _of_unused),
)

# Looks at settings that contradict each other, or the memory of their server.

HOUR = 3600


def _of_limits(project: ProjectFacts) -> Iterator[DoctorFinding]:
    """Report limits of keys that the limit of their queue makes useless."""
    found = [f"{option} of {queue.name}" for queue in project.config.queues.values() for option in _useless(queue)]
    if found:
        yield DoctorFinding(
            code="D206",
            level="note",
            seen=f'The limit "key" is never reached before the limit "queue": {named(found)}.',
            advice='Lower the limit "key", or remove it: a limit of keys costs more than one of the queue alone.',
        )


def _useless(queue: QueueConfig) -> Iterator[str]:
    limits = queue.limits
    if limits.concurrency and limits.key_concurrency and limits.key_concurrency >= limits.concurrency:
        yield "CONCURRENCY"
    rate, of_key = limits.rate, limits.key_rate
    if rate and of_key and of_key.count >= rate.count and of_key.window <= rate.window:
        yield "RATE_LIMIT"


def _of_ticks(project: ProjectFacts) -> Iterator[DoctorFinding]:
    """Report schedules that publish more than the rate limit of their queue lets through."""
    for queue in project.config.queues.values():
        allowed = _an_hour(queue.rate_limit.queue)
        published = _ticks_an_hour(project, queue.name)
        # Nearly the same rate is the same rate, with an error of rounding.
        if allowed is not None and published > allowed * 1.001:
            yield DoctorFinding(
                code="D207",
                level="warning",
                seen=f"Schedules publish {published:,.0f} messages an hour to {queue.name}, and its RATE_LIMIT allows "
                f"{allowed:,.0f}: messages wait longer and longer.",
                advice="Raise RATE_LIMIT, let the schedules fire less often, or give their messages an expiry "
                '("expires").',
            )


def _an_hour(rate: Rate | None) -> float | None:
    return None if rate is None else rate.count * HOUR / rate.window.total_seconds()


def _ticks_an_hour(project: ProjectFacts, queue: str) -> float:
    """Return the messages an hour of schedules with `every` that go on for ever, and wait until they are handled."""
    every = {entry.id: entry for entry in (*project.config.schedules.values(), *schedules().values())}
    periods = [
        entry.when.period
        for entry in every.values()
        if entry.queue == queue and isinstance(entry.when, Every) and entry.expires is None and entry.ends is None
    ]
    return sum(HOUR / period.total_seconds() for period in periods)


def _of_retention(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report logs that may use more memory than there is."""
    limits = {name: get_config().topic(name).retention_bytes for name in server.topics}
    known = {name: limit for name, limit in limits.items() if limit}
    _, memory, name = server.memory
    if memory and sum(known.values()) >= memory:
        yield DoctorFinding(
            code="D208",
            level="warning",
            seen=f"RETENTION_BYTES lets the logs of topics grow to {mib(sum(known.values()))} ({named(known)}), and "
            f"Redis has {mib(memory)} of {name}: it may be full before they are trimmed.",
            advice="Lower RETENTION_BYTES, or give Redis more memory (CONFIG SET maxmemory).",
            where=server.where,
        )


CONTRADICTION_LOOKS: tuple[Look[ProjectFacts], ...] = (
    Look("limits of keys", ("D206",), _of_limits),
    Look("schedules and rate limits", ("D207",), _of_ticks),
)
RETENTION_LOOKS: tuple[Look[ServerFacts], ...] = (Look("retention and memory", ("D208",), _of_retention),)

# Looks at the outboxes of the databases.

#: A problem -> its code, its level, and what to do about it.
_ABOUT: dict[OutboxProblem, tuple[str, Level, str]] = {
    "unreadable": ("D602", "error", "Start the database, or correct DATABASES."),
    "stopped": (
        "D603",
        "error",
        "Messages stay in the database until this is decided: see docs/transactions.md.",
    ),
    "late": (
        "D604",
        "warning",
        "A relay runs in each runconsumer without --no-relay, and as mq outbox --relay. Its log says what fails.",
    ),
    "set aside": (
        "D605",
        "warning",
        "Look at them with manage.py mq outbox --set-aside or in the admin, then retry or discard them.",
    ),
}


def _of_tables(project: ProjectFacts) -> Iterator[DoctorFinding]:
    """Report a database without the tables of the outbox, where messages are published. Others may have them."""
    if not project.is_readable or not uses_outbox():
        return
    alias = publish_database()
    if alias not in outbox_databases():
        yield DoctorFinding(
            code="D601",
            level="error",
            seen=f"A queue or topic has OUTBOX, and database {alias} has no table of it: publishing raises NoOutbox.",
            advice=f"Run manage.py migrate mq_django --database {alias}, and let DATABASE_ROUTERS allow that.",
            where=f"database {alias}",
        )


def _of_problem(what: OutboxProblem, project: ProjectFacts) -> Iterator[DoctorFinding]:
    """Report the outboxes with a problem."""
    code, level, advice = _ABOUT[what]
    for view in outboxes() if project.is_readable and uses_outbox() else ():
        if what in view.problems(project.config.thresholds):
            name = view.destination or view.database
            seen = f"{name} {outbox_sentence(view, what)}"
            yield DoctorFinding(code=code, level=level, seen=seen, advice=advice, where=f"database {view.database}")


OUTBOX_LOOKS: tuple[Look[ProjectFacts], ...] = (
    Look("tables of the outbox", ("D601",), _of_tables),
    *(Look(f"outbox: {what}", (_ABOUT[what][0],), partial(_of_problem, what)) for what in _ABOUT),
)
