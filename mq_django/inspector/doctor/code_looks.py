"""Looks at the settings and the code of the project, which are those of this process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.core import checks

from mq_django.conf import Config, read
from mq_django.inspector.doctor.findings import DoctorFinding, Level, Look, named
from mq_django.registry import names

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
