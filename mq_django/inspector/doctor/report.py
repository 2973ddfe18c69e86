"""Take the looks, and put their findings into one report."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from mq_django.conf import get_config
from mq_django.errors import MQError, StoreError
from mq_django.inspector.doctor.findings import LEVELS, NOT_LOOKED, DoctorFinding, Level, Look
from mq_django.inspector.doctor.key_looks import KEY_LOOKS, Progress, key_facts
from mq_django.inspector.doctor.project_looks import PROJECT_LOOKS, project_facts
from mq_django.inspector.doctor.queue_looks import PARTITION_LOOKS, QUEUE_LOOKS, queue_facts
from mq_django.inspector.doctor.server_looks import SERVER_LOOKS, server_facts
from mq_django.transport.connections import get_clients
from mq_django.transport.sessions import within

#: The first digit of a code -> what the findings are about.
AREAS = {"1": "Servers", "2": "Settings and keys", "3": "Consumers", "4": "Code", "6": "Outbox"}

#: The finding that a server cannot be used. It needs no look: without a connection there is nothing to look at.
UNREACHABLE = "D100"

#: The looks that need a server.
_OF_SERVER = (*SERVER_LOOKS, *PARTITION_LOOKS)
_OF_SERVERS: tuple[Look[Any], ...] = (*_OF_SERVER, *KEY_LOOKS, *QUEUE_LOOKS)

#: All codes of findings.
CODES = frozenset(look.code for look in (*PROJECT_LOOKS, *_OF_SERVERS)) | {UNREACHABLE}

#: Seconds for all round trips to one server, beside those of its own connections.
SECONDS = 60.0


@dataclass(slots=True)
class DoctorReport:
    """The findings, and what was looked at."""

    #: The codes that are asked for.
    codes: Collection[str]
    findings: list[DoctorFinding] = field(default_factory=list)
    #: Area -> the looks that were taken.
    looked_at: dict[str, list[str]] = field(default_factory=dict)

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

    def asks(self, looks: Sequence[Look[Any]]) -> bool:
        """Return whether one of these looks can find what is asked for."""
        return any(look.code in self.codes for look in looks)

    def note(self, area: str, what: str) -> None:
        """Note that something was looked at, once for all servers."""
        if what not in self.looked_at.setdefault(area, []):
            self.looked_at[area].append(what)

    def take(self, looks: Sequence[Look[Any]], facts: Any, *, where: str = "") -> None:
        """Take the looks that can find what is asked for. One that fails does not affect the others."""
        for look in looks:
            if look.code not in self.codes:
                continue
            try:
                self.findings += look.findings(facts, where)
            except StoreError as error:
                self.add(_not_looked(look.what, error, where))
                continue
            if look.code != NOT_LOOKED:
                self.note(AREAS[look.code[1]], look.what)


def look_at_project(*, codes: Collection[str] = CODES, progress: Progress = lambda _: None) -> DoctorReport:
    """Take the looks that can find one of these codes, and return their findings.

    Args:
        codes: the codes of findings.
        progress: called each second with the number of keys that were scanned.
    """
    report, project = DoctorReport(codes), project_facts()
    report.take(PROJECT_LOOKS, project)
    if project.is_readable and (UNREACHABLE in codes or report.asks(_OF_SERVERS)):
        with within(SECONDS):
            reached = [_look_at_servers(report, connection, progress) for connection in get_config().connections()]
            if any(reached) and report.asks(QUEUE_LOOKS):
                _look_at_queues(report)
    return report


def _look_at_servers(report: DoctorReport, connection: str, progress: Progress) -> bool:
    """Look at the server of a connection, or each master of a cluster; return whether one can be used."""
    try:
        clients = get_clients("inspect", connection)
    except MQError as error:
        report.add(_unreachable(connection, error))
        return False
    return any([_look_at_server(report, connection, client, progress) for client in clients])  # noqa: C419 - all


def _look_at_server(report: DoctorReport, connection: str, client: redis.Redis, progress: Progress) -> bool:
    """Look at a server and its keys; return whether it can be used."""
    try:
        server = server_facts(connection, client)
    except MQError as error:
        report.add(_unreachable(connection, error))
        return False
    report.note(AREAS["1"], "connection")
    report.take(_OF_SERVER, server, where=server.where)
    if report.asks(KEY_LOOKS):
        try:
            report.take(KEY_LOOKS, key_facts(server, progress), where=server.where)
        except StoreError as error:
            report.add(_not_looked("keys", error, server.where))
    return True


def _look_at_queues(report: DoctorReport) -> None:
    try:
        queues = queue_facts()
    except StoreError as error:
        report.add(_not_looked("queues and consumers", error, ""))
        return
    report.take(QUEUE_LOOKS, queues)


def _unreachable(connection: str, error: MQError) -> DoctorFinding:
    return DoctorFinding(
        code=UNREACHABLE,
        level="error",
        seen=f"{str(error).rstrip('.')}.",
        advice=f"Start the server, or correct {get_config().where_is(connection)}. Nothing else of this server was "
        "looked at.",
    )


def _not_looked(what: str, error: StoreError, where: str) -> DoctorFinding:
    return DoctorFinding(
        code=NOT_LOOKED,
        level="note",
        seen=f"Could not look at {what}: {str(error).partition(' (docs/')[0].rstrip('.')}.",
        advice="If a right is missing, run this command as a Redis user who has it.",
        where=where,
    )
