"""The verbs of `mq` for a topic with partitions."""

import re
from contextlib import suppress

import pytest
from django.core.management.base import CommandError

from mq_django import topics
from mq_django.conf import get_config
from tests.management.test_mq import mq, mq_json

PARTITIONS = 3
NAMES = [f"events.{number}" for number in range(PARTITIONS)]


@pytest.fixture(autouse=True)
def events(mq_settings):
    """Configure a topic with two messages in each partition."""
    mq_settings(TOPICS={"events": {"PARTITIONS": PARTITIONS}})
    topics["events"].group("billing").subscribe("beginning")
    for number in range(2 * PARTITIONS):
        topics["events"].publish("paid", number, on_commit=False)
    return topics["events"]


def test_the_log_is_listed_by_time_and_page_by_page():
    first = mq_json("topics", "log", "events", "--limit", "4")
    after = first[-1]["entry"]
    assert after.rpartition(".")[2] in {"0", "1", "2"}
    second = mq_json("topics", "log", "events", "--after", after)
    assert (len(first), len(second)) == (4, 2)
    assert {row["data"] for row in first + second} == set(range(6))
    assert len(mq_json("topics", "log", "events.1")) == 2


def test_the_partitions_of_a_group_are_listed():
    rows = mq_json("status", "events:billing", "--partitions")
    assert [(row["partition"], row["ready"]) for row in rows] == [(f"{name}:billing", 2) for name in NAMES]
    with pytest.raises(CommandError, match="or one of its groups"):
        mq("status", "events", "--partitions")


@pytest.mark.parametrize("name", ["events:billing", "events.1:billing"])
def test_the_number_of_a_topic_does_not_change(name):
    with pytest.raises(CommandError, match=r"of a topic does not change\. Publish to a topic with another name\."):
        mq("repartition", name, "4", "--yes")


def test_all_topics_and_partitions_share_what_one_look_reads(mq_settings, redis_client, monkeypatch, capsys, subtests):
    monkeypatch.setattr("mq_django.stores.topic_stats.MAX_GROUPS", 9)
    mq_settings(QUEUES={}, TOPICS={"few": {}, "parts": {"PARTITIONS": 2}, "sales": {}})
    for topic, names in {"sales": "abcde", "parts": "abcd", "few": "a"}.items():
        for part in get_config().topic(topic).each_part:
            redis_client.xadd(part.keys.log, {"id": "1"})
            for name in names:
                redis_client.xgroup_create(part.keys.log, name, "0")

    for verb in ("status", "topics"):
        with subtests.test(verb):
            rows = {row.get("queue") or row["group"] for row in mq_json(verb)}
            assert sorted(rows) == ["few:a", "parts:a", "parts:b", "sales:a", "sales:b"]
            assert _left_out(capsys) == [("parts", "2"), ("sales", "3")]
    for option in ("--check", "--rates"):
        with subtests.test(option):
            # Of a check, 1 means that there are problems.
            with suppress(SystemExit):
                mq("status", option)
            assert _left_out(capsys) == [("parts", "2"), ("sales", "3")]


def _left_out(capsys):
    return re.findall(r"Topic (\w+) has (\d) more groups", capsys.readouterr().err)
