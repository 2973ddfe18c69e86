"""Cancelling or purging all messages that a filter found: previewed, in the background, shown and cancelled."""

from types import SimpleNamespace

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector, topics
from mq_django.admin import bulk_pages
from mq_django.consumers.supervisor.chores import work_here
from mq_django.inspector import actions, jobs
from mq_django.inspector.message_lists import messages as list_messages
from mq_django.stores.background_jobs import IDLE
from tests.admin.conftest import BASE, history, url_of_all
from tests.admin.pages import main_of
from tests.seeding import beat, publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

DELAYED, JOB = f"{BASE}emails/delayed/", f"{BASE}emails/delayed/job/"
PURGE = f"{BASE}emails/delayed/all/delete/"


@pytest.fixture
def in_background(monkeypatch):
    """Leave also short jobs to consumers."""
    monkeypatch.setattr(bulk_pages, "AT_ONCE", 0)


def delay_many(count, name="welcome"):
    for n in range(count):
        publish("emails", name, n, delay=60)


def step():
    return work_here("emails", "s1", "delayed")


def test_all_delayed_messages_of_a_name_are_cancelled_after_a_preview(operator):
    delay_many(60)
    delay_many(3, "remind")
    shown = operator.get(DELAYED, {"name": "welc"})
    assert "Cancel all matching…" in main_of(shown)

    asked = operator.get(url_of_all(shown, "delete"))
    page = main_of(asked)
    assert asked.context["title"] == "Cancel 60 delayed messages?"
    assert asked.context["chips"] == ["<bdi>name contains “welc”</bdi>"]
    dated = operator.get(PURGE, {"name": "welc", "from": "2026-01-02T03:04"}).context["chips"]
    assert [str(chip)[5:36] for chip in dated] == ["name contains “welc”</bdi>", "published from 2026-01-02 03:04"]
    assert "Examples: 5 of 60" in page
    assert [row["cells"][0][1] for row in asked.context["rows"]] == ["<bdi>welcome</bdi>"] * 5
    assert "Yes, cancel them" in page
    assert inspector.queue("emails").delayed == 63
    done = operator.post(asked.context["act_url"], dict(asked.context["fields"]), follow=True)

    assert "Cancelled: 60 messages." in done.content.decode()
    assert inspector.queue("emails").delayed == 3
    said = "Cancel 60 delayed messages where name contains “welc”: 60 cancelled"
    assert history(operator) == [said]
    nothing = operator.get(PURGE, {"name": "welc"}, follow=True)
    assert "No message matches the filter." in nothing.content.decode()


def test_examples_show_data_as_the_lists_do(operator):
    publish("emails", "welcome", {"user": 7, "password": "hunter2"}, delay=60)
    page = main_of(operator.get(PURGE))
    assert "&quot;user&quot;: 7" in page
    assert "hunter2" not in page


@pytest.mark.parametrize(("counted", "number"), [(10, "more than 10"), (30, "30")])
def test_no_more_are_counted_than_a_page_has_time_for(operator, monkeypatch, counted, number):
    monkeypatch.setattr(jobs, "MAX_COUNTED", counted)
    delay_many(30)
    asked = operator.get(PURGE, {"name": "welcome"})
    assert asked.context["title"] == f"Cancel {number} delayed messages?"
    assert f"Examples: 5 of {number}" in main_of(asked)

    operator.post(PURGE, dict(asked.context["fields"]))

    said = f"Cancel {number} delayed messages where name contains “welcome”: 30 cancelled"
    assert history(operator) == [said]


@pytest.mark.parametrize(("batches", "number"), [((500, 100), "at least 500"), ((0, 1), "all matching")])
def test_a_count_that_takes_too_long_says_so(operator, monkeypatch, batches, number):
    delay_many(1)
    monkeypatch.setattr(jobs, "SECONDS", -1)
    monkeypatch.setattr(jobs, "_open", lambda _: SimpleNamespace(matching=lambda _: iter(batches)))
    asked = operator.get(PURGE, {"name": "welcome"})
    assert asked.context["title"] == f"Cancel {number} delayed messages?"


