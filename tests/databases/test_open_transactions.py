"""A transaction that SQL's own BEGIN has left open is found where the driver knows of it."""

from contextlib import suppress

import pytest
from django.db import ProgrammingError, connections

from mq_django.consumers.worker.databases import databases_within


@pytest.mark.parametrize("statements", [["BEGIN"], ["BEGIN", "wrong"]], ids=["open", "failed"])
def test_it_is_rolled_back_on_postgresql(databases, django_db_blocker, statements):
    with django_db_blocker.unblock(), databases.added("begun", "postgresql") as alias, databases_within() as found:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT 1")
            assert not found.is_disturbed()
            for statement in statements:
                with suppress(ProgrammingError):
                    cursor.execute(statement)

        assert found.is_disturbed()
        # Its age would close it, and with it the transaction.
        connections[alias].close_at = None
        assert found.clean_up() == f"a transaction in database {alias!r}"
        assert not found.is_disturbed()
        assert connections[alias].connection.info.transaction_status == 0
