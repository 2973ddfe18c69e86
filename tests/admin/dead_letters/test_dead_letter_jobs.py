"""Many dead letters: asked about once, done in the background, watched, cancelled."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.http import QueryDict

from mq_django import inspector
from mq_django.admin import bulk_pages
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core.filters import Filter
from mq_django.inspector import dead_letters, jobs
from mq_django.stores.background_jobs import IDLE
from tests.admin.conftest import BASE, history, url_of_all
from tests.seeding import beat, bury, bury_many

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

DEAD = f"{BASE}emails/dead/"
JOB = f"{DEAD}job/"


@pytest.fixture
def in_background(monkeypatch):
    """Leave everything to consumers."""
    monkeypatch.setattr(bulk_pages, "AT_ONCE", -1)


def numbers() -> tuple[int, int]:
    view = inspector.queue("emails")
    return view.ready, view.dead


def test_all_up_to_the_question_are_redriven_or_deleted_and_the_log_says_by_whom(operator):
    bury_many("emails", 7)

    asked = operator.get(f"{DEAD}all/redrive/")
    assert "Redrive 7 dead letters?" in asked.content.decode()
    bury("emails", "late")
    done = operator.post(f"{DEAD}all/redrive/", dict(asked.context["fields"]), follow=True)

    assert "Redriven: 7 dead letters." in done.content.decode()
    # The late one was ready for a moment, and took all that was ready with it.
    assert numbers() == (7, 1)
    entry = LogEntry.objects.get()
    assert history(operator) == ["Redrive 7 dead letters: 7 redriven"]
    assert entry.user_id == int(operator.session["_auth_user_id"])

    asked = operator.get(f"{DEAD}all/delete/")
    assert "Delete 1 dead letter?" in asked.content.decode()
    done = operator.post(f"{DEAD}all/delete/", dict(asked.context["fields"]), follow=True)
    assert "Deleted: 1 dead letter" in done.content.decode()
    assert numbers() == (7, 0)


def test_many_are_left_to_consumers_and_what_they_have_done_is_shown(operator, in_background):
    bury_many("emails", 1100)
    fields = dict(operator.get(f"{DEAD}all/redrive/").context["fields"])

    begun = operator.post(f"{DEAD}all/redrive/", fields, follow=True)
    assert begun.redirect_chain[-1][0] == JOB
    assert "Redriving: 0 so far." in begun.content.decode()
    assert "No consumer of this queue is running" in begun.content.decode()
    beat("emails")
    work_here("emails", "s1")

    told = operator.get(f"{JOB}stats.json").json()
    assert re.fullmatch(
        r"Redriving: 100 so far. Scanned 100 of 1,100, [0-9,]+/s, about ([0-9]+|< 1) s left.", told["summary"]
    )
    assert 'value="100"' in told["parts"]["job"]
    assert "100 of 1,100" in told["parts"]["job"]
    assert "No consumer of this queue is running" not in told["parts"]["job"]
    assert "Redriving: 100 so far." in operator.get(DEAD).content.decode()


def test_a_second_job_waits_for_the_first(operator, in_background):
    bury_many("emails", 3)
    fields = dict(operator.get(f"{DEAD}all/redrive/").context["fields"])
    operator.post(f"{DEAD}all/redrive/", fields)

    again = operator.post(f"{DEAD}all/delete/", fields, follow=True)

    assert "Another job is running." in again.content.decode()
    assert jobs.get_job("emails").order.what == "redrive"
    assert LogEntry.objects.count() == 1


def test_a_rate_is_kept_with_the_job(operator):
    bury_many("emails", 30)
    fields = dict(operator.get(f"{DEAD}all/redrive/").context["fields"])

    shown = operator.post(f"{DEAD}all/redrive/", {**fields, "rate": "50"}, follow=True)

    assert jobs.get_job("emails").rate == 50
    assert "50/s" in shown.content.decode()
    token = jobs.get_job("emails").order.token
    begun = f"Redrive 30 dead letters, at most 50/s: started as job {token}"
    assert LogEntry.objects.get().change_message == begun
    # A step is a fifth of a second's worth, and the next comes when that is over.
    assert work_here("emails", "w1") == pytest.approx(0.2)
    assert numbers() == (10, 20)


def test_a_rate_that_is_none_is_refused(operator):
    bury("emails")
    fields = dict(operator.get(f"{DEAD}all/redrive/").context["fields"])

    for rate in ("0", "-1", "nonsense", "9" * 20):
        assert operator.post(f"{DEAD}all/redrive/", {**fields, "rate": rate}).status_code == 400, rate
    assert jobs.get_job("emails") is None
    operator.post(f"{DEAD}all/redrive/", {**fields, "rate": ""})
    assert jobs.get_job("emails").rate == 0


def test_a_job_is_cancelled_once_that_is_confirmed(operator, in_background):
    bury_many("emails", 1100)
    jobs.begin("emails", "redrive", who="<b>ann</b>")
    work_here("emails", "s1")

    asked = operator.post(f"{JOB}cancel/")
    assert "Redriving: 100 so far. Changes made so far stay" in asked.content.decode()
    assert jobs.get_job("emails").state == "running"
    done = operator.post(f"{JOB}cancel/", {"confirmed": "yes"}, follow=True)

    assert "The job was cancelled after 100 dead letters were redriven." in done.content.decode()
    assert "&lt;b&gt;ann" in done.content.decode()
    assert LogEntry.objects.get().change_message == "Cancelled a job of <b>ann</b>: Redriving: 100 so far."
    assert "No job is running." in operator.post(f"{JOB}cancel/", follow=True).content.decode()


def test_all_that_fit_a_filter_are_redriven_and_no_others(operator):
    bury_many("emails", 3)
    meant = [bury("emails", "remind", error="SMTPError: refused") for _ in range(2)]
    url = url_of_all(operator.get(DEAD, {"name": "remind", "error": "SMTP"}), "redrive")

    asked = operator.get(url)
    assert "Redrive 2 dead letters?" in asked.content.decode()
    assert "error contains “SMTP”" in asked.content.decode()
    done = operator.post(f"{DEAD}all/redrive/", dict(asked.context["fields"]), follow=True)

    assert "Redriven: 2 dead letters." in done.content.decode()
    assert [str(chip) for chip in done.context["chips"]] == [
        "<bdi>name contains “remind”</bdi>",
        "<bdi>error contains “SMTP”</bdi>",
    ]
    assert sorted(dict(inspector.ids("emails"))["ready"]) == sorted(meant)
    assert numbers() == (2, 3)
    expected = "Redrive 2 dead letters where name contains “remind”, error contains “…”: 2 redriven"
    assert history(operator) == [expected]


def test_a_group_is_redriven_from_its_row_and_the_question_knows_how_many(operator):
    bury_many("emails", 3)
    bury("emails", "remind", error="SMTPError: refused")
    (most, _) = operator.get(f"{DEAD}groups/").context["rows"]

    assert len(operator.get(most["url"]).context["rows"]) == 3
    asked = operator.get(most["redrive_url"])
    assert "Redrive 3 dead letters?" in asked.content.decode()
    operator.post(f"{DEAD}all/redrive/", dict(asked.context["fields"]))

    assert numbers() == (3, 1)


#: Filters that cannot be applied, in an address or a form.
BROKEN = [
    "from=yesterday",
    "to=2026-99-99T00:00",
    "name=remind&from=tomorrow",
    "name=%20",
    f"name={'x' * 1021}",
    "name=a&name=b",
    "of_name=remind",
    "of_error=SMTPError",
    "of_name=a&of_name=b&of_error=c",
    "id=m1",
    "nmae=remind",
    "until=nonsense",
]


def test_a_filter_that_cannot_be_applied_is_refused_and_never_selects_everything(operator):
    bury_many("emails", 3)
    accepted = []
    # One view asks about both, and reads the filter first.
    for address, query in [*((f"{DEAD}all/redrive/", each) for each in BROKEN), (f"{DEAD}all/delete/", BROKEN[0])]:
        answers = (
            operator.get(f"{address}?{query}"),
            operator.post(f"{address}?{query}", {"confirmed": "yes"}),
            operator.post(address, {**dict(QueryDict(query).lists()), "confirmed": "yes"}),
        )
        if any(each.status_code != 400 or "Nothing was changed." not in each.content.decode() for each in answers):
            accepted.append((address, query))
    assert accepted == []
    assert numbers() == (0, 3)
    assert jobs.get_job("emails") is None
    assert not LogEntry.objects.exists()


def test_a_filter_that_a_user_may_not_use_is_refused(log_in):
    bury("emails", "remind", error="SMTPError: refused")
    client = log_in("view_queue", "operate_queue", "purge_queue")

    for query in ("error=refused&name=remind", "key=user:7", "data=customer%3DC-9999"):
        for answer in (
            client.get(f"{DEAD}?{query}"),
            client.get(f"{DEAD}all/redrive/?{query}"),
            client.post(f"{DEAD}all/redrive/?{query}", {"confirmed": "yes"}),
            client.post(f"{DEAD}all/delete/", {**QueryDict(query).dict(), "confirmed": "yes"}),
        ):
            assert answer.status_code == 400, query
            assert "You do not have permission to filter by key, data or error" in answer.content.decode(), query
    assert numbers() == (0, 1)


def test_a_filter_in_the_address_of_a_confirmed_form_counts(operator):
    bury_many("emails", 3)
    bury("emails", "remind")

    operator.post(f"{DEAD}all/redrive/?name=remind", {"confirmed": "yes"})

    assert numbers() == (1, 3)


def test_without_a_job_the_page_says_so(operator):
    assert "No background job is running" in operator.get(JOB).content.decode()
    assert "There are no dead letters." in operator.get(f"{DEAD}all/redrive/", follow=True).content.decode()
    fields = {"confirmed": "yes", "until": "1-1"}
    assert "There are no dead letters." in operator.post(f"{DEAD}all/redrive/", fields, follow=True).content.decode()


def test_a_job_that_somebody_wrote_by_hand_breaks_nothing(operator, redis_client, namespace):
    bury("emails")
    for fields in ({"state": "running", "what": "explode"}, {"state": "running", "what": "redrive", "wanted": "{"}):
        redis_client.hset(f"{namespace}:{{emails}}:jobs", mapping={f"dead:{name}": fields[name] for name in fields})
        assert operator.get(JOB).status_code == 200
        assert work_here("emails", "w1") == IDLE
    assert numbers() == (0, 1)


def test_what_a_search_looks_for_in_errors_is_not_found_where_a_secret_stands(operator):
    bury("emails", error="ValueError: password=hunter2")

    assert dead_letters.search_dead_letters("emails", Filter(error="hunter2"), limit=5).rows == []
    assert len(operator.get(DEAD, {"error": "valueerror"}).context["rows"]) == 1
