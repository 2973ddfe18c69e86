"""Looks at the outboxes of the databases."""

from collections.abc import Iterator
from functools import partial

from mq_django.inspector.doctor.code_looks import ProjectFacts
from mq_django.inspector.doctor.findings import DoctorFinding, Level, Look
from mq_django.inspector.outbox_sentences import outbox_sentence
from mq_django.inspector.outbox_views import OutboxProblem, outbox_databases, outboxes, publish_database, uses_outbox

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
        "A relay runs in each runconsumer without --no-relay, and as manage.py mq relay. Its log says what fails.",
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
