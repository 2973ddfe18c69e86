"""The filters of `manage.py mq`: in lists, exports, previews and actions."""

import json
from io import StringIO

import pytest
from django.core.management import call_command

from mq_django import inspector
from mq_django.inspector import jobs
from tests.management.test_mq import mq, mq_json, refusal
from tests.seeding import bury, bury_many, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


def names(*args):
    return [row["name"] for row in mq_json(*args)]


def lines(*args):
    return [json.loads(line) for line in mq(*args).splitlines()]


def test_a_list_shows_the_messages_that_match():
    for number, (name, key) in enumerate((("welcome", "a"), ("remind", "b"), ("remind.again", "a"))):
        publish("emails", name, 1, key=key)
        # Those that are due in the same millisecond have no order.
        publish("emails", name, 1, key=key, delay=60 + number)
    for place in ("ready", "delayed"):
        assert names("find", "emails", "--state", place, "--name", "REMIND") == ["remind", "remind.again"]
        assert names("find", "emails", "--state", place, "--key", "a") == ["welcome", "remind.again"]
        assert names("find", "emails", "--state", place, "--key", "a", "--name", "again") == ["remind.again"]


def test_a_list_continues_after_its_last_message():
    bury_many("emails", 5)
    for n in range(5):
        publish("emails", "welcome", n)
        publish("emails", "welcome", n, delay=60 + n)
    for place in ("ready", "delayed", "dead"):
        every = [row["id"] for row in mq_json("find", "emails", "--state", place)]
        assert len(every) == 5
        err = StringIO()
        call_command("mq", "find", "emails", "--state", place, "--limit", "2", stdout=StringIO(), stderr=err)
        after = err.getvalue().split("--after ")[1].strip()
        assert [row["id"] for row in mq_json("find", "emails", "--state", place, "--after", after)] == every[2:]


def test_a_time_of_publication_selects():
    publish("emails", "welcome", 1)
    assert names("find", "emails", "--since", "1h") == ["welcome"]
    assert names("find", "emails", "--until", "1h") == []
    assert names("find", "emails", "--since", "2020-01-01", "--until", "2099-01-01T00:00Z") == ["welcome"]


def test_dead_letters_are_selected_by_error_and_group():
    bury("emails", "welcome", error="SMTPError: refused")
    bury("emails", "remind", error="ValueError: no")
    assert names("find", "emails", "--state", "dead", "--error", "smtp") == ["welcome"]
    assert names("find", "emails", "--state", "dead", "--group", "remind", "ValueError") == ["remind"]
    assert names("find", "emails", "--state", "dead", "--group", "remind", "SMTPError") == []


def test_a_filter_that_cannot_be_applied_is_an_error():
    every = (
        *(("find", "emails", "--state", "dead", option, "") for option in ("--name", "--key", "--error")),
        ("find", "emails", "--state", "ready", "--error", "x"),
        ("export", "emails", "--state", "ready", "--group", "welcome", "ValueError"),
        ("find", "emails", "--since", "yesterday"),
        ("find", "emails", "--after", "nonsense"),
        ("purge", "emails", "--state", "ready", "--error", "x", "--dry-run"),
        ("purge", "emails", "--yes"),
        ("purge", "emails", "m1", "--state", "delayed", "--yes"),
        ("purge", "emails", "m1", "--name", "welcome", "--yes"),
        ("purge", "emails", "m1", "--state", "dead", "--name", "welcome", "--yes"),
        ("purge", "emails", "m1", "--state", "dead", "--dry-run"),
        ("find", "emails", "m1", "--name", "welcome"),
        ("find", "--state", "ready"),
        ("redrive", "emails", "m1", "--dry-run"),
    )
    assert [args for args in every if refusal(*args) == ("", 0)] == []


def test_a_preview_counts_and_changes_nothing():
    bury_many("emails", 7)
    bury("emails", "remind", error="SMTPError: refused")
    found = mq_json("redrive", "emails", "--all", "--dry-run", "--error", "smtp")
    assert (found["count"], [row["name"] for row in found["examples"]]) == (1, ["remind"])
    text = mq("purge", "emails", "--state", "dead", "--dry-run").splitlines()
    assert text[0] == "8 dead letters would be deleted. The first:"
    assert text[1].split() == ["id", "name", "error"]
    assert len(text) == 7
    assert (inspector.queue("emails").dead, jobs.get_job("emails")) == (8, None)


def test_a_group_of_dead_letters_is_redriven_and_another_deleted():
    bury("emails", "welcome", error="SMTPError: refused")
    bury("emails", "remind", error="ValueError: no")
    assert [(row["name"], row["error"], row["count"]) for row in mq_json("redrive", "emails", "--errors")] == [
        ("remind", "ValueError", 1),
        ("welcome", "SMTPError", 1),
    ]
    assert mq("redrive", "emails", "--errors").splitlines()[0].split() == ["count", "name", "error", "last"]
    assert mq("redrive", "emails", "--all", "--group", "welcome", "SMTPError") == "1 redriven\n"
    assert mq("purge", "emails", "--state", "dead", "--group", "remind", "ValueError", "--yes") == "1 deleted\n"
    assert mq("redrive", "emails", "--errors") == "No dead letters.\n"
    assert inspector.queue("emails").ready == 1


def test_an_export_has_one_line_for_each_message_with_secrets_replaced():
    ids = [bury("emails", "welcome", {"n": n, "password": "hunter2"}) for n in range(3)]
    bury("emails", "remind", {"text": "\x1b[31m"})
    found = lines("export", "emails", "--state", "dead", "--name", "welcome")
    assert [row["id"] for row in found] == ids
    assert found[0]["data"] == {"n": 0, "password": "[redacted]"}
    assert (found[0]["reason"], found[0]["error"]) == ("attempts", "ValueError: no")
    assert "\x1b" not in mq("export", "emails")


def test_an_export_has_long_messages_whole():
    text = "x" * 100_000
    publish("emails", "welcome", {"text": text})
    publish("emails", "welcome", {"text": text}, delay=60)
    for place in ("ready", "delayed"):
        (row,) = lines("export", "emails", "--state", place)
        assert row["data"] == {"text": text}
    assert lines("export", "emails", "--state", "delayed")[0]["due_ms"] > row["published_ms"]
