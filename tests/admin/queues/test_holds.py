"""Holding some messages of a queue: what its page shows, the form, the release, and what a breaker waits for."""

import json

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.breakers import hold_score, subject_of
from mq_django.core.messages import Park
from mq_django.inspector import holds
from mq_django.inspector.holds import end_hold, hold, open_breaker
from mq_django.stores.base import Settlement
from tests.admin.conftest import BASE
from tests.admin.pages import YES, main_of
from tests.seeding import CONSUMER, beat, opened, publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

QUEUE = f"{BASE}emails/change/"


def release_url(kind, value=""):
    return f"{BASE}emails/holds/{hold_score(subject_of(kind, value))}/release/"


def park(subject, *, name="receipt", key=None):
    """Publish a message, and park it as consumers do."""
    publish("emails", name, 1, key=key)
    store = opened("emails")
    found = [Settlement(each, Park(subject)) for each in store.take(CONSUMER, count=1)]
    assert store.settle(CONSUMER, found) == []


def breaker(redis_client, kind, value="", **about):
    """Write an open breaker as consumers do."""
    now = clock.now_ms()
    subject = subject_of(kind, value)
    found = {"state": "open", "score": str(hold_score(subject)), "since": now - 60_000, "probe": 30_000}
    found |= {"next": now + 20_000, "error": "ConnectionError", "failed": 19, "of": 20, **about}
    redis_client.hset(get_config().queue("emails").keys.holds, subject, json.dumps(found))


def row(client):
    """Return the only row of what is held."""
    (found,) = client.get(QUEUE).context["held"]
    return found


def test_messages_of_a_name_are_held_and_released_with_who_and_why(operator, redis_client):
    beat("emails")
    assert "Hold some messages…" in main_of(operator.get(QUEUE))
    assert 'name="reason"' in main_of(operator.get(f"{BASE}emails/hold/"))

    done = operator.post(f"{BASE}emails/hold/", {"name": "receipt", "span": "4 h", "reason": "<b>it burns", **YES})

    assert done.url == QUEUE
    park("name:receipt")
    (held,) = inspector.queue("emails").holds
    assert held.until_ms - held.since_ms == 4 * 3600 * 1000
    who = held.who
    assert row(operator)["messages"] == "1"
    assert f"holds its messages named “receipt”. Held by {who} since 20" in main_of(operator.get(QUEUE))
    assert "&lt;b&gt;it burns" in main_of(operator.get(QUEUE))
    assert "some held" in main_of(operator.get(BASE))
    (parked,) = operator.get(f"{BASE}emails/parked/").context["rows"]
    shown = main_of(operator.get(parked["url"]))
    assert f"Messages of its name are held. Held by {who} since 20" in shown
    assert "See the line of its key" not in shown

    asked = main_of(operator.get(release_url("name", "receipt")))
    assert "1 message becomes ready and will be handled." in asked
    operator.post(release_url("name", "receipt"), YES)

    assert row(operator)["until"] == "it is being released"
    assert [entry.change_message for entry in LogEntry.objects.order_by("id")] == [
        "Held messages named receipt: <b>it burns",
        "Released the messages receipt",
    ]
    assert "This hold is over." in operator.post(release_url("name", "receipt"), YES, follow=True).content.decode()


def test_the_page_of_a_message_leads_to_a_hold_of_its_name_or_key(operator, viewer, log_in):
    publish("emails", "receipt", 1, key="customer 7")
    (listed,) = operator.get(f"{BASE}emails/ready/").context["rows"]
    reader = log_in("view_queue", "view_message_data", "operate_queue")
    (label, of_name), (_, of_key) = reader.get(listed["url"]).context["hold_urls"]
    blind = log_in("view_queue", "operate_queue")
    assert len(blind.get(listed["url"]).context["hold_urls"]) == 1
    assert label == "Hold all messages of this name…"
    assert "customer" not in of_key
    assert 'value="receipt"' in main_of(operator.get(of_name))
    assert 'value="customer 7"' in main_of(reader.get(of_key))
    assert viewer.get(listed["url"]).context["hold_urls"] == []
    operator.post(f"{BASE}emails/hold/", {"key": "customer 7", **YES})
    assert LogEntry.objects.get().change_message == "Held the messages of a key"
    beat("emails")
    assert "It is ready, and will be parked until then." in main_of(operator.get(listed["url"]))


