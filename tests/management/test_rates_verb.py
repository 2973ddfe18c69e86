"""`manage.py mq status --rates` and `mq status --limits`."""

import pytest

from mq_django import topics
from mq_django.core import clock
from mq_django.inspector import topics as inspected
from tests.management.test_mq import mq, mq_json, refusal
from tests.seeding import opened, publish, tally

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_rates_of_all_queues_are_those_of_the_last_minutes():
    tally("emails", {("handled", "welcome"): 6, ("retried", "welcome"): 2})
    _, emails = mq_json("status", "--rates")
    assert (emails["handled_30min"], emails["retried_30min"], emails["failed_share"]) == (6, 2, 0.25)
    assert mq("status", "--rates").splitlines()[0].split()[:3] == ["queue", "published_min", "handled_min"]


def test_rates_of_a_queue_are_by_name():
    tally("emails", {("handled", "welcome"): 4, ("handled", "remind"): 2})
    rows = mq_json("status", "--rates", "emails")
    assert [(row["name"], row["handled"]) for row in rows] == [(None, 6), ("welcome", 4), ("remind", 2)]
    assert mq("status", "--rates", "emails").splitlines()[1].split()[:2] == ["emails", "(all)"]
    assert mq_json("status", "--rates", "emails", "--hours", "2")[0]["name"] is None


def test_rates_say_that_there_are_too_many_names(monkeypatch, capsys):
    tally("emails", {("handled", "welcome"): 4, ("handled", "remind"): 2})
    monkeypatch.setattr("mq_django.inspector.statistics.MAX_COUNTERS", 1)
    assert [row["handled"] for row in mq_json("status", "--rates", "emails")] == [6]
    assert "too many figures to list the names of: emails." in capsys.readouterr().err


@pytest.fixture
def shifted():
    yield clock.set_shift
    clock.set_shift(0)


def test_what_is_shown_as_now_is_now_by_the_clock_by_which_programs_count(mq_settings, shifted, subtests):
    mq_settings(QUEUES={"emails": {}, "payments": {"PARTITIONS": 2}}, TOPICS={"events": {}})
    for shift in (-5400, -300, 300, 5400):
        shifted(shift)
        for queue in ("emails", "payments.0", "payments.1"):
            tally(queue, {("handled", "welcome"): 3})
        topics["events"].publish("happened")
        with subtests.test(shift=shift):
            assert {row["queue"]: row["handled_min"] for row in mq_json("status", "--rates")} == {
                "emails": 3,
                "payments": 6,
            }
            assert [round(view.activity.per_minute("published"), 1) for view in inspected.topics()] == [1]


def test_counts_are_of_the_period_that_is_said(shifted):
    shifted(-3700)
    tally("emails", {("handled", "welcome"): 5})
    shifted(0)
    for args, handled in (((), 0), (("--hours", "1"), 0), (("--hours", "3"), 5)):
        (total, *_) = mq_json("status", "--rates", "emails", *args)
        assert total["handled"] == handled
        assert mq("status", "--rates", "emails", *args).splitlines()[-1].startswith(f"Since {total['since'][:10]}")
    _, emails = mq_json("status", "--rates")
    assert (emails["handled_min"], emails["handled_30min"], emails["failed_share"]) == (0, 0, None)


def test_hours_need_a_queue_and_have_a_range():
    every = (("--hours", "2"), ("emails", "--hours", "169"), ("emails", "--hours", "0"))
    assert [args for args in every if refusal("status", "--rates", *args) == ("", 0)] == []


def test_limits_show_what_is_used_and_whose_messages_wait(mq_settings):
    assert mq("status", "--limits") == "No queue has limits.\n"
    mq_settings(QUEUES={"emails": {"CONCURRENCY": {"queue": 5, "key": 1}, "RATE_LIMIT": "100/m"}})
    for number in range(3):
        publish("emails", "welcome", {"n": number}, key="user:7")
    store = opened("emails")
    store.take("c1", count=10)

    (row,) = mq_json("status", "--limits")

    assert [(limit["limit"], limit["most"], limit["used"]) for limit in row["limits"]] == [
        ("rate", 100, 1),
        ("concurrency", 5, 1),
        ("concurrency of each key", 1, None),
    ]
    assert (row["parked"], [(key["key"], key["parked"]) for key in row["keys"]]) == (2, [("user:7", 2)])
    assert "user:7" in mq("status", "--limits", "emails")
