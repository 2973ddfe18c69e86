"""`manage.py check` says which database has no outbox. It reaches a database only if that is named."""

import pytest
from django.core.management import call_command
from django.db import connections

from mq_django.outbox.insertion import check_outbox, check_outbox_tables
from tests.databases.fixtures import known


class Router:
    alias, allows = "default", True

    def db_for_write(self, model, **_):
        return self.alias

    def allow_migrate(self, db, app_label, **_):
        return self.allows


@pytest.fixture
def router(settings, mq_settings):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    found = Router()
    settings.DATABASE_ROUTERS = [found]
    return found


def test_without_an_outbox_there_is_nothing_to_check(mq_settings):
    mq_settings(QUEUES={"mails": {}})
    assert check_outbox_tables(databases=["default"]) == []


def test_a_database_that_is_not_named_is_not_reached(router, monkeypatch):
    monkeypatch.setattr("mq_django.outbox.insertion.has_table", None)
    assert check_outbox() == check_outbox_tables(databases=None) == check_outbox_tables(databases=["other"]) == []


def test_a_database_that_has_the_table_is_right(router, sqlite):
    router.alias = sqlite
    assert check_outbox_tables(databases=[sqlite]) == []


def test_a_database_without_the_table_is_reported_and_can_be_migrated(router, tmp_path, django_db_blocker, monkeypatch):
    options = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "empty.db")}
    router.alias = "empty"
    with django_db_blocker.unblock(), known("empty", options):
        (error,) = check_outbox_tables(databases=["default", "empty"])
        with monkeypatch.context() as started:
            started.setattr("sys.argv", ["manage.py", "migrate"])
            assert check_outbox_tables(databases=["empty"]) == []
        call_command("migrate", "mq_django", database="empty", verbosity=0)
        assert check_outbox_tables(databases=["empty"]) == []
    assert error.id == "mq_django.W008"
    # call_command("migrate", skip_checks=False) runs the checks before it makes the tables.
    assert not error.is_serious()
    assert "'empty' has no table" in error.msg
    assert "migrate mq_django --database empty" in error.hint


def test_a_router_that_allows_no_table_is_an_error(router):
    router.allows = False
    (error,) = check_outbox()
    assert error.id == "mq_django.E012"
    assert "'default', where no table can be" in error.msg


def test_a_database_in_whose_sql_the_outbox_is_not_written_is_an_error(router, monkeypatch):
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    (error,) = check_outbox()
    assert error.id == "mq_django.E012"
    assert "'default' is of a kind that has no outbox: oracle" in error.msg
