"""Cancelling or purging all messages that a filter found: previewed, in the background, shown and cancelled."""

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector, topics
from mq_django.admin import job_pages
from mq_django.consumers.supervisor.job_runner import work_here
from mq_django.stores.background_jobs import IDLE
from tests.admin.conftest import BASE, url_of_all
from tests.admin.pages import main_of
from tests.seeding import beat, publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

DELAYED, JOB = f"{BASE}emails/delayed/", f"{BASE}emails/delayed/job/"
PURGE = f"{BASE}emails/delayed/all/delete/"


@pytest.fixture
def in_background(monkeypatch):
    """Leave also short jobs to consumers."""
    monkeypatch.setattr(job_pages, "AT_ONCE", 0)


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
    assert "name contains “welc”" in page
    assert "and 40 more" in page
    assert inspector.queue("emails").delayed == 63
    done = operator.post(asked.context["act_url"], dict(asked.context["fields"]), follow=True)

    assert "Deleted: 60 messages." in done.content.decode()
    assert inspector.queue("emails").delayed == 3
    said = "Began to cancel 60 delayed messages where name contains “welc”"
    assert LogEntry.objects.get().change_message == said


def test_history_says_as_many_as_the_preview(operator, monkeypatch):
    monkeypatch.setattr(job_pages, "PREVIEWED", 10)
    delay_many(30)
    asked = operator.get(PURGE, {"name": "welcome"})
    assert asked.context["title"] == "Cancel up to 30 delayed messages?"

    operator.post(PURGE, dict(asked.context["fields"]))

    said = "Began to cancel up to 30 delayed messages where name contains “welcome”"
    assert LogEntry.objects.get().change_message == said


def test_a_running_job_is_shown_on_the_overview_its_queue_and_the_list(operator, in_background):
    delay_many(700)
    beat("emails")
    asked = operator.get(PURGE)
    begun = operator.post(PURGE, dict(asked.context["fields"]), follow=True)
    assert begun.redirect_chain[-1][0] == JOB
    assert step() == 0

    for address in (BASE, f"{BASE}emails/change/", DELAYED, JOB):
        page = main_of(operator.get(address))
        assert "Deleting messages:" in page, address
        assert " of 700, " in page, address
        assert " s left." in page, address
    parts = operator.get(f"{BASE}stats.json").json()["parts"]
    assert "<strong>emails</strong> Deleting messages:" in parts["jobs"]
    assert JOB in parts["jobs"]
    while step() != IDLE:
        pass
    assert "Deleting" not in main_of(operator.get(BASE))
    assert "Deleted: 700 messages." in main_of(operator.get(DELAYED))


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
    assert own == [str(example)[5:-6] for example in asked.context["listed"]]
    done = operator.post(address, dict(asked.context["fields"]), follow=True)
    assert "Deleted: 2 messages." in done.content.decode()
    assert inspector.queue("orders:billing").ready == 3
    assert LogEntry.objects.get().change_message == "Began to purge 2 ready messages"


def test_old_addresses_lead_to_the_new_ones(operator, in_background):
    delay_many(3)
    assert operator.get(f"{BASE}emails/job/").url == f"{BASE}emails/change/"
    asked = operator.get(f"{BASE}emails/purge/delayed/?name=welcome").url
    assert asked == f"{PURGE}?name=welcome"
    operator.post(asked, dict(operator.get(asked).context["fields"]))

    assert [operator.get(f"{BASE}emails/{old}").url for old in ("job/", "job/cancel/")] == [JOB, JOB]
