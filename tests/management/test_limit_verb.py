"""`manage.py mq limit`, and what `mq status --limits` says of limits that were changed."""

import pytest

from mq_django import inspect
from tests.management.test_mq import mq, mq_json, refusal


@pytest.fixture(autouse=True)
def _queues(mq_settings):
    limits = {"RATE_LIMIT": {"queue": "100/s", "key": "3/m"}, "CONCURRENCY": 5}
    mq_settings(QUEUES={"sms": limits, "plain": {}, "parted": {"PARTITIONS": 2, **limits}})


@pytest.mark.parametrize("queue", ["sms", "parted"])
def test_limits_are_changed_listed_and_changed_back(queue):
    assert mq("limit") == "All limits are as in the settings.\n"
    assert mq("limit", queue, "--rate", "10/s", "--concurrency", "none", "--reason", "they asked") == "changed\n"
    assert mq_json("limit", queue, "--key-rate", "1/h") == {"changed": True}
    rows = mq_json("limit", queue)
    assert rows == mq_json("limit")
    assert [(row["limit"], row["value"], row["setting"], row["reason"]) for row in rows] == [
        ("rate", "10/s", "100/s", "they asked"),
        ("concurrency", "none", "5", "they asked"),
        ("key_rate", "1/h", "3/m", None),
    ]
    assert mq("limit", queue, "--reset", "rate", "concurrency") == "changed\n"
    assert [row["limit"] for row in mq_json("limit")] == ["key_rate"]
    assert mq_json("limit", queue, "--reset") == {"changed": True}
    assert mq("limit", queue, "--reset") == "was as in the settings\n"


@pytest.mark.parametrize("queue", ["sms", "parted"])
def test_status_shows_both_values_and_why(queue):
    inspect.set_limits(queue, rate="10/s", concurrency="none", who="ann", reason="they asked")
    (row,) = mq_json("status", "--limits", queue)
    assert [(limit["limit"], limit["most"]) for limit in row["limits"]] == [
        ("rate", 10),
        ("rate of each key", 3),
    ]
    rate, concurrency = row["changed"]
    assert (rate["value"], rate["setting"], rate["who"], rate["reason"]) == ("10/s", "100/s", "ann", "they asked")
    shown = mq("status", "--limits", queue)
    assert f"{queue}: {rate['sentence']}\n{queue}: {concurrency['sentence']}\n" in shown
    assert rate["sentence"].startswith("Rate of the queue: 10/s instead of 100/s. Since ")
    assert rate["sentence"].endswith("Changed by ann. Reason: they asked")
    assert "no limit instead of 5." in concurrency["sentence"]


def test_wrong_limits_are_refused():
    assert refusal("limit", "--rate", "1/s")[1] == 2
    assert "speed" in refusal("limit", "sms", "--reset", "speed")[0]
    assert "--reset contradicts --rate" in refusal("limit", "sms", "--rate", "1/s", "--reset")[0]
    assert mq("limit", "plain") == "Queue plain has no limits in the settings that could be changed.\n"
    assert "does not have RATE_LIMIT in the settings" in refusal("limit", "plain", "--rate", "1/s")[0]
    assert '"100/m"' in refusal("limit", "sms", "--rate", "fast")[0]
    assert "Give a limit" in refusal("limit", "sms", "--reason", "none")[0]
    assert mq_json("limit") == []
