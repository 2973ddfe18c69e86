"""Old rows are deleted, in batches, where there are any."""

import pytest

from mq_django import exactly_once, handler
from mq_django.conf import get_config
from mq_django.consumers.supervisor import chores
from mq_django.consumers.supervisor.chores import INBOX_INTERVAL, SOON, InboxTrimmer, inbox_trimmers
from mq_django.core import clock
from mq_django.inbox import once
from mq_django.models import InboxMessage
from tests.inbox.conftest import ALIAS, on_each_database

DAY = 86_400_000


@pytest.fixture
def add(using):
    def add(*, days, count=1):
        at = clock.now_ms() - days * DAY
        InboxMessage.objects.using(using).bulk_create(
            InboxMessage(digest=f"{days}-{number}", queue="q", message_id=str(days), handler="n", created_ms=at)
            for number in range(count)
        )

    return add


def test_rows_that_are_older_are_deleted(mq_settings, add, rows, using):
    mq_settings(INBOX_RETENTION=10 * 86_400)
    add(days=9)
    add(days=11)
    assert InboxTrimmer([using]).run_once() == INBOX_INTERVAL
    assert [row.message_id for row in rows()] == ["9"]


@on_each_database
def test_many_are_deleted_in_batches(mq_settings, add, rows, using, monkeypatch):
    monkeypatch.setattr(once, "BATCH", 3)
    monkeypatch.setattr(chores, "INBOX_TRIMS", 2)
    add(days=31, count=8)
    add(days=1)
    trimmer = InboxTrimmer([using])
    assert trimmer.run_once() == SOON
    assert len(rows()) == 3
    assert trimmer.run_once() == INBOX_INTERVAL
    assert [row.message_id for row in rows()] == ["1"]


def test_a_database_that_fails_keeps_no_other_from_it(mq_settings, add, rows, using, caplog):
    add(days=31)
    assert InboxTrimmer(["nowhere", using]).run_once() == INBOX_INTERVAL
    assert rows() == []
    assert "database nowhere" in caplog.text


def test_it_runs_only_where_a_handler_needs_it(handlers, mq_settings):
    queues = [get_config().queue(name) for name in ("default", "emails")]
    assert inbox_trimmers(queues) == []
    handler("emails", "n")(exactly_once(using=ALIAS)(lambda message: None))
    assert inbox_trimmers(queues[:1]) == []
    (trimmer,) = inbox_trimmers(queues)
    assert trimmer._databases == [ALIAS]
