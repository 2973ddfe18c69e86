"""`manage.py mq schedules`."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from django.core.management import CommandError

from mq_django import registry, schedules
from mq_django.conf import get_config
from mq_django.core.schedules import Scheduled, every
from tests import places
from tests.management.test_mq import mq, mq_json, refusal
from tests.optional import needs_croniter

pytestmark = pytest.mark.usefixtures("mq_settings")

MADE = ("digest", "--queue", "emails", "--every", "3600", "--message", "digest")


@pytest.fixture
def keys(mq_settings):
    return get_config().queue("emails").keys


@needs_croniter
def test_a_schedule_is_created_listed_and_changed():
    data = '{"customer": 7, "password": "geheim"}'
    made = mq_json("schedules", "create", *MADE, "--data", data, "--priority", "high", "--starts", "2026-01-01T00:00Z")
    assert (made["state"], made["origin"], made["when"]) == ("on", "runtime", "every 1:00:00")
    assert made["created_by"].endswith("mq")
    assert made["options"]["data"]["customer"] == 7
    assert "geheim" not in mq("schedules", "list", "--json")
    changed = mq_json("schedules", "change", "digest", "--queue", "emails", "--cron", "0 7 * * *", "--remove", "data")
    assert set(changed["options"]) == {"cron", "message", "priority", "starts"}
    assert schedules.get("digest", queue="emails").options["priority"] == 10
    assert mq_json("schedules", "list") == mq_json("schedules")
    assert mq_json("schedules", "list", "--queue", "emails") == [changed]
    heading, row = mq("schedules", "list", "--queue", "emails").splitlines()
    assert heading.split()[:5] == ["queue", "name", "origin", "when", "message"]
    assert row.split()[:3] == ["emails", "digest", "runtime"]


def test_a_schedule_is_paused_resumed_fired_and_deleted(keys, redis_client):
    mq("schedules", "create", *MADE, "--paused")
    where = ("digest", "--queue", "emails")
    assert mq_json("schedules", "list", "--queue", "emails")[0]["state"] == "paused"
    assert mq("schedules", "resume", *where) == "resumed\n"
    assert mq("schedules", "resume", *where) == "was not paused\n"
    assert mq_json("schedules", "pause", *where) == {"paused": True, "changed": True}
    assert mq_json("schedules", "pause", *where) == {"paused": True, "changed": False}
    assert mq_json("schedules", "fire", *where)["id"]
    assert len(places.ready(redis_client, keys)) == 1
    with pytest.raises(CommandError, match="Confirm with --yes"):
        mq("schedules", "delete", *where)
    assert mq("schedules", "delete", *where, "--yes") == "deleted\n"
    assert mq("schedules", "list", "--queue", "emails") == "No schedules.\n"


def test_the_times_of_a_schedule_in_code_are_overridden_and_restored(monkeypatch, keys):
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(Scheduled(name="nightly", queue="emails", message="m", data=None, when=every(hours=1)))
    where = ("nightly", "--queue", "emails")
    made = mq_json("schedules", "override", *where, "--every", "7200", "--reason", "too often")
    assert (made["when"], made["override"]["code"], made["override"]["reason"]) == (
        *("every 2:00:00", "every 1:00:00", "too often"),
    )
    assert mq("schedules", "override", *where, "--every", "60").startswith(
        "overridden: every 0:01:00. The next tick is"
    )
    assert mq("schedules", "restore", *where) == "restored\n"
    assert mq("schedules", "restore", *where) == "was not overridden\n"
    assert refusal("schedules", "override", *where)[1] == 2


def test_the_next_ticks_are_shown():
    mq("schedules", "create", *MADE, "--ends", "2999-01-01T00:00Z")
    where = ("digest", "--queue", "emails")
    ticks = [datetime.fromisoformat(tick) for tick in mq_json("schedules", "next", *where, "--count", "3")["next"]]
    assert [after - before for before, after in pairwise(ticks)] == [timedelta(hours=1)] * 2
    assert len(mq("schedules", "next", *where).splitlines()) == 5
    mq("schedules", "pause", *where)
    assert mq("schedules", "next", *where) == "It is paused.\n"


def test_a_tick_is_skipped_shown_and_fires_after_all():
    mq("schedules", "create", *MADE, "--ends", "2999-01-01T00:00Z")
    where = ("digest", "--queue", "emails")
    first, second, third = mq_json("schedules", "next", *where, "--count", "3")["next"]
    assert mq("schedules", "skip", *where) == f"{first} is skipped. The schedule fires next at {second}.\n"
    assert mq_json("schedules", "skip", *where) == {"skipped": first, "next": second}
    assert mq_json("schedules", "skip", *where, "--tick", third) == {"skipped": third, "next": second}
    (row,) = mq_json("schedules", "list", "--queue", "emails")
    assert (row["state"], row["next"], row["skips"]) == ("on", second, [first, third])
    assert f"{first},{third}" in mq("schedules", "list", "--queue", "emails")
    shown = mq_json("schedules", "next", *where, "--count", "2")
    assert (shown["next"][0], shown["skipped"]) == (second, [first, third])
    lines = mq("schedules", "next", *where, "--count", "2").splitlines()
    assert lines == [f"{first}  skipped", second, f"{third}  skipped", shown["next"][1]]
    assert mq("schedules", "skip", *where, "--undo", "--tick", third) == f"{third} is no longer skipped\n"
    assert mq_json("schedules", "skip", *where, "--undo") == {"unskipped": first}
    assert mq("schedules", "skip", *where, "--undo") == "was not skipped\n"
    assert mq_json("schedules", "next", *where, "--count", "3")["next"] == [first, second, third]


def test_the_state_of_a_removed_schedule_is_forgotten(monkeypatch):
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(Scheduled(name="nightly", queue="emails", message="m", data=None, when=every(days=1)))
    where = ("nightly", "--queue", "emails")
    mq("schedules", "pause", *where)
    with pytest.raises(CommandError, match="no state of a removed schedule nightly"):
        mq("schedules", "forget", *where, "--yes")
    registry._schedules.clear()
    assert mq_json("schedules", "list", "--queue", "emails")[0]["origin"] == "removed"
    with pytest.raises(CommandError, match="Confirm with --yes"):
        mq("schedules", "forget", *where)
    assert mq("schedules", "forget", *where, "--yes") == "forgotten\n"
    assert mq_json("schedules", "list", "--queue", "emails") == []


def test_what_cannot_be_done_is_an_error():
    every = (
        (("create", *MADE, "--data", "{"), "--data is not JSON"),
        (("create", *MADE, "--priority", "101"), "from -100 to 100"),
        (("create", "digest", "--queue", "nowhere", "--every", "5", "--message", "m"), "No queue 'nowhere'"),
        (("create", "digest", "--every", "5", "--task", "os.system"), "is not the path of a task"),
        (("change", *MADE), "has no schedule 'digest'"),
        (("pause", "gone"), "has no schedule 'gone'"),
        (("skip", "gone"), "has no schedule 'gone'"),
        (("skip", "gone", "--undo"), "has no schedule 'gone'"),
        (("delete", "gone", "--yes"), "has no schedule 'gone'"),
    )
    assert [arguments for arguments, said in every if said not in refusal("schedules", *arguments)[0]] == []


def test_one_in_code_is_paused_and_not_changed(monkeypatch):
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(Scheduled(name="nightly", queue="emails", message="m", data=None, when=every(days=1)))
    where = ("nightly", "--queue", "emails")
    with pytest.raises(CommandError, match="is in code"):
        mq("schedules", "change", *where, "--every", "5")
    assert mq_json("schedules", "pause", *where)["changed"]
    (row,) = mq_json("schedules", "list", "--queue", "emails")
    assert (row["origin"], row["state"], row["next"]) == ("code", "paused", None)
    assert row["paused_by"].endswith("mq")


def test_one_that_is_not_valid_is_shown_with_its_problem(keys, redis_client):
    redis_client.hset(keys.runtime_schedules, b"definition:\xff\x1b[2J", "{}")
    (row,) = mq_json("schedules", "list", "--queue", "emails")
    assert row["state"] == "invalid"
    assert "\x1b" not in mq("schedules")


def test_schedules_of_a_queue_with_partitions_are_managed_by_its_name(mq_settings, monkeypatch):
    mq_settings(QUEUES={"emails": {"PARTITIONS": 8}})
    monkeypatch.setattr(registry, "_schedules", {})
    names = [f"s{number}" for number in range(5)]
    for name in names:
        where = (name, "--queue", "emails")
        mq("schedules", "create", *where, "--every", "3600", "--message", "digest")
        assert mq("schedules", "pause", *where) == "paused\n"
        assert mq("schedules", "resume", *where) == "resumed\n"
        assert len(mq_json("schedules", "next", *where, "--count", "3")["next"]) == 3
        assert mq_json("schedules", "fire", *where)["id"]
    assert [(row["queue"], row["name"]) for row in mq_json("schedules")] == [("emails", name) for name in names]
    for name in names:
        mq("schedules", "delete", name, "--queue", "emails", "--yes")
    assert mq_json("schedules") == []
    with pytest.raises(CommandError, match="is a partition"):
        mq("schedules", "create", "s", "--queue", "emails.3", "--every", "3600", "--message", "digest")


def test_it_names_the_schedules_that_it_leaves_out(keys, redis_client, monkeypatch, capsys, subtests):
    monkeypatch.setattr("mq_django.management.schedule_verbs.MAX_LISTED", 2)
    redis_client.hset(keys.runtime_schedules, mapping={f"definition:forged{n}": "{}" for n in range(5)})
    for options in ([], ["--queue", "emails"]):
        with subtests.test(str(options)):
            rows = [row["name"] for row in mq_json("schedules", "list", *options) if row["queue"] == "emails"]
            assert rows == ["forged0", "forged1"]
            assert "Queue emails has 3 more schedules, which are not shown." in capsys.readouterr().err