def test_history_has_the_result_of_a_job_that_a_consumer_has_ended(operator, in_background):
    delay_many(30)
    operator.post(PURGE, dict(operator.get(PURGE, {"name": "welcome"}).context["fields"]))
    begun = "Cancel 30 delayed messages where name contains “welcome”"
    assert LogEntry.objects.get().change_message.startswith(f"{begun}: started as job ")
    actions.cancel("emails", [row.id for row in list_messages("emails", "delayed", limit=2).rows])
    while step() != IDLE:
        pass

    page = operator.get(f"{BASE}emails/history/").content.decode()

    assert f"{begun}: 28 cancelled, 2 no longer existed" in page
    assert operator.get(f"{BASE}orders/history/").status_code == 200


def test_history_has_the_result_of_a_job_that_the_next_one_replaces(operator, in_background):
    for _ in range(2):
        delay_many(3)
        operator.post(PURGE, dict(operator.get(PURGE).context["fields"]))
        while step() != IDLE:
            pass

    assert history(operator) == ["Cancel 3 delayed messages: 3 cancelled"] * 2


def test_history_says_of_a_job_that_it_was_cancelled(operator, in_background):
    delay_many(3)
    operator.post(PURGE, dict(operator.get(PURGE).context["fields"]))
    jobs.cancel("emails", "delayed")
    assert history(operator) == ["Cancel 3 delayed messages: the job was cancelled after 0 done"]


def test_a_running_job_is_shown_on_the_overview_its_queue_and_the_list(operator, in_background):
    delay_many(700)
    beat("emails")
    asked = operator.get(PURGE)
    begun = operator.post(PURGE, dict(asked.context["fields"]), follow=True)
    assert begun.redirect_chain[-1][0] == JOB
    assert step() == 0

    for address in (BASE, f"{BASE}emails/change/", DELAYED, JOB):
        page = main_of(operator.get(address))
        assert "Cancelling messages:" in page, address
        assert " of 700, " in page, address
        assert " s left." in page, address
    parts = operator.get(f"{BASE}stats.json").json()["parts"]
    assert "<strong>emails</strong> Cancelling messages:" in parts["jobs"]
    assert JOB in parts["jobs"]
    while step() != IDLE:
        pass
    assert "Cancelling" not in main_of(operator.get(BASE))
    assert "Cancelled: 700 messages." in main_of(operator.get(DELAYED))


def test_a_purge_of_a_group_says_that_the_log_stays(operator):
    topic = topics["orders"]
    topic.group("billing").subscribe()
    topic.publish("paid", 1, on_commit=False)

    publish("orders:billing", "again", 1)

    assert "Messages in the log of the topic stay" in main_of(operator.get(f"{BASE}orders:billing/ready/all/delete/"))


def test_a_purge_of_a_group_counts_what_it_deletes(operator):
    address = f"{BASE}orders:billing/ready/all/delete/"
    topic = topics["orders"]
    topic.group("billing").subscribe()
    topic.publish_many([("paid", n) for n in range(3)], on_commit=False)
    assert "There is nothing to purge." in operator.get(address, follow=True).content.decode()
    own = [publish("orders:billing", "again", n) for n in range(2)]

    asked = operator.get(address)

    assert asked.context["title"] == "Purge 2 ready messages?"
    assert own == [str(row["id"])[5:-6] for row in asked.context["rows"]]
    done = operator.post(address, dict(asked.context["fields"]), follow=True)
    assert "Purged: 2 messages." in done.content.decode()
    assert inspector.queue("orders:billing").ready == 3
    assert history(operator, "orders:billing") == ["Purge 2 ready messages: 2 purged"]


def test_old_addresses_lead_to_the_new_ones(operator, in_background):
    delay_many(3)
    assert operator.get(f"{BASE}emails/job/").url == f"{BASE}emails/change/"
    asked = operator.get(f"{BASE}emails/purge/delayed/?name=welcome").url
    assert asked == f"{PURGE}?name=welcome"
    operator.post(asked, dict(operator.get(asked).context["fields"]))

    assert [operator.get(f"{BASE}emails/{old}").url for old in ("job/", "job/cancel/")] == [JOB, JOB]
