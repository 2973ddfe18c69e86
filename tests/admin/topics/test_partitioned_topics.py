"""The pages of a topic with partitions, and of its partitions."""

import re

import pytest

from mq_django import topics
from mq_django.admin.queue_admin import ROUTES
from mq_django.conf import get_config
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import beat

pytestmark = pytest.mark.django_db

PARTITIONS = 3
NAMES = [f"events.{number}" for number in range(PARTITIONS)]
ME = "host-1-me"


@pytest.fixture(autouse=True)
def events(mq_settings):
    """Configure a topic with four messages in each partition; its group has got one of each."""
    mq_settings(TOPICS={"events": {"PARTITIONS": PARTITIONS}})
    topic = topics["events"]
    topic.group("billing").subscribe("beginning")
    for number in range(4 * PARTITIONS):
        topic.publish("paid", number, on_commit=False)
    for part in get_config().queue("events:billing").parts:
        open_store(part, Session(get_client("consume"))).take(ME, count=1)
        beat(part.name)
    return topic


def links(response):
    return re.findall(r'href="([^"]*)"', main_of(response))


def test_the_overview_has_one_row_for_the_topic_and_one_for_its_group(viewer):
    topic, group = viewer.get(BASE).context["topics"]
    assert (topic["name"], topic["messages"]) == ("events", "12")
    assert (group["name"], group["lag"], group["pending"], group["alive"]) == ("billing", "9", "3", "1")


def test_its_page_has_sums_and_a_table_of_its_partitions(viewer):
    response = viewer.get(f"{BASE}events/change/")
    tiles = {tile["label"]: tile["count"] for tile in response.context["tiles"]}
    assert (tiles["Messages"], tiles["Largest lag"]) == ("12", "9")
    assert [(row["name"], row["count"], row["lag"]) for row in response.context["partitions"]] == [
        (name, "4", "3 (billing)") for name in NAMES
    ]
    assert {f"{BASE}{name}/change/" for name in NAMES} <= {*links(response)}
    assert "topic_partitions" in viewer.get(f"{BASE}events/topic.json").json()["parts"]
    assert viewer.get(f"{BASE}events/published/").status_code == 200


def test_the_pages_of_a_partition_are_those_of_a_topic(viewer):
    response = viewer.get(f"{BASE}events.1/change/")
    assert {tile["label"]: tile["count"] for tile in response.context["tiles"]}["Messages"] == "4"
    assert f"{BASE}events/change/" in re.findall(r'href="([^"]*)"', response.content.decode())
    assert len(viewer.get(f"{BASE}events.1/log/").context["rows"]) == 4
    group = viewer.get(f"{BASE}events.1%3Abilling/change/")
    assert "Position in the log" in main_of(group)
    assert viewer.get(f"{BASE}events.3/change/").status_code == 302


def test_the_log_lists_the_messages_of_all_partitions_and_links_to_each(viewer):
    response = viewer.get(f"{BASE}events/log/")
    rows = response.context["rows"]
    assert len({row["offset"] for row in rows}) == 12
    delivered = [row for row in rows if row["delivered"] == "all groups"]
    assert sorted(row["offset"].rpartition(".")[2] for row in delivered) == ["0", "1", "2"]
    page = viewer.get(delivered[0]["url"])
    assert page.status_code == 200
    assert [group["given"] for group in page.context["groups"]] == [True]
    assert viewer.get(f"{BASE}events/log/1-0.9/").status_code == 302


def test_its_group_has_a_table_of_its_partitions_and_no_offset_of_its_own(viewer):
    response = viewer.get(f"{BASE}events%3Abilling/change/")
    assert [row["name"] for row in response.context["partitions"]] == [f"{name}:billing" for name in NAMES]
    assert "Offset" not in dict(response.context["position"])


def test_the_group_is_moved_in_all_partitions(events, operator):
    where = f"{BASE}events:billing/seek/"
    asked = operator.post(where, {"to": "beginning"})
    assert "3 messages are handled again." in main_of(asked)
    operator.post(where, {"to": "beginning", "confirmed": "yes"})
    assert events.group("billing").status().position.lag == 12
    operator.post(f"{BASE}events.1:billing/seek/", {"to": "end", "confirmed": "yes"})
    assert events.group("billing").status().position.lag == 8
    operator.post(f"{BASE}events:billing/unsubscribe/", {"confirmed": "yes"})
    assert events.groups() == []


def test_no_page_of_the_group_or_the_topic_fails(operator):
    for where, *_ in ROUTES:
        for start, name in (("<str:name>", "events:billing"), ("<str:topic>", "events")):
            if where.startswith(start):
                path = re.sub(r"<str:(name|topic)>", name, where)
                path = re.sub(r"<str:room>", "delayed", path)
                path = re.sub(r"<str:place>|<mq_state:state>", "ready", path)
                path = re.sub(r"<str:what>", "redrive", path)
                path = re.sub(r"<[^>]*>", "1-0", path)
                assert operator.get(f"{BASE}{path}").status_code in (200, 302, 404, 405), path
