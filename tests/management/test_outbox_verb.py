"""`manage.py mq outbox`."""

from uuid import UUID

import pytest
from django.core.management import CommandError

from mq_django.models import OutboxIdentity, OutboxMessage, OutboxState
from tests.management.test_mq import mq, mq_json
from tests.outbox_rows import outbox_row, set_aside_row
from tests.seeding import opened

pytestmark = [pytest.mark.usefixtures("mq_settings"), pytest.mark.django_db(databases="__all__")]


def refused(*args):
    with pytest.raises(CommandError) as found:
        mq("outbox", *args)
    return str(found.value), found.value.returncode


def test_the_status_of_a_group_shows_the_outbox_of_its_topic(mq_settings):
    mq_settings(QUEUES={"emails": {"OUTBOX": True}}, TOPICS={"orders": {"OUTBOX": True}})
    opened("orders:billing")
    outbox_row(age=75_000)
    outbox_row("orders", age=30_000)
    assert "orders: 1 in the outbox, the oldest for 30" in mq("status", "orders:billing")
    assert "emails" not in mq("status", "orders:billing")
    assert "emails: 1 in the outbox, the oldest for 75" in mq("status")


def test_the_status_names_the_database_if_several_have_messages(mq_settings):
    mq_settings(QUEUES={"emails": {"OUTBOX": True}})
    outbox_row()
    assert "emails: 1 in the outbox, the oldest for" in mq("status")

    outbox_row(using="other")
    set_aside_row(using="other")

    assert "emails: 1 in the outbox of database default, the oldest for" in mq("status")
    assert "emails: 1 in the outbox of database other, the oldest for" in mq("status")
    assert "emails: 1 in the outbox of database other cannot be published" in mq("status")


def test_outboxes_are_listed():
    assert mq("outbox") == "No messages in an outbox.\n"
    outbox_row(age=75)
    set_aside_row()
    OutboxState.objects.create(destination="orders", problem="a copy", problem_ms=1)

    heading, emails, orders, why = mq("outbox").splitlines()

    assert heading.split() == ["database", "destination", "waiting", "oldest_s", "set_aside", "retained"]
    assert emails.split()[:3] == ["default", "emails", "1"]
    assert (orders.split(), why) == (["default", "orders", "0", "-", "0", "0"], "orders: a copy")
    assert [row["destination"] for row in mq_json("outbox", "emails")] == ["emails"]


def test_the_outboxes_of_one_database_are_listed():
    outbox_row()
    outbox_row("orders", using="other")

    def listed(*args):
        return [(row["database"], row["destination"]) for row in mq_json("outbox", *args)]

    assert listed() == [("default", "emails"), ("other", "orders")]
    assert listed("--database", "other") == [("other", "orders")]
    assert listed("--database", "default") == [("default", "emails")]
    assert listed("emails", "--database", "other") == []
    text = "The database 'nope' has no outbox. Databases with one: default, other."
    assert refused("--database", "nope") == (text, 2)


def test_messages_are_listed():
    first, aside = outbox_row(message_id="one"), set_aside_row(message_id="two", error="no\x1b room")
    outbox_row(message_id="three")

    assert [row["id"] for row in mq_json("outbox", "--waiting")] == ["one", "three"]
    (row,) = mq_json("outbox", "--set-aside")
    assert (row["row"], row["id"], row["error"]) == (aside.pk, "two", "no\x1b room")
    assert "\x1b" not in mq("outbox", "--set-aside")
    assert [row["id"] for row in mq_json("outbox", "--waiting", "--after", str(first.pk))] == ["three"]


def test_what_was_set_aside_is_retried_or_discarded():
    first, second, third = set_aside_row(), set_aside_row(), set_aside_row("orders")

    assert mq("outbox", "--retry", "--row", str(first.pk)) == "retried 1\n"
    assert refused("--discard", "--all") == (
        "This deletes all messages that were set aside. Confirm with --yes.",
        2,
    )
    assert mq("outbox", "emails", "--discard", "--all", "--yes") == "discarded 1\n"
    assert set(OutboxMessage.objects.values_list("id", "batch")) == {(first.pk, None), (third.pk, 0)}
    assert refused("--retry", "--row", str(second.pk)) == ("1 were not set aside", 1)


def test_rows_that_are_kept_are_published_again_or_forgotten(mq_settings):
    mq_settings(QUEUES={"emails": {"OUTBOX": {"KEEP_UNTIL": "handled"}}})
    first, second = outbox_row(batch=-1), outbox_row(batch=-1)
    assert mq_json("outbox")[0]["retained"] == 2
    mq_settings(QUEUES={"emails": {}})
    assert mq_json("outbox")[0]["retained"] == 2
    mq_settings(QUEUES={"emails": {"OUTBOX": {"KEEP_UNTIL": "handled"}}})

    text = "This publishes messages again, 2 at most. Confirm with --yes."
    assert refused("emails", "--republish") == (text, 2)
    assert mq("outbox", "emails", "--republish", "--yes") == "republished 2\n"
    assert set(OutboxMessage.objects.values_list("id", "batch")) == {(first.pk, None), (second.pk, None)}

    retained = outbox_row(batch=-1)
    assert refused("emails", "--forget") == ("This deletes rows of messages, 1 at most. Confirm with --yes.", 2)
    assert mq("outbox", "emails", "--forget", "--yes") == "forgotten 1\n"
    assert not OutboxMessage.objects.filter(pk=retained.pk).exists()
    assert refused("--republish", "--yes") == ("Name the queue whose rows are kept.", 2)
    assert refused("emails", "--forget", "--all") == ("--all needs --retry or --discard.", 2)


def test_a_copied_database_gets_an_identity_of_its_own():
    OutboxIdentity.objects.create(id=1, uuid=UUID(int=7))
    OutboxState.objects.create(destination="orders", problem="a copy", problem_ms=1)
    text = "Stop all relays of default first. This publishes its rows to the same Redis. Confirm with --yes."
    assert refused("--renew") == (text, 2)

    assert mq("outbox", "--renew", "--yes") == "continued 1\n"

    assert not OutboxIdentity.objects.exists()
    assert not OutboxState.objects.exclude(problem="").exists()


def test_arguments_that_contradict_each_other_are_refused():
    assert refused("--row", "1") == ("--row needs --retry or --discard.", 2)
    assert refused("--retry") == ("Give --row, or --all.", 2)
    assert refused("--retry", "--row", "1", "--all") == ("Give --row, or --all.", 2)
    message, code = refused("--waiting", "--database", "nowhere")
    assert (message, code) == ("The database 'nowhere' has no outbox. Databases with one: default, other.", 2)
