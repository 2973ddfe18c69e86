"""The pages of a queue with partitions, and of its partitions."""

import re

import pytest

from mq_django import inspector
from mq_django.admin.queue_admin import ROUTES
from mq_django.conf import get_config
from mq_django.core.messages import Bury
from mq_django.inspector import actions
from tests.admin.conftest import BASE, history
from tests.admin.pages import main_of
from tests.seeding import beat, publish, settle, take

pytestmark = pytest.mark.django_db

PARTITIONS = 3
NAMES = [f"payments.{number}" for number in range(PARTITIONS)]


@pytest.fixture(autouse=True)
def payments(mq_settings):
    """Configure the queue `payments` with a ready message in each partition."""
    mq_settings(QUEUES={"payments": {"PARTITIONS": PARTITIONS, "ORDERED": True}, "emails": {}})
    for _ in range(PARTITIONS):
        publish("payments", "pay", {})
    for name in NAMES:
        beat(name, "s1", consumers=2)


def links(response):
    return re.findall(r'href="([^"]*)"', main_of(response))


def test_the_overview_has_one_row_for_it(viewer):
    response = viewer.get(BASE)

    assert main_of(response).count(f"{BASE}payments/change/") == 1
    assert "3 partitions" in main_of(response)
    assert f"{BASE}payments.0/change/" not in links(response)


def test_its_page_has_sums_and_a_table_of_its_partitions(viewer):
    response = viewer.get(f"{BASE}payments/change/")

    tiles = {tile["label"]: tile["count"] for tile in response.context["tiles"]}
    assert tiles["Ready"] == "3"
    assert tiles["Running consumers"] == "2"
    assert [row["name"] for row in response.context["partitions"]] == NAMES
    assert [row["ready"] for row in response.context["partitions"]] == ["1"] * PARTITIONS
    assert {f"{BASE}{name}/change/" for name in NAMES} <= {*links(response)}
    assert viewer.get(f"{BASE}payments/stats.json").status_code == 200
    assert viewer.get(f"{BASE}payments/figures/").status_code == 200
    assert viewer.get(f"{BASE}payments/change/?span=week").status_code == 200


def test_all_pages_of_a_partition_are_those_of_a_queue(viewer):
    for path in ("change", "ready", "pending", "dead", "delayed", "parked", "dead/groups"):
        response = viewer.get(f"{BASE}payments.1/{path}/")
        assert response.status_code == 200
        assert f"{BASE}payments/change/" in re.findall(r'href="([^"]*)"', response.content.decode())


def test_a_list_of_messages_is_chosen_by_partition(viewer):
    for path in ("ready/", "pending/", "dead/", "handled/", "delayed/", "parked/"):
        response = viewer.get(f"{BASE}payments/{path}?name=pay")

        assert response.status_code == 200
        found = [url for url in links(response) if url.endswith("?name=pay")]
        assert found == [f"{BASE}{n}/{path}?name=pay" for n in NAMES]


def test_no_page_of_the_queue_fails(operator):
    """Each has sums, offers the partitions, or says that there is nothing."""
    for where, *_ in ROUTES:
        if not where.startswith("<str:name>"):
            continue
        path = re.sub(
            r"<\w+:(\w+)>",
            lambda found: {"name": "payments", "state": "ready", "room": "delayed", "what": "redrive"}.get(
                found[1], "1-1"
            ),
            where,
        )
        for send in (operator.get, operator.post):
            assert send(BASE + path).status_code in (200, 302, 400, 404, 405), path


def test_pausing_it_pauses_all_partitions(operator):
    operator.post(f"{BASE}payments/pause/", {"confirmed": "yes", "reason": "no disk"})
    assert inspector.queue("payments").paused_parts == PARTITIONS

    actions.resume("payments.1")
    response = operator.get(f"{BASE}payments/change/")
    assert "Resume all partitions" in main_of(response)
    assert "has a problem in 2 of 3 partitions. payments.0 is paused." in main_of(response)
    operator.post(f"{BASE}payments/resume/", {"confirmed": "yes"})
    assert inspector.queue("payments").paused_parts == 0


def test_redriving_its_dead_letters_redrives_those_of_all_partitions(operator):
    for part in get_config().queue("payments").parts:
        settle(part.name, take(part.name, 5), Bury(error="ValueError: no", reason="attempts"))
    groups = operator.get(f"{BASE}payments/dead/groups/")
    assert [row["count"] for row in groups.context["rows"]] == ["3"]
    shown = operator.get(f"{BASE}payments/dead/all/redrive/")

    fields = dict(shown.context["fields"])
    operator.post(f"{BASE}payments/dead/all/redrive/", {**fields, "confirmed": "yes"}, follow=True)
    assert inspector.queue("payments").dead == 0
    assert inspector.queue("payments").ready == PARTITIONS


def test_what_matches_in_all_partitions_is_counted_shown_cancelled_and_logged(operator):
    for n in range(12):
        publish("payments", "charge" if n % 2 else "refund", n, key=str(n), delay=60)
    address = f"{BASE}payments/delayed/all/delete/"

    asked = operator.get(address, {"name": "charge"})
    assert asked.context["title"] == "Cancel 6 delayed messages?"
    shown = asked.context["rows"]
    assert len(shown) == 5
    assert all(re.search(r"/payments\.\d/message/delayed/", row["url"]) for row in shown)
    operator.post(address, dict(asked.context["fields"]))

    assert inspector.queue("payments").delayed == 6
    (said,) = history(operator, "payments")
    assert said == "Cancel 6 delayed messages where name contains “charge”: 6 cancelled"


def test_a_partition_has_a_history_of_its_own(operator):
    operator.post(f"{BASE}payments.1/pause/", {"confirmed": "yes", "reason": "look"})
    shown_by_name = {name: operator.get(f"{BASE}{name}/history/").content.decode() for name in ("payments", *NAMES)}
    assert [name for name, shown in shown_by_name.items() if "Paused the queue: look" in shown] == ["payments.1"]
    assert f'href="{BASE}payments.1/history/"' in operator.get(f"{BASE}payments.1/change/").content.decode()


def test_the_question_to_resume_it_says_who_paused_a_partition_and_why(operator):
    actions.pause("payments.2", who="ada", reason="a deploy")
    asked = operator.get(f"{BASE}payments/resume/").content.decode()
    assert "payments.2: Paused by ada" in asked
    assert "Reason: a deploy" in asked
