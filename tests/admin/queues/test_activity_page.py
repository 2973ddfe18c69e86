"""The page of activity: who did what, the links and the result, what can be undone, and the CSV."""

import csv
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils.html import strip_tags

from mq_django import inspect, schedules
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core.filters import Filter
from mq_django.errors import ConnectionLost
from mq_django.inspector import action_log
from mq_django.inspector.stream_reader import Scanned
from mq_django.stores.activity import acting
from tests.admin.conftest import BASE
from tests.seeding import bury, publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

PAGE, EXPORT = f"{BASE}activity/", f"{BASE}activity/export/"
YES = {"confirmed": "yes"}


def rows(client, query=""):
    return client.get(PAGE + query).context["rows"]


def content(response):
    return b"".join(response.streaming_content).decode()


def press(client, undo):
    """Press the button of an entry and confirm; return the question."""
    fields = dict(undo.get("fields", ()))
    asked = client.post(undo["url"], fields) if fields else client.get(undo["url"])
    hidden = dict(asked.context["fields"])
    client.post(asked.context["act_url"], {**fields, **hidden})
    return asked.context["title"]


def test_what_a_page_does_is_recorded_with_its_user(operator):
    message_id = bury("emails")
    operator.post(f"{BASE}emails/dead/all/redrive/", {"rate": "1", **YES})
    operator.post(f"{BASE}default/pause/", {"reason": "<b>deploy</b>", **YES})

    pause, redrive = rows(operator)
    user = operator.get(PAGE).context["user"].get_username()
    assert (pause["verb"], strip_tags(pause["who"]), strip_tags(pause["source"])) == ("Pause", user, "admin")
    assert "&lt;b&gt;deploy&lt;/b&gt;" in pause["reason"]
    assert [url for _, url in redrive["queues"]] == [f"{BASE}emails/change/"]
    assert redrive["job_url"] == f"{BASE}emails/dead/job/"
    assert redrive["result"].startswith("Redriving: 0 so far.")

    inspect.delete("emails", [message_id])
    (found,) = rows(operator, "?verb=delete")
    ((shown, url),) = found["about"]
    assert (strip_tags(shown), parse_qs(urlsplit(url).query)) == (message_id, {"id": [message_id]})
    assert found["is_final"]
    assert "Cannot be undone." in operator.get(PAGE).content.decode()


def test_the_result_of_a_job_stands_at_its_start_and_its_end(viewer, redis_client, namespace):
    bury("emails", "fragile")
    bury("emails")
    inspect.start_job("emails", "redrive", who="ann", criteria=Filter(name="fragile"))
    while work_here("emails", "w1") < 1:
        pass
    end, begin = rows(viewer)
    assert begin["result"] == "Redriven: 1 dead letters."
    assert begin["job_url"] == end["job_url"]
    assert (end["verb"], strip_tags(end["source"]), end["result"]) == ("Job ended", "consumer", "1 changed")

    # The job itself is kept for a week.
    redis_client.delete(f"{namespace}:{{emails}}:jobs")
    end, begin = rows(viewer)
    assert (begin["result"], end["result"]) == ("1 changed", "1 changed")


def test_it_is_filtered_and_read_page_by_page(viewer, monkeypatch):
    monkeypatch.setattr("mq_django.admin.activity_pages.PER_PAGE", 2)
    for queue in ("emails", "default", "emails"):
        inspect.pause(queue, who="ada")
        inspect.resume(queue)

    assert [row["verb"] for row in rows(viewer, "?queue=emails&verb=pause&who=AD&source=code")] == ["Pause", "Pause"]
    assert rows(viewer, "?queue=emails&verb=pause&who=bob") == []
    assert rows(viewer, "?to=2020-01-01T00:00") == []
    first = viewer.get(PAGE)
    seen = [row["when"] for row in first.context["rows"]]
    while onward := first.context["go_on"]:
        first = viewer.get(PAGE + onward)
        seen += [row["when"] for row in first.context["rows"]]
    assert len(seen) == 6


def test_a_filter_that_cannot_be_applied_is_refused(viewer):
    for query in ("?verb=explode", "?source=moon", "?from=soon", "?after=x", "?odd=1", "?who=a&who=b"):
        assert viewer.get(PAGE + query).status_code == 400, query


def test_each_undo_asks_as_the_action_itself_and_ends_exactly_that(operator):
    schedules.create("digest", queue="emails", every=timedelta(hours=1), message="digest")
    schedules.skip("digest", queue="emails")
    schedules.pause("digest", queue="emails", by="ada")
    inspect.mute("emails", "late", seconds=3600, who="ada")
    inspect.pause("default", who="ada")
    publish("emails", "welcome")
    inspect.start_job("emails", "delete", "ready", who="ann")

    titles = {row["verb"]: press(operator, row["undo"]) for row in rows(operator) if row["undo"]}

    assert titles == {
        "Purge": "Cancel the job?",
        "Pause": "Resume the queue?",
        "Mute": "Unmute this problem?",
        "Pause a schedule": "Resume schedule “digest”?",
        "Skip a tick": titles["Skip a tick"],
    }
    assert titles["Skip a tick"].startswith("Let the tick ")
    assert not inspect.queue("default").paused
    assert inspect.mutes() == {}
    assert schedules.get("digest", queue="emails").skips == []
    assert not schedules.get("digest", queue="emails").paused
    assert inspect.jobs("emails")["ready"].state == "cancelled"
    assert [row["verb"] for row in rows(operator) if row["undo"]] == []


