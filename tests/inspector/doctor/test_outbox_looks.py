"""What is said about outboxes."""

import pytest

from mq_django.models import OutboxState
from tests.inspector.doctor.conftest import levels
from tests.outbox_rows import lose_tables, outbox_row, set_aside_row

pytestmark = [pytest.mark.usefixtures("mq_settings"), pytest.mark.django_db(databases="__all__")]


@pytest.fixture(autouse=True)
def emails(mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {"OUTBOX": True}})


@pytest.fixture
def found(found):
    """Return what is said about outboxes."""
    return lambda: [finding for code in ("D601", "D602", "D603", "D604", "D605") for finding in found(code)]


def test_an_outbox_that_is_empty_is_fine(found):
    assert found() == []


def test_what_stands_still_is_stopped_or_was_set_aside_is_reported(found):
    outbox_row(age=600)
    set_aside_row()
    OutboxState.objects.create(destination="emails", problem="a copy", problem_ms=1)

    assert levels(found()) == [("D603", "error"), ("D604", "warning"), ("D605", "warning")]
    assert "waited for 10 min" in found()[1].seen


def test_tables_that_are_missing_are_reported(found, monkeypatch):
    monkeypatch.setattr("mq_django.inspector.outbox_views.TABLE", "gone")
    monkeypatch.setattr("mq_django.inspector.outbox_views._with_tables", set())
    assert levels(found()) == [("D601", "error")]


class ToOther:
    """A router: all rows go to the database `other`, which may have no tables."""

    def db_for_write(self, model, **hints):
        return "other"

    def allow_migrate(self, db, app_label, **hints):
        return db != "other"


def test_tables_that_the_database_of_publishes_does_not_have_are_reported(found, settings, monkeypatch):
    monkeypatch.setattr("mq_django.inspector.outbox_views._with_tables", set())
    settings.DATABASE_ROUTERS = [f"{__name__}.ToOther"]
    (finding,) = found()
    assert (finding.code, finding.level, finding.where) == ("D601", "error", "database other")
    assert finding.seen.startswith("A queue or topic has OUTBOX, and database other has no table of it")


def test_a_database_that_cannot_be_read_is_reported(found):
    lose_tables()
    assert levels(found()) == [("D602", "error"), ("D602", "error")]
