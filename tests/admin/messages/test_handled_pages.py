"""What became of messages, in the admin."""

from datetime import timedelta

import pytest

from mq_django.core.outcomes import Bury
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


def test_without_its_permission_data_and_keys_are_hidden(viewer, keeping):
    handle("emails", "welcome", {"x": "rumpelstiltskin"}, message_id="m1", key="rumpelstiltskin")
    response = viewer.get(HANDLED)
    (row,) = response.context["rows"]
    assert "rumpelstiltskin" not in response.content.decode()
    assert "rumpelstiltskin" not in viewer.get(row["url"]).content.decode()


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
