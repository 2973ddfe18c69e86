"""The search over all queues, in the admin."""

import pytest

from mq_django import topics
from mq_django.core.messages import Expire
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import bury, handle, publish, settle, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

FIND = f"{BASE}find/"


def rows(client, message_id):
    response = client.get(FIND, {"id": message_id})
    assert response.status_code == 200
    return response.context["rows"]


def test_the_page_of_all_queues_has_the_form(viewer):
    assert f'action="{FIND}"' in main_of(viewer.get(BASE))
    assert f'action="{FIND}"' in main_of(viewer.get(FIND))


def test_a_message_is_found_and_linked_wherever_it_is(operator):
    topics["orders"].group("billing").subscribe()
    found = {
        "delayed": publish("default", "welcome", 1, delay=60),
        "dead letter": bury("emails", "welcome", {"user": 7}),
        "handled": handle("emails", "welcome", 1, message_id="done"),
        "in the log of the topic": topics["orders"].publish("order.paid", {"order": 1}, on_commit=False),
    }
    found["ready"] = publish("emails", "welcome", 2)
    for place, message_id in found.items():
        (row,) = (row for row in rows(operator, message_id) if row["state"] == place)
        page = operator.get(row["url"])
        assert page.status_code == 200
        assert message_id in page.content.decode()
        assert operator.get(row["queue_url"]).status_code == 200


def test_what_became_of_a_message_has_no_page(operator):
    expired = publish("emails", "welcome", 1)
    settle("emails", take("emails", 1), Expire())
    (row,) = rows(operator, expired)
    assert (row["url"], row["state"]) == ("", "discarded: it had expired")


def test_what_nobody_knows_says_so(operator):
    response = operator.get(FIND, {"id": "<b>nope"})
    assert response.context["rows"] == []
    shown = main_of(response)
    assert "or it never existed" in shown
    assert "<b>nope" not in shown


def test_a_search_that_had_no_time_says_so(operator, monkeypatch):
    publish("emails", "welcome", 1)
    monkeypatch.setattr("mq_django.admin.find_page.SECONDS", 0.0)
    shown = main_of(operator.get(FIND, {"id": "nope"}))
    assert "Not everything was searched" in shown
    assert "or it never existed" not in shown


def test_unique_keys_are_for_those_who_may_see_data(operator, viewer):
    message_id = publish("emails", "welcome", 1, delay=60, unique="rumpelstiltskin")
    (row,) = rows(operator, "u:rumpelstiltskin")
    assert row["url"]
    assert rows(viewer, "u:rumpelstiltskin") == []
    response = viewer.get(FIND, {"id": message_id})
    assert len(response.context["rows"]) == 1
    assert "rumpelstiltskin" not in response.content.decode()
