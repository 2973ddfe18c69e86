"""The page of metrics: figures over time of all queues and of one, and the same as files."""

import csv
import json
import re

import pytest

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.keys import HostKeys
from mq_django.inspector import actions
from mq_django.observability.problem_watch import Sampler
from mq_django.stores.activity import acting
from mq_django.stores.counters import Slots
from mq_django.transport.connections import open_transport
from tests.admin.conftest import BASE
from tests.seeding import beat, bury
from tests.users import line_of, user

PAGE = f"{BASE}metrics/"
pytestmark = pytest.mark.usefixtures("mq_settings")


def happen(queue, what, count, *, name="welcome", ago=0):
    """Count messages of a queue some minutes ago."""
    clock.set_shift(-60 * ago)
    try:
        command = Slots(get_config().queue(queue).keys).add_command({(what, name): count})
        open_transport("produce", "").pipeline([command])
    finally:
        clock.set_shift(0)


def read(client, query=""):
    return json.loads(client.get(f"{PAGE}export/all.json{query}").getvalue())


def test_all_queues_are_added_up_and_each_has_a_row(operator):
    happen("emails", "handled", 3)
    happen("default", "handled", 4)
    happen("default", "retried", 1)

    found = read(operator)

    assert (found["by"], len(found["steps"])) == ("queue", 60)
    assert sum(step["handled"] for step in found["steps"]) == 7
    assert [(row["name"], row["handled"], row["retried"]) for row in found["rows"]] == [
        ("default", 4, 1),
        ("emails", 3, 0),
    ]
    page = operator.get(PAGE).content.decode()
    assert "?queue=default" in page


def test_a_queue_has_a_row_for_each_handler_and_charts_of_one(operator):
    happen("emails", "handled", 3)
    happen("emails", "handled", 5, name="bye")

    found = read(operator, "?queue=emails&of=welcome")

    assert found["by"] == "handler"
    assert sum(step["handled"] for step in found["steps"]) == 3
    assert {row["name"]: row["handled"] for row in found["rows"]} == {"bye": 5, "welcome": 3}


def test_figures_of_one_handler_are_right_however_many_there_are(operator, monkeypatch):
    happen("emails", "handled", 3)
    happen("emails", "handled", 5, name="bye")
    beat("emails", handled=0, since_ms=clock.now_ms())
    Sampler().run_once()
    forget_claim()
    beat("emails", handled=6)
    Sampler().run_once()
    monkeypatch.setattr("mq_django.inspector.statistics.MAX_COUNTERS", 1)

    for query, handled, names in (("", 8, []), ("&of=welcome", 3, ["welcome"]), ("&by=host", 8, [])):
        found = read(operator, f"?queue=emails{query}")
        assert sum(step["handled"] for step in found["steps"]) == handled
        assert ([row["name"] for row in found["rows"]], found["rows_left_out"]) == (names, True)
        page = operator.get(f"{PAGE}?queue=emails{query}").content.decode()
        assert "There are too many figures to list them here." in page
        assert "No activity." not in page
        assert ("Messages by state" in page) == (not names)
    assert not read(operator)["rows_left_out"]


def test_a_queue_may_have_the_name_of_a_parameter(operator, mq_settings):
    mq_settings(QUEUES={"name": {}})
    happen("name", "handled", 3)
    page = operator.get(f"{PAGE}?queue=name&by=host").content.decode()
    assert "queue=name" in page.partition("export/steps.csv")[2].partition('"')[0]


def test_a_time_is_compared_with_the_day_before(operator):
    happen("emails", "handled", 9, ago=1440)

    found = read(operator, "?queue=emails&span=day&compare=day")

    assert len(found["steps"]) == len(found["before"])
    assert sum(step["handled"] for step in found["before"]) == 9
    said = operator.get(f"{PAGE}?queue=emails&span=hour&compare=week").content.decode()
    assert "Minutes are kept for a day" in said


@pytest.mark.parametrize("was", ["", "?from=2020-11-20T10:00&to=2020-11-21T10:00"])
def test_times_that_are_typed_are_shown_and_those_that_were_shown_are_not_in_the_way(operator, was):
    page = operator.get(f"{PAGE}{was}")
    form = dict(re.findall(r'<input[^>]* name="(from|to|shown)"[^>]* value="([^"]*)"', page.content.decode()))

    asked = operator.get(PAGE, {**form, "span": "day"}).context["asked"]
    assert asked.span == "day"
    # As an older address has it.
    assert operator.get(PAGE, {"span": "day", "from": form["from"], "to": form["to"]}).context["asked"].span == "day"
    typed = operator.get(PAGE, {**form, "span": "hour", "from": "2019-11-19T08:00"}).context
    assert (typed["asked"].span, typed["starts"], typed["ends"]) == ("", "2019-11-19T08:00", form["to"])
    early = {**form, "span": "hour", "to": "2018-11-01T08:00"}
    assert operator.get(PAGE, early).status_code == 400
    both = operator.get(PAGE, {**early, "from": "2018-10-01T08:00"}).context
    assert (both["asked"].span, both["starts"], both["ends"]) == ("", "2018-10-01T08:00", "2018-11-01T08:00")


def test_a_dragged_time_is_read_in_finer_steps(operator):
    now_ms = clock.now_ms()
    happen("emails", "handled", 2, ago=90)

    found = read(operator, f"?queue=emails&from={now_ms - 100 * 60_000}&to={now_ms - 80 * 60_000}")

    assert found["minutes"] == 1
    assert len(found["steps"]) in (20, 21)
    assert sum(step["handled"] for step in found["steps"]) == 2