def test_a_pause_that_is_another_one_by_now_is_not_ended(operator):
    inspect.pause("emails", who="ada")
    (row,) = rows(operator)
    asked = operator.get(row["undo"]["url"])
    inspect.resume("emails")
    inspect.pause("emails", who="bob")

    done = operator.post(asked.context["act_url"], dict(asked.context["fields"]), follow=True)

    assert "the queue was paused anew since" in done.content.decode()
    assert inspect.queue("emails").pause.who == "bob"


def test_a_deleted_schedule_is_created_again_as_it_was(operator):
    schedules.create("digest", queue="emails", every=3600, message="digest", data={"customer": 7}, paused=True)
    before = schedules.get("digest", queue="emails").options
    schedules.delete("digest", queue="emails")

    (row,) = (row for row in rows(operator) if row["undo"])
    asked = operator.post(row["undo"]["url"], dict(row["undo"]["fields"]))
    assert "&quot;customer&quot;: 7" in asked.context["diff"]
    assert press(operator, row["undo"]) == "Create schedule “digest” again?"

    found = schedules.get("digest", queue="emails")
    assert (found.options, found.paused) == (before, True)
    assert [row for row in rows(operator) if row["undo"]] == []


def test_the_options_of_a_changed_schedule_come_back_unless_it_was_changed_since(operator):
    schedules.create("digest", queue="emails", every=3600, message="digest", data={"customer": 7})
    schedules.update("digest", queue="emails", cron="0 7 * * *", message="report")
    first = next(row["undo"] for row in rows(operator) if row["undo"])
    schedules.update("digest", queue="emails", priority=3)

    late = operator.post(first["url"], {**dict(first["fields"]), **YES}, follow=True)
    assert "The schedule was changed or created again since, and stays as it is." in late.content.decode()
    for _ in range(2):
        # The first entry counts again when the second one is undone.
        undos = [row["undo"] for row in rows(operator, "?source=code") if row["undo"]]
        press(operator, undos[0])

    assert schedules.get("digest", queue="emails").options == {
        "every": 3600,
        "message": "digest",
        "data": {"customer": 7},
    }


def test_a_schedule_deleted_twice_comes_back_as_it_was_last(operator):
    for every in (60, 3600):
        schedules.create("digest", queue="emails", every=every, message="digest")
        schedules.delete("digest", queue="emails")
    (undo,) = (row["undo"] for row in rows(operator) if row["undo"])
    press(operator, undo)
    assert schedules.get("digest", queue="emails").options["every"] == 3600


def test_what_brings_back_data_is_for_those_who_may_see_it_and_keeps_no_secrets(log_in, operator):
    for name, data in (("digest", {"customer": 7}), ("secret", {"password": "hunter2"}), ("long", "x" * 5000)):
        schedules.create(name, queue="emails", every=60, message="m", data=data)
        schedules.delete(name, queue="emails")
    assert len([row for row in rows(operator) if row["undo"]]) == 1
    assert "hunter2" not in repr([each.undo for each in inspect.actions().rows])
    blind = log_in("view_queue", "operate_queue")
    assert [row for row in rows(blind) if row["undo"]] == []


def test_who_may_not_operate_is_offered_no_undo(viewer):
    inspect.pause("emails", who="ada")
    assert [row["undo"] for row in rows(viewer)] == [None]


def test_the_csv_has_all_that_matches_and_no_formula(viewer):
    with acting("=HYPERLINK(1)", "mq"):
        inspect.pause("emails", reason="@SUM(1)")
        inspect.resume("emails")
    response = viewer.get(f"{EXPORT}?verb=pause")
    assert response["Content-Type"].startswith("text/csv")
    (found,) = csv.DictReader(content(response).splitlines())
    assert (found["who"], found["reason"], found["verb"]) == ("'=HYPERLINK(1)", "'@SUM(1)", "pause")
    assert (found["queues"], found["done"], found["source"]) == ("emails", "1", "mq")


def test_a_csv_that_breaks_off_says_so(viewer, monkeypatch):
    def lose(*_args, after="", **_more):
        if after:
            raise ConnectionLost("gone")
        return Scanned([], 0, "1-1")

    monkeypatch.setattr(action_log, "search", lose)
    assert content(viewer.get(EXPORT)).splitlines()[-1].startswith('"Incomplete: Cannot reach Redis')


def test_the_page_is_there_while_jobs_cannot_be_read(viewer, redis_client, namespace):
    bury("emails")
    inspect.start_job("emails", "redrive", who="ann")
    redis_client.delete(f"{namespace}:{{emails}}:jobs")
    redis_client.set(f"{namespace}:{{emails}}:jobs", "of somebody else")
    assert [row["result"] for row in rows(viewer)] == ["1 changed"]


def test_a_queue_links_to_its_activity(viewer):
    tabs = viewer.get(f"{BASE}emails/ready/").context["tabs"]
    assert tabs[-1]["url"] == f"{PAGE}?queue=emails"
