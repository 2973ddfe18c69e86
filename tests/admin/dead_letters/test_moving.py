"""Dead letters are moved to another queue: selected ones, and all that match, by who may redrive them."""

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector
from mq_django.inspector import jobs
from tests.admin.conftest import BASE, history, url_of_all
from tests.seeding import bury, bury_garbage, bury_many, dead_entry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

DEAD = f"{BASE}emails/dead/"
CHOSEN = f"{DEAD}chosen/"
ALL = f"{DEAD}all/move/"


def numbers():
    """Return the dead letters of `emails`, and what is ready in `default`."""
    return inspector.queue("emails").dead, inspector.queue("default").ready


def test_one_is_moved_once_its_queue_was_selected_and_that_was_confirmed(operator):
    message_id = bury("emails", "welcome", {"user_id": 7})
    fields = {"action": "move", "_selected_action": dead_entry("emails")}

    asked = operator.post(CHOSEN, fields)
    page = asked.content.decode()
    assert "Move 1 dead letter to another queue?" in page
    assert message_id in page
    assert '<option value="default">default</option>' in page
    assert '<option value="emails">' not in page
    assert numbers() == (1, 0)
    done = operator.post(CHOSEN, {**dict(asked.context["fields"]), "target": "default"}, follow=True)

    assert "1 dead letter was moved to default." in done.content.decode()
    assert numbers() == (0, 1)
    assert LogEntry.objects.get().change_message == f"Moved 1 dead letter to default: {message_id}"


def test_without_a_queue_that_can_have_them_nothing_is_moved(operator, mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {}}, TOPICS={"orders": {}})
    bury("emails")
    chosen = {"action": "move", "_selected_action": dead_entry("emails")}
    for address, fields in ((CHOSEN, chosen), (ALL, {})):
        for target in ({}, *({"target": name} for name in ("", "emails", "orders", "orders:typo", "nope"))):
            answer = operator.post(address, {"confirmed": "yes", **fields, **target})
            assert answer.status_code == 400, (address, target)
            assert "Select the queue to which the messages are moved." in answer.content.decode()
    assert (numbers(), jobs.get_job("emails")) == ((1, 0), None)
    assert not LogEntry.objects.exists()


def test_what_cannot_be_moved_is_told(operator, redis_client):
    bury_garbage(redis_client, "emails", {"x": "y"})
    fields = {"action": "move", "_selected_action": dead_entry("emails"), "target": "default", "confirmed": "yes"}
    page = operator.post(CHOSEN, fields, follow=True).content.decode()
    assert "1 stays here: it is not a valid message" in page
    assert numbers() == (1, 0)


def test_a_full_queue_is_told(operator, mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {"MAX_DEPTH": 1}})
    bury_many("emails", 2)
    entries = [str(row["ref"]) for row in operator.get(DEAD).context["rows"]]
    fields = {"action": "move", "_selected_action": entries, "target": "default", "confirmed": "yes"}
    page = operator.post(CHOSEN, fields, follow=True).content.decode()
    assert "1 dead letter was moved to default." in page
    assert "The queue is at its MAX_DEPTH." in page
    assert numbers() == (1, 1)


def test_all_that_match_are_moved_in_the_background(operator):
    bury_many("emails", 3)
    for _ in range(2):
        bury("emails", "remind", error="SMTPError: refused")
    url = url_of_all(operator.get(DEAD, {"name": "remind"}), "move")

    asked = operator.get(url)
    assert "Move 2 dead letters to another queue?" in asked.content.decode()
    fields = {**dict(asked.context["fields"]), "target": "default", "rate": ""}
    done = operator.post(ALL, fields, follow=True)

    assert "Moved to default: 2 dead letters." in done.content.decode()
    assert numbers() == (3, 2)
    expected = "Move 2 dead letters to default where name contains “remind”: 2 moved"
    assert history(operator) == [expected]


def test_moving_is_offered_where_there_is_another_queue(operator, viewer, mq_settings):
    bury("emails")
    letter = f"{BASE}emails/message/dead/{dead_entry('emails')}/"
    for address in (DEAD, letter):
        assert "Move" in operator.get(address).content.decode()
        assert "Move" not in viewer.get(address).content.decode()
    mq_settings(QUEUES={"emails": {}}, TOPICS={})
    for address in (DEAD, letter, f"{DEAD}groups/"):
        assert "Move" not in operator.get(address).content.decode()
