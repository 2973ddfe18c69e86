"""Cancel what is ready or runs, from the admin."""

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import topics
from mq_django.inspector import actions
from tests.admin.conftest import BASE
from tests.seeding import CONSUMER, forced_by_id, publish, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]


@pytest.fixture
def held():
    """The id of a message that a consumer holds, and the URL of its page."""
    message_id = publish("emails", "welcome", {"n": 1})
    (item,) = take("emails", 1)
    return message_id, f"{BASE}emails/message/pending/ready.{item.entry.decode()}/"


def test_the_page_of_a_message_leads_to_a_question(operator, held):
    message_id, url = held
    assert f'href="{url}cancel/"' in operator.get(url).content.decode()
    asked = operator.get(f"{url}cancel/").content.decode()
    assert "Cancel this message?" in asked
    assert message_id in asked
    assert "Replace its process if it goes on" in asked
    assert f'href="{BASE}consumers/{CONSUMER}/stacks/"' in asked
    assert forced_by_id("emails") == {}


@pytest.mark.parametrize(("fields", "forced"), [({}, False), ({"force": "yes"}, True)])
def test_its_consumer_is_asked_and_the_log_says_who_asked(operator, held, fields, forced):
    message_id, url = held
    answer = operator.post(f"{url}cancel/", {"confirmed": "yes", **fields}, follow=True).content.decode()
    assert "Its consumer was asked to cancel the message." in answer
    assert forced_by_id("emails") == {message_id: forced}
    said = LogEntry.objects.get().get_change_message()
    assert message_id in said
    assert ("replace its process" in said) == forced


def test_a_message_that_is_gone_is_told(operator):
    answer = operator.post(f"{BASE}emails/message/ready/ready.5-5/cancel/", {"confirmed": "yes"}, follow=True)
    assert "The message is no longer here" in answer.content.decode()
    assert forced_by_id("emails") == {}
    assert operator.get(f"{BASE}emails/message/nonsense/5-5/cancel/").status_code == 404


def test_a_group_of_a_topic_offers_nothing(operator):
    topics["orders"].group("billing").subscribe("beginning")
    assert [actions.can_cancel_running(name) for name in ("emails", "orders:billing")] == [True, False]
    answer = operator.post(f"{BASE}orders:billing/message/ready/log.5-5/cancel/", {"confirmed": "yes"}, follow=True)
    assert "The message is no longer here" in answer.content.decode()


def test_selected_pending_messages_are_cancelled_after_one_question(operator, held):
    message_id, _ = held
    url = f"{BASE}emails/pending/"
    shown = operator.get(url)
    assert [what for what, _ in shown.context["chosen_actions"]] == ["cancel"]
    fields = {"action": "cancel", "_selected_action": [shown.context["rows"][0]["ref"], "ready.5-5"]}

    asked = operator.post(f"{url}chosen/", fields).content.decode()
    assert "Cancel 2 pending messages?" in asked
    assert message_id in asked
    assert forced_by_id("emails") == {}
    done = operator.post(f"{url}chosen/", {**fields, "confirmed": "yes"}, follow=True).content.decode()

    assert "The consumer of 1 message was asked to cancel it." in done
    assert "1 no longer existed." in done
    assert forced_by_id("emails") == {message_id: False}
    assert message_id in LogEntry.objects.get().get_change_message()
