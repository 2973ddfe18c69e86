"""Messages over the limit of their key: listed, found, explained, cancelled, purged."""

import pytest

from mq_django import inspector
from mq_django.admin.ui.text import to_url
from tests.admin.conftest import BASE
from tests.seeding import beat, opened, publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

PARKED = f"{BASE}emails/parked/"


@pytest.fixture
def ids(mq_settings):
    """Messages of one key of which one is handled at a time: one is, three are parked."""
    mq_settings(QUEUES={"emails": {"CONCURRENCY": {"key": 1}}, "default": {}})
    found = [publish("emails", "welcome", {"n": n}, key="user:<b>7") for n in range(4)]
    store = opened("emails")
    assert len(store.take("c1", count=10)) == 1
    beat("emails")
    return found


def test_they_are_listed_in_line_with_their_key(operator, ids):
    page = operator.get(PARKED)

    assert [row["id"] for row in page.context["rows"]] == [f"<bdi>{message_id}</bdi>" for message_id in ids[1:]]
    assert "user:&lt;b&gt;7" in page.content.decode()
    assert [tab["count"] for tab in page.context["tabs"] if "parked" in tab["url"]] == ["3"]


def test_one_is_found_by_its_id_and_says_what_it_waits_for(operator, ids):
    page = operator.get(f"{BASE}emails/ready/", {"id": ids[3]}, follow=True)

    text = page.content.decode()
    assert page.redirect_chain[0][0].startswith(f"{BASE}emails/message/parked/")
    assert "The limit for key “user:&lt;b&gt;7” is reached: 1 at once. 2 messages of its key are before it." in text


def test_one_is_cancelled_and_the_others_stay_in_line(operator, ids):
    (_, second, _) = operator.get(PARKED).context["rows"]
    fields = {"action": "cancel", "_selected_action": second["ref"]}

    asked = operator.post(f"{PARKED}chosen/", fields)
    assert "Cancel 1 parked message?" in asked.content.decode()
    operator.post(f"{PARKED}chosen/", {**fields, "confirmed": "yes"})

    assert dict(inspector.ids("emails"))["parked"] == [ids[1], ids[3]]


def test_a_queue_without_limits_of_keys_shows_no_such_tab(operator):
    assert not [tab for tab in operator.get(f"{BASE}emails/dead/").context["tabs"] if "parked" in tab["url"]]
    assert "No parked messages." in operator.get(PARKED).content.decode()
    assert operator.get(f"{BASE}emails/message/parked/{to_url(b'p:gone')}/").url == PARKED


def test_they_count_as_waiting_and_lead_to_their_list(operator, ids):
    (row,) = [row for row in operator.get(BASE).context["rows"] if row["name"] == "emails"]
    assert (row["waiting"], row["waiting_url"]) == ("3", PARKED)

    tiles = {tile["label"]: tile for tile in operator.get(f"{BASE}emails/change/").context["tiles"]}
    assert (tiles["Parked"]["count"], tiles["Parked"]["url"]) == ("3", PARKED)
