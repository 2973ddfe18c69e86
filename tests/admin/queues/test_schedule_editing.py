"""Schedules that are created, changed and deleted in the admin."""

import re

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import schedules
from mq_django.conf import get_config
from tests.admin.conftest import BASE
from tests.admin.pages import main_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

PAGE, ADD = f"{BASE}emails/change/", f"{BASE}emails/schedule/add/"
NASTY = "\"'><script>alert(1)</script>"
FORM = {"name": "digest", "every": "3600", "message": "digest", "data": '{"n": 1, "password": "geheim"}'}


def change_url(client):
    (row,) = client.get(PAGE).context["schedules"]
    return row["change_url"]


def values(response):
    """Return what a form shows, by the name of the field."""
    page = main_of(response)
    found = dict(re.findall(r'<input type="(?:text|number|hidden)"[^>]*? name="(\w+)" value="([^"]*)"', page))
    texts = re.findall(r'<textarea[^>]*? name="(\w+)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    return found | {name: text.replace("&quot;", '"') for name, text in texts}


def test_a_schedule_is_created_and_shown_with_who_did_it(operator):
    assert "Add a schedule…" in main_of(operator.get(PAGE))
    assert "Create the schedule" in main_of(operator.get(ADD))
    done = operator.post(ADD, {**FORM, "priority": "5", "paused": "1"}, follow=True)
    assert "was created" in done.content.decode()
    made = schedules.get("digest", queue="emails")
    assert made.options == {
        "every": 3600,
        "message": "digest",
        "data": {"n": 1, "password": "geheim"},
        "priority": 5,
    }
    (row,) = done.context["schedules"]
    assert made.paused
    assert made.created_by in " ".join(row["notes"])
    assert "&lt;time" not in " ".join(row["notes"])
    assert LogEntry.objects.get().change_message == "Created schedule digest"


def test_a_schedule_is_changed_and_its_secrets_stay(operator):
    operator.post(ADD, FORM)
    shown = values(operator.get(change_url(operator)))
    assert "geheim" not in str(shown)
    operator.post(change_url(operator), {**shown, "data": shown["data"].replace("1", "2"), "key": "k"})
    changed = schedules.get("digest", queue="emails")
    assert changed.options["data"] == {"n": 2, "password": "geheim"}
    assert changed.options["key"] == "k"
    assert LogEntry.objects.latest("pk").change_message == "Changed schedule digest"


def test_an_option_that_is_emptied_is_removed(operator):
    operator.post(ADD, {**FORM, "key": "k"})
    shown = values(operator.get(change_url(operator)))
    operator.post(change_url(operator), {**shown, "key": "", "data": ""})
    assert schedules.get("digest", queue="emails").options == {"every": 3600, "message": "digest"}


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten(operator):
    operator.post(ADD, FORM)
    shown = values(operator.get(change_url(operator)))
    schedules.update("digest", queue="emails", priority=7)
    refused = operator.post(change_url(operator), {**shown, "every": "60"})
    assert "Somebody else has just changed" in main_of(refused)
    assert schedules.get("digest", queue="emails").options["every"] == 3600


def test_a_form_with_an_error_says_so_and_keeps_what_was_entered(operator):
    for fields, said in (
        ({"every": "soon"}, "must be a number"),
        ({"every": ""}, "must have either &quot;cron&quot; or &quot;every&quot;"),
        ({"data": "{"}, "is not JSON"),
        ({"priority": "1000"}, "from -100 to 100"),
        ({"message": "", "data": "", "task": "os.system"}, "is not the path of a task"),
        ({"data": '"[redacted]"'}, "placeholder for a secret"),
        ({"name": ""}, "printable characters"),
        ({"name": NASTY, "every": NASTY}, "must be a number"),
    ):
        page = main_of(operator.post(ADD, {**FORM, **fields}))
        assert said in page, fields
        assert "<script>alert" not in page
    assert schedules.get_all("emails") == []
    assert LogEntry.objects.count() == 0


def test_a_schedule_is_deleted_once_that_is_confirmed(operator):
    operator.post(ADD, FORM)
    asked = operator.post(f"{BASE}emails/schedule/delete/", {"schedule": "digest"})
    assert "Delete schedule “digest”?" in asked.content.decode()
    assert schedules.get("digest", queue="emails")
    done = operator.post(f"{BASE}emails/schedule/delete/", {"schedule": "digest", "confirmed": "yes"}, follow=True)
    assert "The schedule was deleted." in done.content.decode()
    assert schedules.get_all("emails") == []
    assert LogEntry.objects.latest("pk").change_message == "Deleted schedule digest"


def test_tabs_that_show_the_last_schedule_get_that_it_is_gone(operator):
    schedules.create("digest", queue="emails", every=60, message="m")
    assert "digest" in operator.get(f"{BASE}emails/stats.json").json()["parts"]["schedules"]
    schedules.delete("digest", queue="emails")

    assert operator.get(f"{BASE}emails/stats.json").json()["parts"]["schedules"].strip() == ""


def test_one_that_another_in_the_settings_hides_is_deleted_and_not_changed(operator, mq_settings):
    schedules.create("digest", queue="emails", every=60, message="m")
    mq_settings(SCHEDULES={"digest": {"queue": "emails", "message": "m", "every": 60}})
    (_, hidden) = operator.get(PAGE).context["schedules"]
    assert (hidden["is_runtime"], hidden["change_url"]) == (True, "")
    assert "has the same name" in hidden["problem"]

    operator.post(f"{BASE}emails/schedule/delete/", {"schedule": "digest", "confirmed": "yes"})

    assert len(operator.get(PAGE).context["schedules"]) == 1


def test_one_that_is_not_valid_is_shown_and_deleted(operator, redis_client):
    keys = get_config().queue("emails").keys
    redis_client.hset(keys.runtime_schedules, f"definition:{NASTY}\udcff".encode(errors="surrogateescape"), "{")
    page = operator.get(PAGE)
    (row,) = page.context["schedules"]
    assert "1 problem found." in main_of(page)
    assert "has a schedule that does not fire" in main_of(page)
    assert "<script>alert" not in page.content.decode()
    assert operator.get(row["change_url"]).status_code == 200
    operator.post(f"{BASE}emails/schedule/delete/", {"schedule": row["name"], "confirmed": "yes"})
    assert not redis_client.exists(keys.runtime_schedules)


def test_one_in_the_settings_cannot_be_changed_or_deleted(operator, mq_settings):
    mq_settings(SCHEDULES={"digest": {"queue": "emails", "message": "m", "every": 60}})
    (row,) = operator.get(PAGE).context["schedules"]
    assert (row["change_url"], row["is_runtime"]) == ("", False)
    for response in (
        operator.get(f"{BASE}emails/schedule/change/?schedule=digest", follow=True),
        operator.post(f"{BASE}emails/schedule/delete/", {"schedule": "digest", "confirmed": "yes"}, follow=True),
    ):
        assert "no longer exists" in response.content.decode()


def test_a_page_shows_the_first_of_many(operator, monkeypatch):
    monkeypatch.setattr("mq_django.admin.schedule_rows.MAX_ROWS", 2)
    for number in range(3):
        schedules.create(f"s{number}", queue="emails", every=60, message="m")
    page = operator.get(PAGE)
    assert len(page.context["schedules"]) == 2
    assert "the first of 3" in main_of(page)
