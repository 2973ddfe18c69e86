"""`manage.py mq outbox --relay`."""

import json

import pytest
from django.core.management import CommandError, call_command

from mq_django import queues
from mq_django.consumers.supervisor import outbox_service
from mq_django.management import outbox_verbs
from tests.outbox.relays import publish, ready, rows

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def only(monkeypatch, sqlite, mq_settings):
    """Look at the database of the test only."""
    mq_settings(QUEUES={"mails": {"OUTBOX": True, "MAX_DEPTH": 5}})
    for module in (outbox_service, outbox_verbs):
        monkeypatch.setattr(module, "outbox_aliases", lambda **_: [sqlite])


def test_drain_publishes_all_rows(sqlite, redis_client, capsys):
    ids = publish(sqlite, "mails", 5)
    call_command("mq", "outbox", "--relay", "--drain")
    assert ready(redis_client, "mails") == ids
    assert capsys.readouterr().out == "The outbox is empty.\n"


def test_drain_leaves_what_was_set_aside_and_says_how_many(sqlite, capsys):
    publish(sqlite, "mails", 1)
    rows(sqlite).update(batch=0, error="no", failed_ms=1)

    call_command("mq", "outbox", "--relay", "--drain")
    text = "1 row is set aside and cannot be published: see manage.py mq outbox --set-aside."
    assert capsys.readouterr().out == f"No row waits in the outbox.\n{text}\n"

    call_command("mq", "outbox", "--relay", "--drain", "--json")
    assert json.loads(capsys.readouterr().out) == {"left": 0, "set_aside": 1}
    assert rows(sqlite).count() == 1


def test_drain_fails_when_rows_are_left(sqlite, redis_client, capsys):
    ids = publish(sqlite, "mails", 7)
    with pytest.raises(SystemExit, match="1"):
        call_command("mq", "outbox", "--relay", "--drain", "--timeout", "0.5")
    assert "7 rows are left" in capsys.readouterr().out
    assert ready(redis_client, "mails") == ids[:5]
    assert queues["mails"].config.max_depth == 5


def test_a_timeout_is_a_number_of_seconds():
    with pytest.raises(CommandError):
        call_command("mq", "outbox", "--relay", "--drain", "--timeout", "soon")
