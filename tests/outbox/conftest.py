"""An outbox in each kind of database, and relays that a test runs step by step."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from mq_django.models import OutboxIdentity, OutboxMessage, OutboxState
from tests.databases.fixtures import Databases

TABLES = (OutboxMessage, OutboxState, OutboxIdentity)


@pytest.fixture
def sqlite_alias(databases: Databases, django_db_blocker: Any) -> Iterator[str]:
    with django_db_blocker.unblock(), databases.added("outbox_sqlite", "sqlite") as alias:
        yield alias


@pytest.fixture
def postgres_alias(databases: Databases, django_db_blocker: Any) -> Iterator[str]:
    with django_db_blocker.unblock(), databases.added("outbox_postgres", "postgresql") as alias:
        yield alias


@pytest.fixture
def mariadb_alias(databases: Databases, django_db_blocker: Any) -> Iterator[str]:
    with django_db_blocker.unblock(), databases.added("outbox_mariadb", "mariadb") as alias:
        yield alias


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def alias(request: pytest.FixtureRequest, django_db_blocker: Any) -> Iterator[str]:
    """The alias of a database with an empty outbox."""
    found: str = request.getfixturevalue(f"{request.param}_alias")
    with django_db_blocker.unblock():
        yield found
        for table in TABLES:
            table.objects.using(found).all().delete()
        connections[found].close()


@pytest.fixture
def sqlite(sqlite_alias: str, django_db_blocker: Any) -> Iterator[str]:
    """As `alias`, for what does not depend on the database."""
    with django_db_blocker.unblock():
        yield sqlite_alias
        for table in TABLES:
            table.objects.using(sqlite_alias).all().delete()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notify no relays: the test runs them."""
    monkeypatch.setattr("mq_django.outbox.insertion.notify", lambda destination: None)
