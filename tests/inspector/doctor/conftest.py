"""Servers with a configuration of their own, and what a look at a project finds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mq_django import __version__
from mq_django.conf import get_config
from mq_django.core.message_format import PROTOCOL
from mq_django.inspector.doctor.findings import DoctorFinding
from mq_django.inspector.doctor.report import CODES, examine_project
from mq_django.stores import open_members
from mq_django.transport.connections import open_transport
from mq_django.transport.private_server import PrivateServer, ServerBinary

#: The settings of a server that nothing is said about.
GOOD = {"appendonly": "yes"}

Found = Callable[..., list[DoctorFinding]]


@pytest.fixture
def server_with(mq_settings: Callable[..., Any]) -> Iterator[Callable[..., PrivateServer]]:
    """Start a server with these settings of redis.conf, besides those of a good one, and use it."""
    servers = []

    def start(*, binary: ServerBinary | None = None, **settings: str) -> PrivateServer:
        given = {name.replace("_", "-"): value for name, value in settings.items()}
        server = PrivateServer(tcp=True, binary=binary, settings=GOOD | given)
        servers.append(server.start())
        mq_settings(CONNECTION=server.url)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    """Return the findings whose codes start with this text. What other tests have declared is none of them."""
    monkeypatch.setattr("mq_django.checks.declared", list)

    def look(prefix: str) -> list[DoctorFinding]:
        return examine_project(codes={code for code in CODES if code.startswith(prefix)}).findings

    return look


def levels(findings: list[DoctorFinding]) -> list[tuple[str, str]]:
    return [(finding.code, finding.level) for finding in findings]


def announce(queue: str, supervisor: str = "s1", **described: object) -> None:
    """Make a consumer live, as a supervisor of this version with the settings of this process announces it."""
    config = get_config().queue(queue)
    visibility = round(config.visibility_timeout.total_seconds() * 1000)
    own = {"host": "web1", "version": __version__, "protocol": PROTOCOL, "visibility_ms": visibility, **described}
    process = {"host": own["host"], "version": own["version"], "threads": 8, "pid": described.get("pid")}
    open_members(config, open_transport("produce", config.connection)).beat(
        supervisor, own, {f"{supervisor}-c": process}
    )
