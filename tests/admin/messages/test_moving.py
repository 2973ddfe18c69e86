"""Messages that are ready or wait are moved to another queue: selected ones, one on its page, and all that match."""

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspect, inspector, queues, topics
from tests.admin.conftest import BASE
from tests.seeding import publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]


def chosen(client, state, **fields):
    """Move what is listed in a state, and return the page after it."""
    refs = [str(row["ref"]) for row in client.get(f"{BASE}emails/{state}/").context["rows"]]
    asked = client.post(f"{BASE}emails/{state}/chosen/", {"action": "move", "_selected_action": refs})
    fields |= {"action": "move", "_selected_action": refs, "confirmed": "yes", "target": "default"}
    done = client.post(f"{BASE}emails/{state}/chosen/", fields, follow=True)
    return asked.content.decode(), done.content.decode()


def numbers(state):
    return getattr(inspector.queue("emails"), state), getattr(inspector.queue("default"), state)


def test_ready_messages_that_are_selected_are_moved_and_who_handles_none_is_told(operator):
    ids = queues["emails"].publish_many([("nobody.has.this", 1), ("nobody.has.this", 2)], on_commit=False)
    asked, done = chosen(operator, "ready")
    assert "Move 2 ready messages to another queue?" in asked
    assert ids[0] in asked
    assert "2 messages were moved to default." in done
    assert "No handler of queue default is registered here for nobody.has.this" in done
    assert numbers("ready") == (0, 2)
    assert LogEntry.objects.get().change_message == f"Moved 2 messages to default: {ids[0]}, {ids[1]}"


def test_delayed_messages_keep_their_time(operator):
    queues["emails"].publish("welcome", 1, delay=3600, on_commit=False)
    queues["emails"].publish("welcome", 2, delay=3600, unique="cart:7", on_commit=False)
    before = sorted(row.at_ms for row in inspect.messages("emails", "delayed", limit=5).rows)
    _, done = chosen(operator, "delayed")
    assert "2 messages were moved to default." in done
    found = inspect.messages("default", "delayed", limit=5).rows
    assert sorted(row.at_ms for row in found) == before
    assert [row.unique for row in found if row.unique] == ["cart:7"]


def test_what_the_other_queue_cannot_have_stays_with_the_reason(operator):
    queues["emails"].publish("welcome", 1, delay=3600, unique="cart:7", on_commit=False)
    queues["default"].publish("welcome", 2, delay=3600, unique="cart:7", on_commit=False)
    _, done = chosen(operator, "delayed")
    assert "1 stays here" in done
    assert numbers("delayed") == (1, 1)


def test_one_is_moved_from_its_page(operator):
    queues["emails"].publish("welcome", 1, on_commit=False)
    (row,) = operator.get(f"{BASE}emails/ready/").context["rows"]
    buttons = operator.get(row["url"]).context["buttons"]
    assert [button.get("action") for button in buttons] == [None, "move", None]


def test_messages_in_the_log_of_a_topic_cannot_be_selected_nor_moved_from_their_page(operator, mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {}}, TOPICS={"orders": {}})
    topics["orders"].group("billing").subscribe("beginning")
    logged = topics["orders"].publish("order.paid", 1, on_commit=False)
    publish("orders:billing", "again", 1)
    response = operator.get(f"{BASE}orders:billing/ready/")
    own, in_log = response.context["rows"]
    assert (bool(own["ref"]), logged in in_log["id"], in_log["ref"]) == (True, True, "")
    assert response.content.decode().count('class="action-select"') == 1
    assert [button.get("action") for button in operator.get(in_log["url"]).context["buttons"]] == []
    assert "move" in [button.get("action") for button in operator.get(own["url"]).context["buttons"]]
