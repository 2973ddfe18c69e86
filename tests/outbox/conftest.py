"""An outbox in each kind of database, and relays that a test runs step by step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mq_django.models import OutboxIdentity, OutboxMessage, OutboxState
from tests.databases.fixtures import Databases

TABLES = (OutboxMessage, OutboxState, OutboxIdentity)


#: For what differs between databases: the statements of a relay, and how they lock. All others use SQLite.
on_each_database = pytest.mark.parametrize("alias", ["sqlite", "postgresql", "mariadb"], indirect=True)


@contextmanager
def outbox(databases: Databases, kind: str) -> Iterator[str]:
    """Yield the alias of a database, and leave its outbox empty."""
    with databases.added(f"outbox_{kind}", kind) as found:
        yield found
        for table in TABLES:
            table.objects.using(found).all().delete()


@pytest.fixture
def alias(request: pytest.FixtureRequest, databases: Databases, django_db_blocker: Any) -> Iterator[str]:
    """The alias of a database with an empty outbox."""
    with django_db_blocker.unblock(), outbox(databases, getattr(request, "param", "sqlite")) as found:
        yield found


@pytest.fixture
def sqlite(databases: Databases, django_db_blocker: Any) -> Iterator[str]:
    """As `alias`, for what does not depend on the database."""
    with django_db_blocker.unblock(), outbox(databases, "sqlite") as found:
        yield found


@pytest.fixture
def postgres_alias(databases: Databases, django_db_blocker: Any) -> Iterator[str]:
    """As `alias`, for what needs a server."""
    with django_db_blocker.unblock(), outbox(databases, "postgresql") as found:
        yield found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notify no relays: the test runs them."""
    monkeypatch.setattr("mq_django.outbox.insertion.notify", lambda destination: None)
