"""What became of messages, in the admin."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from mq_django import inspect
from mq_django.conf import get_config
from mq_django.core.messages import Bury
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import handle

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

HANDLED = f"{BASE}emails/handled/"


@pytest.fixture
def keeping(mq_settings):
    return mq_settings(QUEUES={"default": {}, "emails": {"HISTORY": timedelta(days=3)}})


def test_there_is_a_tab_only_if_the_queue_keeps_it(operator, keeping):
    assert f'href="{HANDLED}"' in operator.get(f"{BASE}emails/ready/").content.decode()
    assert "/handled/" not in main_of(operator.get(f"{BASE}default/ready/"))


def test_a_queue_that_keeps_none_says_how_to(operator):
    shown = main_of(operator.get(HANDLED))
    assert "HISTORY" in shown
    assert "No handled messages." in shown


def test_the_newest_is_first_with_its_ending(operator, keeping):
    handle("emails", "welcome", {"user": 7, "password": "hunter2"}, message_id="m1")
    handle("emails", "remind", {"user": 8}, message_id="m2", outcome=Bury("no"), keeps_data=False)
    response = operator.get(HANDLED)
    assert "is kept for 3 d, of the latest 100,000" in response.content.decode()
    second, first = response.context["rows"]
    assert "m2" in second["id"]
    assert ("became a dead letter" in second["ending"], second["data"]) == (True, "not kept")
    assert (first["ending"], first["took"]) == ("handled", "1.5 ms")
    assert "hunter2" not in response.content.decode()


def test_the_page_of_a_message_has_what_is_known(operator, keeping):
    handle("emails", "welcome", {"user": 7}, message_id="m1", key="user:7")
    (row,) = operator.get(HANDLED).context["rows"]
    shown = main_of(operator.get(row["url"]))
    for text in ("m1", "welcome", "user:7", "handled", "&quot;user&quot;: 7", "1.5 ms"):
        assert text in shown


def test_what_is_no_longer_kept_leads_back_to_the_list(operator, keeping):
    for ref in ("1-1.m1", "x.m1", "1-1._FF", "1-1"):
        assert operator.get(f"{BASE}emails/message/handled/{ref}/").url == HANDLED


def test_each_list_finds_it_by_its_id(operator, keeping):
    handle("emails", "welcome", 1, message_id="m1")
    (row,) = operator.get(HANDLED).context["rows"]
    for place in ("handled", "ready", "pending", "delayed", "dead"):
        assert operator.get(f"{BASE}emails/{place}/", {"id": "m1"}).url == row["url"], place


def test_it_is_filtered_and_read_page_by_page(operator, keeping):
    for number in range(55):
        handle("emails", "welcome" if number % 2 else "remind", number, message_id=f"m{number}")
    first = operator.get(HANDLED)
    assert len(first.context["rows"]) == 50
    assert len(operator.get(HANDLED + first.context["go_on"]).context["rows"]) == 5
    assert len(operator.get(HANDLED, {"name": "remind"}).context["rows"]) == 28
    assert len(operator.get(HANDLED, {"to": "2001-01-01T00:00"}).context["rows"]) == 0


def test_a_filter_by_time_reads_only_what_ended_then(operator, keeping, redis_client):
    handled = get_config().queue("emails").keys.handled
    hour = 3_600_000
    first_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    for number in range(12):
        line = {"name": "welcome", "ending": "handled", "finished": first_ms + number * hour, "published": first_ms}
        redis_client.xadd(handled, {f"m{number}": json.dumps(line)}, id=f"{first_ms + number * hour}-0")

    def shown(**times):
        context = operator.get(HANDLED, times).context
        return [re.findall(r"m\d+", row["id"])[0] for row in context["rows"]], context["looked"]

    with timezone.override("UTC"):
        assert shown(**{"from": "2026-01-01T02:00", "to": "2026-01-01T04:00"}) == (["m3", "m2"], "Scanned 2 messages.")
        assert shown(**{"from": "2026-01-01T11:00"}) == (["m11"], "Scanned 1 message.")
        assert shown(to="2026-01-01T01:00") == (["m0"], "Scanned 1 message.")
        for nothing in ({"to": "1960-01-01T00:00"}, {"from": "9999-12-31T00:00"}):
            assert shown(**nothing) == ([], "Scanned 0 messages.")
    assert "Ended from" in operator.get(HANDLED).content.decode()
    assert "Published from" in operator.get(f"{BASE}emails/dead/").content.decode()


@pytest.fixture
def kept(operator, mq_settings):
    """Select what was handled: return the form with the references of the messages."""
    mq_settings(QUEUES={"default": {}, "emails": {"HISTORY": {"AGE": timedelta(days=3), "DATA": True}}})
    handle("emails", "welcome", {"user": 7}, message_id="m1", key="user:7", headers={"tenant": "t1"})
    handle("emails", "welcome", {"password": "hunter2"}, message_id="m2")
    handle("emails", "welcome", {"user": 9}, message_id="m3", keeps_data=False)
    response = operator.get(HANDLED)
    assert [what for what, _ in response.context["chosen_actions"]] == ["again", "export"]
    return {"_selected_action": [row["ref"] for row in response.context["rows"]]}


def test_selected_messages_are_published_again_as_new_ones_without_those_with_secrets(operator, kept):
    asked = operator.post(f"{HANDLED}chosen/", {**kept, "action": "again"}).content.decode()
    assert "Publish 2 messages again?" in asked
    done = operator.post(f"{HANDLED}chosen/", {**kept, "action": "again", "confirmed": "yes"}, follow=True)

    (made,) = inspect.messages("emails", "ready", limit=5).rows
    assert (made.name, made.data, made.key, made.id != "m1") == ("welcome", {"user": 7}, "user:7", True)
    assert made.headers == {"tenant": "t1"}
    shown = done.content.decode()
    assert "1 message was published." in shown
    assert "1 has secrets" in shown
    assert [(each.verb, each.about, each.done) for each in inspect.actions().rows] == [("publish", [made.id], 1)]


def test_selected_messages_are_exported_without_secrets(operator, kept):
    lines = operator.post(f"{HANDLED}chosen/", {**kept, "action": "export"}).content.decode()
    assert [json.loads(line)["id"] for line in lines.splitlines()] == ["m2", "m1"]
    assert "hunter2" not in lines


def test_who_may_not_see_data_selects_no_handled_messages(log_in, kept):
    blind = log_in("view_queue", "operate_queue")
    assert blind.get(HANDLED).context["chosen_actions"] == []
    for action in ("again", "export"):
        assert blind.post(f"{HANDLED}chosen/", {**kept, "action": action}).status_code == 403
