"""Delayed and unhandled messages in the admin, and their cancelling."""

import re

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector
from mq_django.core.messages import Expire
from tests.admin.conftest import BASE
from tests.seeding import publish, set_aside, settle, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

DELAYED = f"{BASE}emails/delayed/"
UNHANDLED = f"{BASE}emails/unhandled/"
CANCEL = f"{BASE}emails/delayed/chosen/"


def test_delayed_messages_come_in_the_order_of_their_due_times(operator):
    for minutes in (30, 10, 20):
        publish("emails", "welcome", {"n": minutes}, delay=60 * minutes, message_id=f"m{minutes}")

    page = operator.get(DELAYED)

    assert [row["ref"] for row in page.context["rows"]] == ["m10", "m20", "m30"]
    assert "in 9 min" in page.content.decode()


def test_a_page_has_fifty_of_many_and_nonsense_is_the_first(operator):
    for n in range(70):
        publish("emails", "welcome", n, delay=60 + n)

    first = operator.get(DELAYED)
    assert len(first.context["rows"]) == 50
    assert len(operator.get(DELAYED + first.context["go_on"]).context["rows"]) == 20
    for nonsense in ("0", "-1", "x", "9" * 30, "٣"):
        assert len(operator.get(DELAYED, {"after": nonsense}).context["rows"]) == 50


def test_a_message_is_found_by_its_id_or_its_unique_key_and_shown(operator):
    publish("emails", "welcome", {"cart": 7, "token": "t"}, delay=60, message_id="m1")
    publish("emails", "remind", {"cart": 8}, delay=60, unique="cart:8")

    by_id = operator.get(DELAYED, {"id": "m1"}, follow=True).content.decode()
    by_key = operator.get(DELAYED, {"id": "cart:8"}, follow=True).content.decode()

    assert "&quot;cart&quot;: 7" in by_id
    assert "[redacted]" in by_id
    assert "&quot;cart&quot;: 8" in by_key
    assert "cart:8" in by_key
    assert "There is no message with the id “nope” here." in operator.get(DELAYED, {"id": "nope"}).content.decode()


def test_whoever_asks_for_a_message_that_has_expired_is_told(operator):
    message_id = publish("emails", "welcome", 1)
    settle("emails", take("emails", 1), Expire())
    for page in ("delayed", "ready", "pending", "dead"):
        found = operator.get(f"{BASE}emails/{page}/", {"id": message_id}, follow=True)
        assert re.search(
            rf"Message “{message_id}” was discarded (\d+|&lt; 1) s ago: it had expired", found.content.decode()
        )
        nothing = operator.get(f"{BASE}emails/{page}/", {"id": "nope"}, follow=True)
        assert "had expired" not in nothing.content.decode()


def test_unhandled_messages_have_a_page(operator):
    message_id = set_aside("emails", "orders.archived.v2", {"n": 1})

    page = operator.get(UNHANDLED).content.decode()

    assert message_id in page
    assert "orders.archived.v2" in page
    assert "become ready when a consumer with one starts" in page


@pytest.mark.parametrize("unique", [None, "cart:8/../<b>"])
def test_a_delayed_message_is_cancelled_once_that_is_confirmed(operator, unique):
    publish("emails", "welcome", 1, delay=60, message_id="m1", unique=unique)
    ((row,),) = [operator.get(DELAYED).context["rows"]]
    fields = {"action": "cancel", "_selected_action": row["ref"]}

    assert "Cancel 1 delayed message?" in operator.post(CANCEL, fields).content.decode()
    assert inspector.queue("emails").delayed == 1
    done = operator.post(CANCEL, {**fields, "confirmed": "yes"}, follow=True)

    assert "1 message was cancelled." in done.content.decode()
    assert inspector.queue("emails").delayed == 0
    assert LogEntry.objects.get().change_message.startswith("Cancelled 1 message: ")


def test_several_are_cancelled_and_what_became_ready_meanwhile_is_said(operator):
    for n in range(3):
        publish("emails", "welcome", n, delay=60, message_id=f"m{n}")
    members = ["m0", "m1", "gone"]

    done = operator.post(CANCEL, {"action": "cancel", "_selected_action": members, "confirmed": "yes"}, follow=True)

    page = done.content.decode()
    assert "2 messages were cancelled." in page
    assert "1 no longer existed" in page
    assert inspector.queue("emails").delayed == 1


def test_old_addresses_lead_to_where_a_list_or_a_message_is(operator):
    moved = {
        "waiting/parked/?name=a": "parked/?name=a",
        "waiting/delayed/m_3A1/": "message/delayed/m_3A1/",
        "entry/front/1-1/": "message/ready/front.1-1/",
        "handled/1-1/m1/": "message/handled/1-1.m1/",
        "dead/1-1/": "message/dead/1-1/",
    }
    assert {old: operator.get(f"{BASE}emails/{old}").url.removeprefix(f"{BASE}emails/") for old in moved} == moved
