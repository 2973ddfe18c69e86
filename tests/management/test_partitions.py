"""The verbs of `mq` for a queue with partitions."""

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.messages import Bury
from mq_django.core.partitions import partition_of
from tests.management.test_mq import find_one, mq, mq_json, refusal
from tests.seeding import beat, publish, settle, take

PARTITIONS = 3
NAMES = [f"payments.{number}" for number in range(PARTITIONS)]


@pytest.fixture(autouse=True)
def ids(mq_settings):
    """Configure the queue `payments` with two ready messages in each partition, and return their ids."""
    mq_settings(QUEUES={"payments": {"PARTITIONS": PARTITIONS, "CONCURRENCY": {"key": 1}}, "emails": {}})
    for name in NAMES:
        beat(name, "s1", consumers=1)
    return [publish("payments", "pay", {"n": n}) for n in range(2 * PARTITIONS)]


def bury_all():
    for part in get_config().queue("payments").parts:
        settle(part.name, take(part.name, 5), Bury(error="ValueError: no", reason="attempts"))


def test_status_has_a_row_for_a_queue_and_for_the_partitions_of_one_that_is_named():
    assert {row["queue"]: row["ready"] for row in mq_json("status")} == {"emails": 0, "payments": 6}

    (row,) = mq_json("status", "payments")
    assert (row["ready"], row["consumers"]) == (6, 1)
    assert [(part["queue"], part["ready"]) for part in row["partitions"]] == [(name, 2) for name in NAMES]
    shown = mq("status", "payments")
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["payments", *NAMES]
    assert mq_json("status", "payments")[0]["ready"] == 6
    assert mq_json("status", "--rates", "payments")[0]["published"] == 6


def test_rates_name_the_partition_that_they_leave_out(redis_client):
    redis_client.set(get_config().queue("payments.1").keys.unhandled, "of another program")
    assert refusal("status", "--rates")[0].startswith("Cannot read payments.1: ")


def test_partitions_are_listed_with_where_they_are_and_who_looks_first():
    rows = mq_json("status", "payments", "--partitions")
    parts = get_config().queue("payments").parts
    assert [(row["partition"], row["ready"], row["tag"]) for row in rows] == [
        (part.name, 2, part.keys.queue) for part in parts
    ]
    (consumer,) = {row["preferred"] for row in rows}
    assert consumer in {found.id for found in inspector.queue("payments").consumers}
    mq("pause", "payments.1")
    assert [row["paused"] for row in mq_json("status", "payments", "--partitions")] == [False, True, False]
    shown = mq("status", "payments", "--partitions").splitlines()
    assert [line.split()[0] for line in shown[1:]] == NAMES
    with pytest.raises(CommandError, match="Queue 'emails' has no partitions"):
        mq("status", "emails", "--partitions")
    with pytest.raises(CommandError, match="is a partition"):
        mq("status", "payments.1", "--partitions")


def test_status_tells_that_some_partitions_are_paused():
    mq("pause", "payments.1")
    assert "1 of 3 partitions paused" in mq("status")

    assert mq("pause", "payments") == "paused\n"
    assert inspector.queue("payments").paused
    assert mq("resume", "payments") == "resumed\n"


def test_messages_of_all_partitions_are_listed_in_pages(ids):
    rows, after = [], []
    for _ in range(4):
        out, errors = StringIO(), StringIO()
        call_command("mq", "--json", "find", "payments", "--limit=2", *after, stdout=out, stderr=errors)
        rows += json.loads(out.getvalue())
        if "--after" not in errors.getvalue():
            break
        after = ["--after", errors.getvalue().split()[-1]]

    assert sorted(row["id"] for row in rows) == sorted(ids)
    exported = [json.loads(line) for line in mq("export", "payments", "--state", "ready").splitlines()]
    assert sorted(row["id"] for row in exported) == sorted(ids)


def test_a_message_is_found_in_its_partition(ids):
    found = find_one("payments", ids[0])
    assert (found["state"], found["id"]) == ("ready", ids[0])
    assert found["queue"] in NAMES
    assert found["why"]["sentence"]
    with pytest.raises(CommandError, match="has no message"):
        mq("find", "payments", "none")


def test_dead_letters_are_redriven_deleted_and_resubmitted(ids):
    bury_all()
    assert [row["count"] for row in mq_json("redrive", "payments", "--errors")] == [6]
    assert mq_json("redrive", "payments", "--all", "--dry-run")["count"] == 6

    assert mq_json("redrive", "payments", ids[0])["redriven"] == 1
    assert mq_json("purge", "payments", ids[1], "--state", "dead", "--yes")["deleted"] == 1
    assert mq_json("redrive", "payments", ids[2], "--data", '{"n": 0}')["id"]
    assert len(mq("export", "payments").splitlines()) == 3
    assert mq_json("redrive", "payments", "--all")["redriven"] == 3
    view = inspector.queue("payments")
    assert (view.dead, view.ready) == (0, 5)


def test_a_key_has_its_line_in_its_partition():
    found = mq_json("line", "payments", "ann")

    assert found["queue"] == NAMES[partition_of("ann", PARTITIONS)]
    assert mq_json("status", "--limits", "payments")[0]["queue"] == "payments"
    assert mq_json("consumers")[0]["queues"] == ["payments"]
