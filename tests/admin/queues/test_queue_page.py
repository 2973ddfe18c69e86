"""The page of a queue: charts, by handler, limits, schedules."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import every, inspector, queues, registry
from mq_django.conf import get_config
from mq_django.core.schedules import Scheduled
from mq_django.inspector import plans
from mq_django.stores.counters import bucket, latency_bucket
from mq_django.stores.members import Members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import CONSUMER, opened, publish_many, take, tally

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

PAGE, STATS = f"{BASE}emails/change/", f"{BASE}emails/stats.json"
NASTY = "\"'><script>alert(1)</script>\u202e"
DIGEST = {"every": timedelta(hours=1), "message": "digest", "queue": "emails", "data": {"n": 1}}


def happened():
    """Two handlers: one took 20 ms, its messages were ready for 3 s before; the other took an hour."""
    fast, slow = f"t{bucket(20_000)}", f"t{bucket(3_600_000_000)}"
    tally(
        "emails",
        {
            ("published", "welcome"): 9,
            ("handled", "welcome"): 8,
            ("retried", "welcome"): 2,
            (fast, "welcome"): 10,
            (f"w{latency_bucket(3000)}", "welcome"): 10,
            ("handled", "report"): 1,
            ("buried", "report"): 1,
            (slow, "report"): 1,
        },
    )


def test_pending_messages_that_have_not_started_are_told_apart(operator):
    publish_many("emails", [("welcome", number) for number in range(3)])
    first, *_ = take("emails", 3)
    running = {"threads": 1, "running": [[first.stream, first.entry.decode(), 5]]}
    Members(get_config().queue("emails"), Pooled(get_client("chores"))).beat("s1", {}, {CONSUMER: running})

    assert re.search(r"not started: 2, oldest: (\d+|&lt; 1) s", main_of(operator.get(PAGE)))


def test_the_number_of_publishes_is_marked_as_ours(operator, redis_client):
    happened()
    redis_client.xadd(get_config().queue("emails").keys.ready, {"type": "welcome", "data": "1"})
    page = main_of(operator.get(PAGE))
    assert "9 published" in page
    assert "A plain XADD is not counted" in page


def test_handling_time_and_latency_are_shown_for_each_span(operator):
    happened()
    for span in ("hour", "day", "week"):
        page = main_of(operator.get(PAGE, {"span": span}))
        assert "9 published, 9 handled, 2 failed and retried, 1 buried." in page
        assert "p50 20 ms, p95 over 7 min." in page
        assert "Latency: p50 3.0 s, p95 3.9 s." in page
        assert page.count('role="img"') == 3


def test_charts_of_one_handler_show_it_alone(operator):
    happened()
    for span in ("hour", "week"):
        page = main_of(operator.get(PAGE, {"span": span, "of": "report"}))
        assert "0 published, 1 handled, 0 failed and retried, 1 buried." in page
        assert "Only messages named" in page
        # The table still compares all, and the tiles are the queue's.
        assert "welcome" in page
        assert f"stats.json?span={span}&amp;of=report" in page
        assert "0 published, 1 handled" in operator.get(STATS, {"span": span, "of": "report"}).json()["parts"]["charts"]


def test_the_charts_are_there_as_a_table(operator):
    happened()
    page = operator.get(f"{BASE}emails/figures/")

    (row,) = page.context["figures"]
    assert row["counts"] == ["9", "9", "2", "1"]
    assert row["times"][2:] == ["3.0 s", "3.9 s"]
    assert "<caption" in main_of(page)
    assert operator.get(f"{BASE}emails/figures/", {"of": "nobody"}).context["figures"] == []


def test_more_counters_than_a_page_reads_are_still_charts(operator, monkeypatch):
    """Only the table by name is left out, and says so; what is asked for by name is right."""
    monkeypatch.setattr("mq_django.inspector.statistics.MAX_COUNTERS", 5)
    happened()
    said = "There are too many figures to list them here."

    for span in ("hour", "day"):
        response = operator.get(PAGE, {"span": span})
        assert "9 published, 9 handled" in main_of(response)
        assert "Latency: p50 3.0 s" in main_of(response)
        assert response.context["names"] == []
        assert said in main_of(response)
        assert "No activity." not in main_of(response)
        response = operator.get(PAGE, {"span": span, "of": "report"})
        assert "0 published, 1 handled" in main_of(response)
        assert ["report" in row["name"] for row in response.context["names"]] == [True]
        assert said in main_of(response)


def test_many_names_are_listed_up_to_a_number(operator):
    tally("emails", {("handled", f"name{n}"): n + 1 for n in range(60)})
    response = operator.get(PAGE)

    assert len(response.context["names"]) == 50
    assert "and 10 more names" in main_of(response)


@pytest.fixture
def limited(mq_settings, namespace):
    limits = {"RATE_LIMIT": {"queue": "90/m", "key": "3/m"}, "CONCURRENCY": {"queue": 50, "key": 1}}
    mq_settings(QUEUES={"emails": limits, "jobs": {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}})
    store = opened("emails")
    for key in ("tenant:a", "tenant:a", "tenant:a", "tenant:b"):
        queues["emails"].publish("sms", 1, key=key, on_commit=False)
    store.take("c1", count=10)


def test_limits_show_how_far_they_are_used_and_who_waits(operator, viewer, limited):
    response = operator.get(PAGE)

    assert [(row["limit"], row.get("used")) for row in response.context["limits"]] == [
        ("90 in 1 min", "2 of 90"),
        ("50", "2 of 50"),
        ("3 in 1 min", None),
        ("1", None),
    ]
    (waits,) = response.context["limit_keys"]
    assert (waits["parked"], waits["granted"], waits["concurrent"]) == ("2", "1 of 3", "1 of 1")
    assert "tenant:a" in main_of(response)
    assert "limits" in operator.get(STATS).json()["parts"]
    # A key may quote data.
    assert "tenant:a" not in main_of(viewer.get(PAGE))


def test_hostile_keys_are_harmless(operator, limited):
    for _ in range(3):
        queues["emails"].publish("sms", 1, key=NASTY[:-1], on_commit=False)
    opened("emails").take("c1", count=10)

    page = operator.get(PAGE).content.decode()

    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


@pytest.fixture
def digest(mq_settings):
    mq_settings(SCHEDULES={"digest": DIGEST})


def act(client, verb, **fields):
    return client.post(f"{BASE}emails/schedule/{verb}/", {"schedule": "digest", **fields}, follow=True)


def test_schedules_show_their_next_and_last_firing(operator, digest):
    response = operator.get(PAGE)
    (row,) = response.context["schedules"]

    assert (row["name"], row["when"], row["paused"], row["gone"]) == ("digest", "every hour", False, False)
    assert "in " in row["next"]
    assert row["last"] == ""
    act(operator, "fire", confirmed="yes")
    assert "ago" in operator.get(PAGE).context["schedules"][0]["last"]


def test_a_schedule_is_fired_once_that_is_confirmed(operator, digest):
    asked = act(operator, "fire")
    assert "Fire schedule “digest” now?" in asked.content.decode()
    assert "1 message" in main_of(asked)
    assert not LogEntry.objects.exists()
    assert inspector.queue("emails").ready == 0

    done = act(operator, "fire", confirmed="yes")

    assert " was published." in done.content.decode()
    assert inspector.queue("emails").ready == 1
    assert LogEntry.objects.get().change_message.startswith("Fired schedule digest: message ")


def test_a_schedule_is_paused_and_resumed_and_what_changes_nothing_is_not_in_the_log(operator, digest):
    assert "The schedule is not paused." in act(operator, "resume", confirmed="yes").content.decode()
    asked = act(operator, "pause")
    assert "Pause schedule “digest”?" in asked.content.decode()
    assert "1 message" in main_of(asked)
    assert not LogEntry.objects.exists()
    assert not plans.find("emails", "digest").paused

    assert "The schedule is paused." in act(operator, "pause", confirmed="yes").content.decode()

    page = operator.get(PAGE)
    assert page.context["schedules"][0]["paused"]
    assert "Resume…" in main_of(page)
    assert "The schedule is already paused." in act(operator, "pause", confirmed="yes").content.decode()
    assert LogEntry.objects.get().change_message == "Paused schedule digest"
    act(operator, "resume", confirmed="yes")
    assert not plans.find("emails", "digest").paused


def test_a_schedule_is_not_fired_into_a_full_queue(operator, mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {"MAX_DEPTH": 1}}, SCHEDULES={"digest": DIGEST})
    assert " was published." in act(operator, "fire", confirmed="yes").content.decode()
    assert "The queue is at its MAX_DEPTH" in act(operator, "fire", confirmed="yes").content.decode()
    assert inspector.queue("emails").ready == 1


def test_a_schedule_whose_message_cannot_be_sent_says_so_to_those_who_see_data(operator, log_in, monkeypatch):
    entry = Scheduled(name="digest", queue="emails", message="digest", data={"n": object}, when=every(hours=1))
    monkeypatch.setattr(registry, "_schedules", {"digest": entry})

    assert "JSON" in act(operator, "fire", confirmed="yes").content.decode()

    clerk = log_in("view_queue", "operate_queue")
    assert "Nothing was done." in act(clerk, "fire", confirmed="yes").content.decode()
    assert not LogEntry.objects.exists()


def test_a_tick_is_skipped_and_fires_after_all_once_that_is_confirmed(operator, digest):
    tick = plans.find("emails", "digest").next_ms
    asked = act(operator, "skip")
    assert "Skip the tick 20" in asked.content.decode()
    assert f'name="tick" value="{tick}"' in asked.content.decode()
    assert not plans.find("emails", "digest").skips
    for _ in range(2):
        assert " is skipped." in act(operator, "skip", tick=tick, confirmed="yes").content.decode()
    (skipped,) = plans.find("emails", "digest").skips
    assert skipped.tick_ms == tick
    assert skipped.skipped_by
    assert LogEntry.objects.last().change_message.startswith("Skipped a tick of schedule digest: 20")

    page = operator.get(PAGE)
    (row,) = page.context["schedules"]
    assert "skips 20" in row["skips"][0]["note"]
    assert "Do not skip…" in main_of(page)
    asked = operator.post(row["skips"][0]["undo_url"], {"schedule": "digest"})
    assert f'name="tick" value="{tick}"' in asked.content.decode()
    act(operator, "unskip", tick=tick, confirmed="yes")
    assert not plans.find("emails", "digest").skips
    assert "The tick is not skipped." in act(operator, "unskip", tick=tick, confirmed="yes").content.decode()


def test_what_is_no_tick_is_not_skipped(operator, digest):
    for tick in ("", "x", "9" * 30):
        assert "The schedule has no such tick." in act(operator, "skip", tick=tick, confirmed="yes").content.decode()
        assert "The tick is not skipped." in act(operator, "unskip", tick=tick, confirmed="yes").content.decode()
    assert "has no tick at 2001" in act(operator, "skip", tick=978307200001, confirmed="yes").content.decode()
    assert act(operator, "unskip").status_code == 200
    assert not LogEntry.objects.exists()


def test_a_schedule_that_left_the_code_is_forgotten_and_one_that_is_there_is_not(operator, digest, mq_settings):
    act(operator, "fire", confirmed="yes")
    assert "its state was not deleted" in act(operator, "forget", confirmed="yes").content.decode()
    mq_settings()
    page = operator.get(PAGE)
    assert page.context["schedules"][0]["gone"]
    assert "Forget…" in main_of(page)
    assert "no longer in the code" in act(operator, "fire", confirmed="yes").content.decode()

    act(operator, "forget", confirmed="yes")

    assert operator.get(PAGE).context["schedules"] == []
    assert "This schedule no longer exists." in act(operator, "forget").content.decode()


def test_a_tick_that_nobody_fires_is_overdue(operator, digest, redis_client):
    redis_client.hset(get_config().queue("emails").keys.schedules, "last:digest", 1_000)

    (row,) = operator.get(PAGE).context["schedules"]

    assert row["late"]
    assert "overdue" in row["next"]


def test_hostile_schedules_are_harmless(operator, redis_client):
    redis_client.hset(get_config().queue("emails").keys.schedules, f"last:{NASTY}", "1")

    page = operator.get(PAGE)
    (row,) = page.context["schedules"]
    asked = operator.post(f"{BASE}emails/schedule/forget/", {"schedule": row["name"]})

    for content in (page.content.decode(), asked.content.decode()):
        assert "<script>alert" not in content
        assert "\u202e" not in content
    operator.post(f"{BASE}emails/schedule/forget/", {"schedule": row["name"], "confirmed": "yes"})
    assert operator.get(PAGE).context["schedules"] == []
