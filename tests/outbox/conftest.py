"""An outbox in each kind of database, and relays that a test runs step by step."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from mq_django.models import OutboxIdentity, OutboxMessage, OutboxState
from tests.databases import database_servers

TABLES = (OutboxMessage, OutboxState, OutboxIdentity)


def _add(alias: str, options: dict[str, Any]) -> str:
    """Add a database to those that Django knows, with our tables."""
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: options})[alias]
    call_command("migrate", "mq_django", database=alias, verbosity=0)
    return alias


def _remove(alias: str) -> None:
    connections[alias].close()
    del connections.settings[alias]


@pytest.fixture(scope="session")
def sqlite_alias(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[str]:
    name = str(tmp_path_factory.mktemp("outbox") / "outbox.db")
    with django_db_blocker.unblock():
        yield _add("outbox_sqlite", {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": {"timeout": 20}})
        _remove("outbox_sqlite")


@pytest.fixture(scope="session")
def postgres_alias(django_db_blocker: Any) -> Iterator[str]:
    with database_servers.postgresql() as options, django_db_blocker.unblock():
        yield _add("outbox_postgres", options)
        _remove("outbox_postgres")


@pytest.fixture(scope="session")
def mariadb_alias(django_db_blocker: Any) -> Iterator[str]:
    with database_servers.mariadb() as options, django_db_blocker.unblock():
        yield _add("outbox_mariadb", options)
        _remove("outbox_mariadb")


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
