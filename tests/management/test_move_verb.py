"""`manage.py mq redrive --to` and `mq move`: messages into another queue."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from mq_django import inspector, queues
from mq_django.inspector import jobs
from tests.management.test_mq import mq, mq_json, refusal
from tests.seeding import bury, bury_many

pytestmark = pytest.mark.usefixtures("mq_settings")


def counts():
    """Return the dead letters of `emails`, and what is ready in `default`."""
    return inspector.queue("emails").dead, inspector.queue("default").ready


def test_what_cannot_be_done_is_an_error_and_changes_nothing(mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {}}, TOPICS={"orders": {}})
    bury("emails", message_id="m1")
    for arguments, sentence, code in (
        (["nope", "default", "--all"], "No queue 'nope'", 1),
        (["emails", "nope", "--all"], "No queue 'nope'", 1),
        (["emails", "emails", "--all"], "redrive them", 1),
        (["emails", "orders", "--all"], "is a topic", 1),
        (["emails", "orders:typo", "m1"], "has no group 'typo'", 1),
        (["orders", "emails", "--all"], "'orders' is a topic", 1),
        (["emails", "default", "m1", "--name", "remind"], "--name needs --all", 2),
        (["emails", "default", "m1", "--dry-run"], "--dry-run needs --all", 2),
        (["emails", "default", "--all", "--name", ""], "--name is ''", 2),
    ):
        queue, target, *more = arguments
        said, returned = refusal("redrive", queue, *more, "--to", target)
        assert sentence in said, arguments
        assert returned == code, arguments
    assert (counts(), jobs.get_job("emails")) == ((1, 0), None)


def test_a_preview_tells_how_many_and_which_nobody_would_handle():
    bury_many("emails", 3)
    bury("emails", "remind", error="SMTPError: refused")
    out, err = StringIO(), StringIO()

    call_command("mq", "redrive", "emails", "--to", "default", "--all", "--dry-run", stdout=out, stderr=err)

    assert out.getvalue().startswith("4 dead letters would be moved to default.")
    assert "Queue default has no handler for remind, welcome: such messages wait until it has one." in err.getvalue()
    found = mq_json("redrive", "emails", "--to", "default", "--all", "--name", "remind", "--dry-run")
    assert (found["count"], found["without_handler"]) == (1, ["remind"])
    assert counts() == (4, 0)


def test_jobs_say_where_to():
    bury_many("emails", 3)
    mq("redrive", "emails", "--to", "default", "--all", "--background", "--rate", "5")
    (row,) = mq_json("jobs")
    assert (row["what"], row["target"], row["rate"]) == ("move", "default", 5)
    assert "move to default" in mq("jobs")


def test_a_full_queue_is_an_error_for_ids(mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {"MAX_DEPTH": 1}})
    ids = bury_many("emails", 2)
    with pytest.raises(CommandError, match="Queue 'default' is at its MAX_DEPTH of 1"):
        mq("redrive", "emails", *ids, "--to", "default")
    assert counts() == (1, 1)


def test_messages_in_any_state_are_moved_by_their_ids_and_all_in_a_state():
    ready = queues["emails"].publish("welcome", 1)
    later = queues["emails"].publish("welcome", 2, delay=60)
    assert mq_json("move", "emails", ready, later, "--to", "default")["moved"] == 2
    queues["emails"].publish_many([("welcome", 3), ("remind", 4)])
    assert mq_json("move", "emails", "--state", "ready", "--name", "remind", "--to", "default")["moved"] == 1
    assert (inspector.queue("emails").ready, inspector.queue("default").ready) == (1, 2)
    assert inspector.queue("default").delayed == 1
