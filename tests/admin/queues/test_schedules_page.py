"""The page of the schedules of all queues, and the page of one."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import every, registry, schedules
from mq_django.admin.schedule_rows import words
from mq_django.conf import get_config
from mq_django.core.schedules import Scheduled, cron
from mq_django.stores import schedule_status
from tests import places
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.optional import needs_croniter
from tests.seeding import bury, handle

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

ALL, ONE = f"{BASE}schedules/", f"{BASE}emails/schedule/?schedule=nightly"
NASTY = "\"'><script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _in_code(monkeypatch, mq_settings):
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(Scheduled(name="nightly", queue="emails", message="m", data=None, when=every(hours=1)))


def rows(client, query=""):
    found = client.get(ALL + query).context["schedules"]
    return [unescape(re.sub("<.*?>", "", row["shown"])) for row in found]


@needs_croniter
def test_times_are_said_in_words_and_an_expression_without_good_ones_as_it_is(subtests):
    for expression, said in (
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/7 * * * *", ""),
        ("0 * * * *", "every hour"),
        ("5 * * * *", "every hour at minute 5"),
        ("5 */6 * * *", "every 6 hours at minute 5"),
        ("@daily", "every day at 00:00"),
        ("0 14,2 * * *", "every day at 02:00, 14:00"),
        ("0 2 * * mon-fri", "at 02:00 on weekdays"),
        ("30 9 * * 1", "every Monday at 09:30"),
        ("30 9 * * SUN,wed", "every Wednesday, Sunday at 09:30"),
        ("0 9 * * 6,0", "at 09:00 on Saturday and Sunday"),
        ("0 9 1 * *", "on day 1 of each month at 09:00"),
        ("0 9 L * *", "on the last day of each month at 09:00"),
        ("0 9 1 * mon", ""),
        ("0 9 * 1 *", ""),
        ("0 9 * * mon#1", ""),
        ("0 8-18 * * *", ""),
    ):
        with subtests.test(expression):
            assert words(cron(expression)) == said
    assert words(cron("0 9 * * mon", timezone="Europe/Berlin")) == "every Monday at 09:00, Europe/Berlin"
    assert [words(every(seconds)) for seconds in (1, 60, 7200, 86400, 90)] == [
        *("every 1 s", "every minute", "every 2 hours", "every day", "every 90 s"),
    ]
    assert words(cron("0 9 1 * *")) != words(cron("0 9 10 * *"))


def test_the_schedules_of_all_queues_are_on_one_page_with_their_queue_and_filters(viewer, redis_client):
    schedules.create("digest", every=60, message="m")
    schedules.create("weekly", queue="emails", every=60, message="m", paused=True)
    schedules.override("nightly", queue="emails", every=7200, by="ann", reason="too often")
    keys = get_config().queue("emails").keys
    redis_client.hset(keys.runtime_schedules, mapping={f"definition:{NASTY}": "{", "last:weekly": 1})
    overdue = get_config().queue("default").keys.runtime_schedules
    redis_client.hset(overdue, "last:digest", places.now_ms(redis_client) - 100_000)

    page = viewer.get(ALL)
    assert [row["queue"] for row in page.context["schedules"]] == [
        f"<bdi>{name}</bdi>" for name in ("default", *["emails"] * 3)
    ]
    content = main_of(page)
    assert "<script>alert" not in content
    assert "too often" in content
    assert "every 2 hours" in content
    assert "in the code: every hour" in content
    assert "Fire now…" not in content
    for query, names in (
        ("?q=EMAILS", {"nightly", "weekly", NASTY}),
        ("?q=digest", {"digest"}),
        ("?state=paused", {"weekly"}),
        ("?state=overdue", {"digest"}),
        ("?state=invalid", {NASTY}),
        ("?state=overridden&q=night", {"nightly"}),
        ("?state=overridden&q=digest", set()),
        ("?start=3", {"weekly"}),
        ("?start=99", set()),
        ("?start=x", {"digest", "nightly", "weekly", NASTY}),
    ):
        assert set(rows(viewer, query)) == names, query
    assert viewer.get(ALL + "?state=odd").status_code == 400
    assert viewer.get(ALL + "?other=1").status_code == 400


def test_pages_of_many_go_on_where_the_last_one_ended(viewer, monkeypatch):
    monkeypatch.setattr("mq_django.admin.schedule_rows.SIZE", 2)
    monkeypatch.setattr("mq_django.admin.schedule_rows.MAX_LOOKED", 3)
    for number in range(4):
        schedules.create(f"s{number}", queue="emails", every=60, message="m", paused=number == 3)
    page = viewer.get(ALL)
    assert len(page.context["schedules"]) == 2
    assert len(viewer.get(ALL + page.context["go_on"]).context["schedules"]) == 2
    none = viewer.get(ALL + "?state=paused")
    assert none.context["schedules"] == []
    assert "None found yet." in main_of(none)
    assert rows(viewer, none.context["go_on"]) == ["s3"]


def test_of_very_many_schedules_pages_read_some_with_all_that_is_known_of_them(viewer, redis_client, monkeypatch):
    """HGETALL of a hash of 100,000 fields would block Redis, and to read all its schedules takes seconds."""
    monkeypatch.setattr(schedule_status, "MAX_FIELDS", 100)
    monkeypatch.setattr(schedule_status, "MAX_READ", 50)
    definition = '{"every":60,"message":"act","data":"' + "x" * 80 + '"}'
    fields = {"definition": definition, "created": "1795851902418 ada", "paused": "1795851902418 ada"}
    every_field = {f"{kind}:s{n}": value for n in range(1000) for kind, value in fields.items()}
    redis_client.hset(get_config().queue("emails").keys.runtime_schedules, mapping=every_field)

    page = viewer.get(f"{BASE}emails/change/")

    assert "The queue has too many schedules to read all of them" in page.content.decode()
    shown = page.context["schedules"]
    assert 10 < len(shown) <= 50
    made = [row for row in shown if row["is_runtime"]]
    assert len(shown) - len(made) == 1
    assert all(row["paused"] and "created by" in str(row["notes"]) for row in made)
    page = viewer.get(f"{BASE}schedules/").content.decode()
    assert "manage.py mq schedules lists all: emails" in unescape(re.sub(r"<[^>]*>", "", page))
    assert len(schedules.get_all("emails")) == 1001


def test_a_queue_that_cannot_be_read_is_named_and_hides_no_other(viewer, redis_client):
    redis_client.set(get_config().queue("default").keys.runtime_schedules, "odd")
    page = viewer.get(ALL)
    assert "cannot be read" in main_of(page)
    assert len(page.context["schedules"]) == 1


def test_a_schedule_has_its_next_ticks_each_of_which_is_skipped_with_two_clicks(operator):
    page = operator.get(ONE)
    ticks = page.context["ticks"]
    assert len(ticks) == 10 == main_of(page).count("<circle")
    fields = {"schedule": "nightly", "back": "schedule"}
    asked = operator.post(ticks[3]["url"], fields)
    assert ticks[3]["label"] in asked.context["title"]
    done = operator.post(ticks[3]["url"], {**dict(asked.context["fields"])}, follow=True)
    assert [tick["is_skipped"] for tick in done.context["ticks"]] == [number == 3 for number in range(10)]
    operator.post(done.context["ticks"][3]["url"], {**fields, "confirmed": "yes"})
    assert not schedules.get("nightly", queue="emails").skips
    fired = operator.post(f"{BASE}emails/schedule/fire/", {**fields, "confirmed": "yes"}, follow=True)
    assert [row["state"] for row in fired.context["messages_of_it"]] == ["not known"]
    from_all = operator.post(f"{BASE}emails/schedule/fire/", {**fields, "back": "schedules", "confirmed": "yes"})
    assert from_all["Location"] == ALL


def test_the_latest_messages_of_a_schedule_tell_what_became_of_them(viewer, mq_settings, redis_client):
    mq_settings(QUEUES={"default": {}, "emails": {"HISTORY": {"AGE": timedelta(days=1)}}})
    handle("emails", "m", message_id="done")
    bury("emails", "m", message_id="bad")
    now = places.now_ms(redis_client)
    lines = f"1700000000000 lost\n{now} new\n1700000001000 bad\n1700000002000 done\nodd"
    redis_client.hset(get_config().queue("emails").keys.schedules, "recent:nightly", lines)
    page = viewer.get(ONE)
    assert [row["state"] for row in page.context["messages_of_it"]] == [
        *("handled", "dead letter", "ready or pending", "not known"),
    ]
    assert page.context["messages_of_it"][0]["took"]
    assert not page.context["needs_history"]
    mq_settings()
    assert "Set <code>HISTORY</code>" in main_of(viewer.get(ONE))


@needs_croniter
def test_a_schedule_of_the_code_gets_other_times_with_a_reason_until_it_is_changed_back(operator):
    (row,) = operator.get(ALL).context["schedules"]
    form = operator.get(row["override_url"])
    assert 'name="every" value="3600"' in main_of(form)
    assert "In the code: every hour." in main_of(form)
    times = {"cron": "0 9 * * mon", "timezone": "Europe/Berlin", "every": "", "reason": NASTY}
    for wrong, said in (
        ({"reason": " "}, "Say why"),
        ({"cron": "soon"}, "is not a cron expression"),
        ({"every": "60"}, "not both"),
        ({"every": "soon", "cron": ""}, "must be a number"),
    ):
        refused = operator.post(row["override_url"], {**times, **wrong})
        assert said in main_of(refused)
        assert "<script>alert" not in main_of(refused)
    assert LogEntry.objects.count() == 0
    done = operator.post(row["override_url"], times)
    assert done["Location"] == ALL
    assert LogEntry.objects.get().change_message.startswith("Overrode the times of schedule nightly: ")
    (row,) = operator.get(ALL).context["schedules"]
    assert row["when"] == "every Monday at 09:00, Europe/Berlin"
    assert "&lt;script&gt;" in str(row["notes"])
    assert schedules.get("nightly", queue="emails").override.set_by == LogEntry.objects.get().user.username
    back = operator.post(row["urls"]["restore"], {"schedule": "nightly", "confirmed": "yes"}, follow=True)
    assert "the times of the code again" in back.content.decode()
    assert schedules.get("nightly", queue="emails").when == every(hours=1)


def test_one_that_is_gone_or_not_of_the_code_has_no_other_times(operator):
    schedules.create("made", queue="emails", every=60, message="m")
    for name in ("made", "none"):
        answer = operator.get(f"{BASE}emails/schedule/override/?schedule={name}", follow=True)
        assert "not in the code" in answer.content.decode()
    assert "no longer exists" in operator.get(f"{BASE}emails/schedule/?schedule=none", follow=True).content.decode()


def test_an_override_that_is_not_valid_is_shown_and_changed_back(operator, redis_client):
    redis_client.hset(get_config().queue("emails").keys.schedules, "override:nightly", "{")
    page = operator.get(ONE)
    assert "Change back…" in main_of(page)
    assert "is not valid" in main_of(page)
    assert operator.get(page.context["schedules"][0]["override_url"]).status_code == 200


def test_ticks_are_shown_in_the_zone_of_the_user(viewer, settings):
    settings.TIME_ZONE = "Asia/Kolkata"
    (tick, *_rest) = viewer.get(ONE).context["ticks"]
    assert "+05:30" in tick["label"]
