"""`manage.py mq find QUERY`: the search over all queues."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.core.management.base import CommandError

from mq_django import topics
from mq_django.conf import get_config
from tests.management.test_mq import mq, mq_json
from tests.seeding import bury, publish

pytestmark = pytest.mark.usefixtures("mq_settings")

WANTED = {"customer": "C-4242"}


def test_what_is_found_is_printed_by_line_and_as_json():
    dead = bury("emails", "welcome", WANTED)
    ready = publish("default", "welcome", WANTED)
    publish("default", "welcome", {"customer": "C-1"})
    heads, *lines = mq("find", "customer=C-4242 name:welcome").splitlines()
    assert heads.split() == ["queue", "state", "id", "name", "error", "data"]
    assert [line.split()[:3] for line in lines] == [["emails", "dead", dead], ["default", "ready", ready]]
    assert [row["id"] for row in mq_json("find", "C-4242 state:ready")] == [ready]
    assert [row["id"] for row in mq_json("find", "emails", "customer=C-4242")] == [dead]
    assert mq("find", "customer=C-7").strip() == "No messages."
    assert len(mq_json("find", "name:welcome", "--limit", "1")) == 1


def test_a_word_is_an_id_before_it_is_a_part_of_data():
    named = publish("emails", "welcome", 1, message_id="C-4242", delay=60)
    assert mq_json("find", "C-4242")["found"][0]["id"] == named
    other = publish("emails", "welcome", {"customer": "C-77"})
    assert [row["id"] for row in mq_json("find", "C-77")] == [other]
    with pytest.raises(CommandError, match="No queue has a message nope"):
        mq("find", "nope")


@pytest.mark.parametrize("odd", ["state:x", "queue:nope", "since:x name:a", '"open', "x=", "foo:bar name:a"])
def test_an_odd_query_is_a_wrong_argument(odd):
    with pytest.raises(CommandError) as raised:
        mq("find", odd)
    assert raised.value.returncode == 2


def test_times_that_are_typed_are_in_the_time_zone_of_the_project(mq_settings, settings):
    settings.TIME_ZONE = "America/New_York"
    mq_settings(QUEUES={"emails": {}}, TOPICS={"events": {}})
    later = f"{datetime.now(ZoneInfo(settings.TIME_ZONE)) + timedelta(hours=1):%Y-%m-%dT%H:%M}"
    publish("emails", "welcome", 1)
    assert len(mq_json("find", f"name:welcome until:{later}")) == 1
    assert len(mq_json("find", "emails", "--name", "welcome", "--until", later)) == 1

    times = ("--every", "60", "--starts", later)
    made = mq_json("schedules", "create", "digest", "--queue", "emails", "--message", "digest", *times)
    assert datetime.fromisoformat(made["options"]["starts"]) > datetime.now(UTC)

    topics["events"].group("billing").subscribe("beginning")
    topics["events"].publish("paid", 1)
    assert mq_json("topics", "seek", "events:billing", later, "--dry-run")["skipped"] == 1


def test_a_query_takes_no_other_options():
    with pytest.raises(CommandError, match="its own terms"):
        mq("find", "name:a", "--state", "dead")


def test_a_queue_that_cannot_be_read_is_named_after_what_was_found(redis_client):
    bury("emails", "welcome", WANTED)
    redis_client.set(get_config().queue("default").keys.dead, "x")
    with pytest.raises(CommandError, match="Cannot read default"):
        mq("find", "state:dead")
