"""Ready and pending messages in the admin, and what a filter finds."""

import re
from itertools import product

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.inspector import actions
from mq_django.inspector import stream_reader as scanning
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import CONSUMER, beat, bury, publish, publish_many, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]


def page(client, path, **query):
    response = client.get(f"{BASE}emails/{path}", query)
    assert response.status_code == 200
    return response.content.decode()


def test_a_ready_message_says_why_it_does_not_run(operator):
    message_id = publish("emails", "welcome", {"user_id": 7, "password": "hunter2"}, key="user:7")
    (row,) = operator.get(f"{BASE}emails/ready/").context["rows"]

    shown = operator.get(row["url"]).content.decode()

    assert message_id in shown
    assert "&quot;user_id&quot;: 7" in shown
    assert "hunter2" not in shown
    assert "No consumer of this queue is running. Is runconsumer started?" in shown
    actions.pause("emails")
    assert "The queue is paused." in operator.get(row["url"]).content.decode()


def test_a_pending_message_says_who_holds_it(operator):
    publish("emails", "welcome", 1)
    take("emails", 1)
    beat("emails")

    (row,) = operator.get(f"{BASE}emails/pending/").context["rows"]

    assert CONSUMER in row["consumer"]
    assert f"Consumer {CONSUMER} holds it and is gone" in operator.get(row["url"]).content.decode()


def test_a_look_says_how_far_it_has_come_and_goes_on_at_a_click(operator, monkeypatch):
    monkeypatch.setattr(scanning, "MAX_SCANNED", 60)
    publish_many("emails", [("welcome", n) for n in range(100)])
    publish("emails", "remind", 1)

    first = operator.get(f"{BASE}emails/ready/", {"name": "remind"})
    second = operator.get(f"{BASE}emails/ready/{first.context['go_on']}")

    assert "Scanned 60 messages." in first.content.decode()
    assert first.context["rows"] == []
    assert "Scanned 101 messages." in second.content.decode()
    assert len(second.context["rows"]) == 1


def test_those_who_may_not_see_data_cannot_ask_for_it(operator, viewer):
    """Else one would guess keys and errors letter by letter."""
    bury("emails", key="secret", error="ValueError: secret")
    publish("emails", "welcome", 1, key="secret", delay=60)
    publish("emails", "welcome", 1, key="secret")

    for path in ("ready/", "delayed/", "dead/"):
        for query in ({"key": "other"}, {"error": "other"}, {"data": "customer=C-9999"}):
            refused = viewer.get(f"{BASE}emails/{path}", query)
            assert refused.status_code == 400
            assert "You do not have permission to filter by key, data or error" in refused.content.decode()
        assert operator.get(f"{BASE}emails/{path}", {"key": "other"}).context["rows"] == []
        assert 'name="data"' not in main_of(viewer.get(f"{BASE}emails/{path}"))


def test_a_time_that_is_none_is_refused(operator, settings):
    settings.TIME_ZONE = "Pacific/Kiritimati"
    for value in ("yesterday", "2026-99-99T00:00", "\0", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00+12:00"):
        refused = operator.get(f"{BASE}emails/ready/", {"from": value})
        assert refused.status_code == 400
        assert "is not a date and a time" in refused.content.decode()
    # The first and the last moment are times.
    for value in ("0001-01-01T00:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59"):
        assert operator.get(f"{BASE}emails/ready/", {"from": value, "to": value}).status_code == 200


def test_above_a_filtered_list_only_what_matches_is_purged(operator):
    publish("emails", "welcome", 1)
    publish("emails", "welcome", 1, delay=60)
    publish("emails", "remind", 1, delay=60)
    for path, place in (("ready/", "ready"), ("delayed/", "delayed")):
        address = f"{BASE}emails/{path}"
        assert "/all/delete/" in main_of(operator.get(address))
        filtered = main_of(operator.get(address, {"name": "welcome"}))
        assert "all matching…" in filtered
        assert re.findall(r'/\w+/all/delete/[^"]*', filtered) == [f"/{place}/all/delete/?name=welcome"]


def test_above_the_message_with_an_id_nothing_is_done_to_all(operator):
    """A job has no filter by id."""
    message_id = publish_many("emails", [("welcome", 1), ("welcome", 2)])[1]
    found = operator.get(f"{BASE}emails/ready/", {"id": message_id}, follow=True)
    assert [message_id in row["id"] for row in found.context["rows"]] == [True]
    assert not found.context.get("all_actions")


def test_a_purge_with_a_filter_that_it_does_not_have_is_refused(operator):
    publish("emails", "welcome", 1, delay=60)
    for fields in ({"id": "m1"}, {"error": "no"}, {"of_name": "a", "of_error": "b"}, {"until": "x"}):
        refused = operator.post(f"{BASE}emails/delayed/all/delete/", {"until": str(2**42), "confirmed": "yes"} | fields)
        assert refused.status_code == 400, fields
    assert inspector.queue("emails").delayed == 1


def test_a_queue_is_paused_and_resumed_once_that_is_confirmed(operator):
    publish("emails", "welcome", 1)
    assert "Pause the queue?" in operator.post(f"{BASE}emails/pause/").content.decode()
    assert not inspector.queue("emails").paused

    done = operator.post(f"{BASE}emails/pause/", {"confirmed": "yes"}, follow=True).content.decode()
    assert "The queue is paused." in done
    assert "Resume the queue…" in done
    assert inspector.queue("emails").paused
    operator.post(f"{BASE}emails/pause/", {"confirmed": "yes"})

    assert "1 message is ready and will be handled." in operator.post(f"{BASE}emails/resume/").content.decode()
    operator.post(f"{BASE}emails/resume/", {"confirmed": "yes"})
    assert not inspector.queue("emails").paused
    said = LogEntry.objects.order_by("pk").values_list("change_message", flat=True)
    assert list(said) == ["Paused the queue", "Resumed the queue"]


def test_a_purge_deletes_no_more_than_was_confirmed(operator):
    publish_many("emails", [("welcome", n) for n in range(3)])
    fields = dict(operator.get(f"{BASE}emails/ready/all/delete/").context["fields"])
    publish_many("emails", [("welcome", n) for n in range(4)])

    operator.post(f"{BASE}emails/ready/all/delete/", fields)

    assert inspector.queue("emails").ready == 4


def test_every_list_leads_to_an_id_that_is_somewhere_else(operator, redis_client):
    dead = bury("emails")
    publish("emails", "welcome", 1)
    ranked = publish("emails", "welcome", 1, priority=9)
    nameless = redis_client.xadd(get_config().queue("emails").keys.ready, {"type": "welcome", "data": "1"}).decode()
    waits = publish("emails", "welcome", 1, delay=60)
    places = {
        ranked: "message/ready/priority.",
        nameless: "message/ready/ready.",
        waits: "message/delayed/",
        dead: "message/dead/",
    }

    lists = ("ready", "pending", "delayed", "unhandled", "dead")
    for page, (message_id, place) in product(lists, places.items()):
        found = operator.get(f"{BASE}emails/{page}/", {"id": message_id})
        assert found.status_code == 302, page
        assert f"/emails/{place}" in found.url
        assert message_id in operator.get(found.url).content.decode()