def test_a_sample_notes_depths_hosts_and_new_versions(operator, db):
    bury("emails")
    beat("emails", handled=0, since_ms=clock.now_ms(), release="v1")
    Sampler().run_once()
    forget_claim()
    beat("emails", handled=6, failed=2, took_ms=4000, release="v2")
    Sampler().run_once()

    found = read(operator, "?queue=emails&by=host")
    # The minute may have turned since: nothing was noted in the last step.
    assert [step["dead"] for step in found["steps"] if step["dead"] is not None][-1] == 1
    assert [(row["name"], row["handled"], row["retried"], row["took_mean"]) for row in found["rows"]] == [
        ("web1", 6, 2, 0.5)
    ]
    assert [each["version"] for each in found["deploys"]] == ["v2"]
    assert read(operator, "?by=version")["rows"][0]["name"] == "v2"
    page = operator.get(f"{PAGE}?queue=emails&by=host").content.decode()
    assert "Messages by state" in page
    assert "Version v2 began." in page
    assert "500 ms" in page


def test_the_times_in_which_queues_were_paused_are_marked_with_who_paused_them(operator, db):
    with acting("anna", "admin"):
        actions.pause("emails", who="anna", reason="Deploy")
    actions.resume("emails")
    with acting("ben", "admin"):
        actions.pause_all(who="ben", reason="Fire", name="fire")

    found = read(operator)
    assert [(each["who"], each["reason"], each["until"] is None) for each in found["pauses"]] == [
        ("anna", "Deploy", False),
        ("ben", "Fire", True),
    ]
    assert found["pauses"][0]["queues"] == ["emails"]
    assert {"default", "emails"} <= {*found["pauses"][1]["queues"]}
    assert [each["who"] for each in read(operator, "?queue=default")["pauses"]] == ["ben"]
    for page in (f"{PAGE}?queue=emails", f"{PAGE}figures/?queue=emails"):
        shown = operator.get(page).content.decode()
        assert "Still paused, by ben. Fire" in shown
        assert "by anna. Deploy" in shown
    assert "mq-shaded" in operator.get(f"{PAGE}?queue=emails").content.decode()
    actions.resume("default")
    assert [each["until"] is None for each in read(operator, "?queue=default")["pauses"]] == [False]


def test_a_pause_before_the_period_is_left_out_and_one_that_reaches_into_it_is_shown(operator, db):
    now_ms = clock.now_ms()
    actions.pause("emails")
    actions.resume("emails")
    actions.pause("default")

    found = read(operator, f"?from={now_ms - 100 * 60_000}&to={now_ms - 80 * 60_000}")
    assert found["pauses"] == []
    clock.set_shift(7200)
    try:
        later = read(operator, f"?from={now_ms + 60 * 60_000}&to={now_ms + 80 * 60_000}")
    finally:
        clock.set_shift(0)
    assert [each["queues"] for each in later["pauses"]] == [["default"]]


def test_one_process_takes_each_sample(operator, db, redis_client):
    beat("emails", handled=5, since_ms=clock.now_ms())
    Sampler().run_once()
    beat("emails", handled=9)
    Sampler().run_once()
    assert [row["handled"] for row in read(operator, "?by=host")["rows"]] == [5]


def test_a_sample_that_misses_a_queue_counts_nothing_a_second_time(operator, db):
    since_ms = clock.now_ms()
    for handled in (10, 4, 12):
        beat("emails", handled=handled, since_ms=since_ms)
        Sampler().run_once()
        forget_claim()
    assert [row["handled"] for row in read(operator, "?by=host")["rows"]] == [12]


def test_a_redis_user_without_the_keys_takes_no_samples(operator, mq_settings, redis_client, redis_url, namespace):
    with user(redis_client, redis_url, [*line_of("consumer"), f"~{namespace}:{{emails}}:*"]) as url:
        mq_settings(CONNECTION=url)
        assert 0 < Sampler().run_once() <= 60
    mq_settings()
    assert read(operator, "?queue=emails")["steps"][-1].get("ready") is None


def test_a_consumer_that_was_running_before_the_first_sample_is_not_counted_at_once(operator, db):
    beat("emails", handled=5000, since_ms=clock.now_ms() - 86_400_000)
    Sampler().run_once()
    assert read(operator, "?by=host")["rows"] == []


def test_a_file_has_a_line_for_each_step_or_row_and_no_formula(operator):
    happen("emails", "handled", 3, name="=cmd()")

    steps = operator.get(f"{PAGE}export/steps.csv?queue=emails").getvalue().decode()
    rows = operator.get(f"{PAGE}export/rows.csv?queue=emails").getvalue().decode()

    assert len(list(csv.DictReader(steps.splitlines()))) == 60
    assert [(row["name"], row["handled"]) for row in csv.DictReader(rows.splitlines())] == [("'=cmd()", "3")]


def test_what_cannot_be_shown_is_said(operator):
    odd = ("?queue=nope", "?from=5&to=4", "?from=yesterday", "?from=99999-01-01T00:00", "?to=9" + "9" * 400)
    for query in odd:
        assert operator.get(f"{PAGE}{query}").status_code == 400, query


def test_odd_times_are_bounded(operator):
    for query in (
        "?from=1&to=2",
        "?span=nothing",
        "?from=1971-01-01T00:00&to=9998-12-31T23:59",
        "?of=x&by=y&compare=z",
    ):
        assert operator.get(f"{PAGE}{query}").status_code == 200


def forget_claim():
    keys = HostKeys(get_config().namespace)
    open_transport("produce", "").pipeline([("DEL", keys.of("sampled"))])