def test_a_form_that_says_nothing_clear_is_shown_again(operator):
    for given, said in (
        ({}, "Give a name or a key. To hold all messages, pause the queue."),
        ({"name": "a", "key": "b"}, "Give a name or a key, not both."),
        ({"name": "a", "span": "soon"}, "There is no such time."),
        ({"name": "a", "probe": "-1"}, "There is no such time."),
        ({"name": "a", "span": "4 h", "probe": "30"}, "A breaker closes when a probe is handled"),
        ({"name": "x" * 300}, "Nothing has the name"),
    ):
        response = operator.post(f"{BASE}emails/hold/", {"reason": "the printer", **given, **YES})
        assert said in response.content.decode()
        assert 'value="the printer"' in main_of(response)
    assert holds.holds("emails") == ()


def test_the_most_holds_are_told(operator, monkeypatch):
    monkeypatch.setattr(holds, "MAX_HOLDS", 1)
    monkeypatch.setattr("mq_django.stores.waiting.MAX_HOLDS", 1)
    hold("emails", name="a")
    assert (
        "which are the most it can have." in operator.post(f"{BASE}emails/hold/", {"name": "b", **YES}).content.decode()
    )


def test_an_open_breaker_says_since_when_why_and_when_the_next_probe_is(operator, redis_client):
    beat("emails")
    breaker(redis_client, "queue", error="ConnectionError: no answer to customer 7")
    park("queue:")
    found = main_of(operator.get(QUEUE))
    assert "waits for its partner since 20" in found
    assert "ConnectionError, 19 of 20; next probe in " in found
    assert "customer 7" not in found
    assert "breaker open" in main_of(operator.get(BASE))
    assert "See whether what its handlers need is up." in main_of(operator.get(f"{BASE}problems/"))
    (parked,) = operator.get(f"{BASE}emails/parked/").context["rows"]
    assert "It waits for its partner since 20" in main_of(operator.get(parked["url"]))
    assert "the whole queue" in main_of(operator.get(release_url("queue")))
    operator.post(release_url("queue"), YES)
    assert "waits for its partner" not in main_of(operator.get(QUEUE))


def test_a_breaker_that_closes_says_how_many_it_lets_through(operator, redis_client):
    breaker(redis_client, "name", "charge", state="ramp", level=4, free=4)
    found = main_of(operator.get(QUEUE))
    assert "waits for the partner of “charge” since 20" in found
    assert "ConnectionError, 19 of 20; it is back, 4 messages at once." in found
    assert row(operator)["until"] == "4 messages at once"


def test_a_breaker_is_opened_by_hand(operator):
    operator.post(f"{BASE}emails/hold/", {"probe": "30", "reason": "they said so", **YES})
    (held,) = holds.holds("emails")
    assert (held.kind, held.state, held.probe_ms) == ("queue", "open", 30_000)
    assert "opened by operator" in main_of(operator.get(QUEUE)).replace(held.who, "operator")
    assert LogEntry.objects.get().change_message == "Opened a breaker for all: they said so"


def test_a_hold_and_a_breaker_are_undone_from_the_activity(operator):
    hold("emails", name="receipt", who="ann")
    open_breaker("emails", who="ann")
    undo = [entry["undo"]["url"] for entry in operator.get(f"{BASE}activity/").context["rows"]]
    assert undo == [release_url("queue"), release_url("name", "receipt")]
    end_hold("emails")
    assert [entry["undo"] is None for entry in operator.get(f"{BASE}activity/").context["rows"]] == [True, True, False]


def test_a_queue_in_the_format_of_rsmq_offers_no_holds(operator, mq_settings):
    mq_settings(QUEUES={"emails": {"STORE": "rsmq"}}, TOPICS={})
    assert "Hold some messages" not in operator.get(QUEUE).content.decode()
    said = operator.get(f"{BASE}emails/hold/", follow=True).content.decode()
    assert "Messages of a queue in RSMQ&#x27;s format cannot be held." in said


def test_the_page_of_a_partition_holds_the_whole_queue(operator, mq_settings):
    mq_settings(QUEUES={"emails": {"PARTITIONS": 2}}, TOPICS={})
    operator.post(f"{BASE}emails.1/hold/", {"name": "receipt", **YES})
    assert [len(part.holds) for part in inspector.queue("emails").parts] == [1, 1]
    assert row(operator)["messages"] == "0"


def test_an_error_without_a_class_is_not_shown(operator, redis_client):
    breaker(redis_client, "name", "charge", error="customer 7 is down")
    found = main_of(operator.get(QUEUE))
    assert "customer 7" not in found
    assert "19 of 20 failed; next probe in " in found
