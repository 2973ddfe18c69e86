"""Take the looks, and put their findings into one report."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from mq_django.conf import get_config
from mq_django.errors import MQError, StoreError
from mq_django.inspector.doctor.checks import (
    KEY_CHECKS,
    PARTITION_CHECKS,
    PROJECT_CHECKS,
    QUEUE_CHECKS,
    Progress,
    key_facts,
    project_facts,
    queue_facts,
)
from mq_django.inspector.doctor.findings import LEVELS, NOT_CHECKED, DoctorCheck, DoctorFinding, Level
from mq_django.inspector.doctor.server_checks import SERVER_CHECKS, server_facts
from mq_django.transport.connections import get_clients
from mq_django.transport.sessions import within

#: The first digit of a code -> what the findings are about.
AREAS = {"1": "Servers", "2": "Settings and keys", "3": "Consumers", "4": "Code", "6": "Outbox"}

#: The finding that a server cannot be used. It needs no look: without a connection there is nothing to look at.
UNREACHABLE = "D100"

#: The looks that need a server.
_OF_SERVER = (*SERVER_CHECKS, *PARTITION_CHECKS)
_OF_SERVERS: tuple[DoctorCheck[Any], ...] = (*_OF_SERVER, *KEY_CHECKS, *QUEUE_CHECKS)

#: All codes of findings.
CODES = frozenset(check.code for check in (*PROJECT_CHECKS, *_OF_SERVERS)) | {UNREACHABLE}

#: Seconds for all round trips to one server, beside its own connections.
SECONDS = 60.0


@dataclass(slots=True)
class DoctorReport:
    """The findings, and what was looked at."""

    #: The codes that are asked for.
    codes: Collection[str]
    findings: list[DoctorFinding] = field(default_factory=list)
    #: Area -> the looks that were taken.
    checked: dict[str, list[str]] = field(default_factory=dict)

    def of_area(self, area: str) -> list[DoctorFinding]:
        """Return the findings of an area, the worst first."""
        found = [finding for finding in self.findings if AREAS[finding.code[1]] == area]
        return sorted(found, key=lambda finding: (LEVELS.index(finding.level), finding.code, finding.where))

    def count(self, level: Level) -> int:
        """Return the number of findings of a level."""
        return sum(finding.level == level for finding in self.findings)

    def add(self, finding: DoctorFinding) -> None:
        """Add a finding, if its code is asked for."""
        if finding.code in self.codes:
            self.findings.append(finding)

    def asks(self, checks: Sequence[DoctorCheck[Any]]) -> bool:
        """Return whether one of these looks can find what is asked for."""
        return any(check.code in self.codes for check in checks)

    def note(self, area: str, what: str) -> None:
        """Note that something was looked at, once for all servers."""
        if what not in self.checked.setdefault(area, []):
            self.checked[area].append(what)

    def take(self, checks: Sequence[DoctorCheck[Any]], facts: Any, *, where: str = "") -> None:
        """Take the looks that can find what is asked for. One that fails does not affect the others."""
        for check in checks:
            if check.code not in self.codes:
                continue
            try:
                self.findings += check.findings(facts, where)
            except StoreError as error:
                # A report of this code alone must not say that nothing was found.
                self.findings.append(_not_checked(check.what, error, where))
                continue
            if check.code != NOT_CHECKED:
                self.note(AREAS[check.code[1]], check.what)


def examine_project(*, codes: Collection[str] = CODES, progress: Progress = lambda _: None) -> DoctorReport:
    """Take the looks that can find one of these codes, and return their findings.

    Args:
        codes: the codes of findings.
        progress: called each second with the number of keys that were scanned.
    """
    report, project = DoctorReport(codes), project_facts()
    report.take(PROJECT_CHECKS, project)
    if project.is_readable and (UNREACHABLE in codes or report.asks(_OF_SERVERS)):
        with within(SECONDS):
            reached = [_examine_servers(report, connection, progress) for connection in get_config().connections()]
            if any(reached) and report.asks(QUEUE_CHECKS):
                _examine_queues(report)
    return report


def _examine_servers(report: DoctorReport, connection: str, progress: Progress) -> bool:
    """Look at the server of a connection, or each master of a cluster; return whether one can be used."""
    try:
        clients = get_clients("inspect", connection)
    except MQError as error:
        report.add(_unreachable(connection, error))
        return False
    return any([_examine_server(report, connection, client, progress) for client in clients])  # noqa: C419 - all


def _examine_server(report: DoctorReport, connection: str, client: redis.Redis, progress: Progress) -> bool:
    """Look at a server and its keys; return whether it can be used."""
    try:
        server = server_facts(connection, client)
    except MQError as error:
        report.add(_unreachable(connection, error))
        return False
    report.note(AREAS["1"], "connection")
    report.take(_OF_SERVER, server, where=server.where)
    if report.asks(KEY_CHECKS):
        try:
            report.take(KEY_CHECKS, key_facts(server, progress), where=server.where)
        except StoreError as error:
            report.add(_not_checked("keys", error, server.where))
    return True


def _examine_queues(report: DoctorReport) -> None:
    try:
        queues = queue_facts()
    except StoreError as error:
        report.add(_not_checked("queues and consumers", error, ""))
        return
    report.take(QUEUE_CHECKS, queues)


def _unreachable(connection: str, error: MQError) -> DoctorFinding:
    return DoctorFinding(
        code=UNREACHABLE,
        level="error",
        seen=f"{str(error).rstrip('.')}.",
        advice=f"Start the server, or correct {get_config().where_is(connection)}. Nothing else of this server was "
        "looked at.",
    )


def _not_checked(what: str, error: StoreError, where: str) -> DoctorFinding:
    return DoctorFinding(
        code=NOT_CHECKED,
        level="note",
        seen=f"Could not look at {what}: {str(error).partition(' (docs/')[0].rstrip('.')}.",
        advice="If a right is missing, run this command as a Redis user who has it.",
        where=where,
    )
