"""`manage.py mq`: the same looks and deeds as the admin's."""

import json
from datetime import datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from mq_django import inspector, queues, schedules, topics
from mq_django.conf import get_config
from mq_django.consumers.supervisor.chores import work_here
from mq_django.errors import ConnectionLost, StoreError
from mq_django.inspector import jobs
from mq_django.inspector.actions import Switched
from mq_django.inspector.message_lists import messages
from mq_django.management.commands.mq import Command
from mq_django.management.terminal import user_name
from mq_django.management.verbs import VERBS
from mq_django.stores import open_members
from mq_django.stores.background_jobs import IDLE
from mq_django.transport.connections import open_transport
from tests.seeding import beat, bury, bury_many, keep, opened, publish, set_aside, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def mq(*args: str) -> str:
    out = StringIO()
    call_command("mq", *args, stdout=out)
    return out.getvalue()


def mq_json(*args: str) -> Any:
    return json.loads(mq(*args, "--json"))


def find_one(*args: str) -> Any:
    """Return what `mq find` knows of a message, in the one place that has it."""
    (row,) = mq_json("find", *args)["found"]
    return row


def refusal(*args: str) -> tuple[str, int]:
    """Return why a command is refused, and its exit code; "" and 0 if it is not."""
    try:
        mq(*args)
    except CommandError as error:
        return str(error), error.returncode
    return "", 0


def test_options_stand_before_or_after_the_verb_and_without_one_it_shows_the_status():
    out = StringIO()
    call_command("mq", "--json", "status", stdout=out)
    assert json.loads(out.getvalue()) == mq_json("status") == mq_json()
    assert mq("status", "--settings", "tests.settings", "--no-color", "-v", "1") == mq("status") == mq()


def test_a_shell_reaches_each_verb(capsys):
    for verb in VERBS:
        with pytest.raises(SystemExit) as ended:
            Command().run_from_argv(["manage.py", "mq", "--json", verb, "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: manage.py mq {verb}")


def test_a_pause_of_all_tells_failed_queues_from_those_of_which_nothing_is_known(monkeypatch):
    errors = {"emails": StoreError("WRONGTYPE"), "imports": ConnectionLost("away")}
    monkeypatch.setattr("mq_django.inspector.actions.pause_all", lambda **_: Switched(["default"], [], errors))
    said = "All other queues are paused, but emails is not: WRONGTYPE; imports may not be: away"
    with pytest.raises(CommandError, match=said):
        mq("pause", "--all")


def test_status_says_who_paused_a_queue_why_and_since_when():
    mq("pause", "emails", "--reason", "deploy of 2.1")

    assert [row["paused"] for row in mq_json("status")] == [False, True]
    (row,) = mq_json("status", "emails")
    assert (row["paused_by"], row["paused_reason"]) == (user_name(), "deploy of 2.1")
    assert datetime.fromisoformat(row["paused_since"]).tzinfo is not None
    headings, line = mq("status", "emails").splitlines()
    assert headings.split()[-3:] == ["paused_by", "paused_since", "paused_reason"]
    assert line.split()[:2] == ["emails", "paused"]
    assert line.endswith("deploy of 2.1")
    mq("resume", "emails")
    assert "paused" not in mq("status", "emails")


def test_a_queue_or_group_that_does_not_exist_is_an_error(mq_settings, redis_client, namespace):
    mq_settings(TOPICS={"orders": {}})
    for verb in (["pause"], ["status"], ["find", "--state=ready"], ["redrive", "--all"]):
        assert "No queue 'nope'" in refusal(verb[0], "nope", *verb[1:])[0], verb
        assert "Topic 'orders' has no group 'typo'" in refusal(verb[0], "orders:typo", *verb[1:])[0], verb
    assert not [*redis_client.scan_iter(f"{namespace}*typo*")]


def test_all_queues_are_paused_and_resumed():
    mq("pause", "emails")

    rows = mq_json("pause", "--all", "--reason", "maintenance")
    assert [(row["queue"], row["changed"]) for row in rows] == [("default", True), ("emails", False)]
    assert [view.paused for view in inspector.overview()] == [True, True]
    assert mq("resume", "--all").splitlines()[1:] == ["default  resumed", "emails   resumed"]
    assert not any(view.paused for view in inspector.overview())


def test_exactly_what_a_pause_of_all_has_paused_is_resumed_by_its_name():
    mq("pause", "emails", "--reason", "bad data")
    mq("pause", "--all", "--name", "deploy 7", "--reason", "maintenance")

    assert [row.get("paused_name") for row in mq_json("status")] == ["deploy 7", None]
    for empty in ("", " "):
        assert "The name of the action is empty" in refusal("resume", "--all", "--name", empty)[0]
    assert refusal("resume", "--all", "--name", "deploy")[0] == "No queue is paused by this name."
    assert mq_json("resume", "--all", "--name", "deploy 7") == [{"queue": "default", "paused": False, "changed": True}]
    assert [view.paused for view in inspector.overview()] == [False, True]
    assert "--name needs --all" in refusal("resume", "emails", "--name", "deploy")[0]


def test_a_pause_of_all_says_how_exactly_its_queues_are_resumed(capsys):
    mq("pause", "--all")
    (name,) = {view.pause.name for view in inspector.overview()}
    assert name.startswith("pause-")
    assert capsys.readouterr().err == f"To resume exactly these: manage.py mq resume --all --name {name}\n"


def test_what_is_paused_is_said():
    for args in ([], ["emails", "--all"]):
        assert "Give a queue, or --all" in refusal("pause", *args)[0], args


def test_the_user_of_a_container_may_have_no_name(monkeypatch):
    monkeypatch.setattr("getpass.getuser", os_error)
    mq("pause", "emails")

    assert inspector.queue("emails").pause.who.endswith(", mq")


def os_error():
    raise OSError("No username set in the environment")


def test_status_says_that_other_programs_handle_a_queue(mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {"EXTERNAL": True}})
    assert [row["external"] for row in mq_json("status")] == [False, True]
    assert "handled by others" in mq("status", "emails")
    mq("pause", "emails")
    assert "paused, handled by others" in mq("status", "emails")


def test_consumers_lists_a_supervisor_without_consumers():
    keep("emails")
    (row,) = mq_json("consumers")
    assert (row["consumer"], row["state"], row["host"], row["queues"]) == ("keeper", "housekeeping", "ops1", ["emails"])
    assert mq("consumers", "--stop", row["consumer"]) == "asked\n"
    assert mq_json("consumers")[0]["asked"] == "stop"


def test_status_counts_every_queue():
    publish("emails", "welcome", 1)
    publish("emails", "welcome", 1, delay=60)

    default, emails = mq_json("status")

    states = {"paused": False, "external": False, "busy_with": None, "oldest_s": None, "problems": []}
    assert default == {"queue": "default", **states} | dict.fromkeys(
        ("ready", "pending", "fetched", "delayed", "unhandled", "parked", "dead", "consumers", "threads", "busy"), 0
    )
    assert (emails["ready"], emails["delayed"]) == (1, 1)
    assert mq("status", "emails").splitlines()[1].split() == ["emails", "-", "1", "0", "1", *["0"] * 7, "unconsumed"]


def test_peek_shows_messages_with_their_secrets_replaced():
    data = {"n": 1, "password": "hunter2"}
    ids = {
        "unhandled": set_aside("emails", "welcome", data),
        "dead": bury("emails", "welcome", data),
        "ready": publish("emails", "welcome", data),
        "delayed": publish("emails", "welcome", data, delay=60),
    }
    for place, message_id in ids.items():
        (row,) = mq_json("find", "emails", "--state", place)
        assert (row["id"], row["name"]) == (message_id, "welcome")
        assert row["data"] == {"n": 1, "password": "[redacted]"}
        assert message_id in mq("find", "emails", "--state", place)
        assert "hunter2" not in mq("find", "emails", "--state", place)


def test_peek_spells_out_what_would_speak_to_the_terminal():
    publish("emails", "welcome", "\x1b[31m\u202e")

    assert "\\u001b[31m<U+202E>" in mq("find", "emails")


def test_publish_puts_a_message_in():
    message_id = mq_json("publish", "emails", "welcome", '{"user_id": 7}', "--priority", "high")["id"]
    mq("publish", "emails", "welcome", "--delay", "60", "--unique", "u", "--at-most", "60")
    due_ms = queues["emails"].find(unique="u").due_ms
    mq("publish", "emails", "welcome", "--delay", "6000", "--unique", "u")
    assert queues["emails"].find(unique="u").due_ms == due_ms

    assert mq_json("find", "emails")[0]["id"] == message_id
    assert [view.priority for view in messages("emails", "ready", limit=5).rows] == [10]
    assert inspector.queue("emails").delayed == 1


def test_cancel_removes_what_waits():
    publish("emails", "welcome", 1, delay=60, message_id="m1")
    publish("emails", "welcome", 1, delay=60, unique="cart:7")

    assert mq("purge", "emails", "m1", "u:cart:7", "--yes") == "2 deleted\n"
    assert inspector.queue("emails").delayed == 0


def test_an_id_that_is_not_there_is_an_error_after_the_others_were_done():
    publish("emails", "welcome", 1, delay=60, message_id="delayed")
    for message_id in ("dead", "moved"):
        bury("emails", "welcome", 1, message_id=message_id)
    acts = (("purge", "delayed", "--yes"), ("redrive", "dead"), ("redrive", "moved", "--to", "default"))
    for verb, message_id, *options in acts:
        out = StringIO()
        with pytest.raises(CommandError, match="1 of 2 ids were not found") as raised:
            call_command("mq", verb, "emails", message_id, "gone", *options, stdout=out)
        assert raised.value.returncode == 1
        assert "1 missing" in out.getvalue()


#: What takes dead letters away, what it says, and where they are then.
TAKING = [([], "redriven", "emails"), (["--to", "default"], "moved", "default")]


@pytest.mark.parametrize(("to", "said", "target"), TAKING)
def test_some_or_all_dead_letters_are_taken_and_never_guessed(to, said, target):
    ids = bury_many("emails", 3)

    assert mq_json("redrive", "emails", ids[0], *to) == {said: 1, "missing": 0, "refused": 0}
    for unclear in ([], [ids[1], "--all"]):
        why, code = refusal("redrive", "emails", *unclear, *to)
        assert ("--all" in why, code) == (True, 2)
    assert mq("redrive", "emails", "--all", *to) == f"2 {said}\n"
    assert (inspector.queue("emails").dead, inspector.queue(target).ready) == (0, 3)


def test_redis_away_is_an_error_in_a_sentence(mq_settings, tmp_path):
    mq_settings(CONNECTION=f"unix://{tmp_path}/nobody.sock")

    with pytest.raises(CommandError, match=r"Cannot reach Redis at .*nobody\.sock: No such file"):
        mq("status")


def test_pause_and_resume_say_whether_they_changed_anything():
    assert mq("pause", "emails") == "paused\n"
    assert mq_json("pause", "emails") == {"paused": True, "changed": False}
    assert inspector.queue("emails").paused
    assert mq("resume", "emails") == "resumed\n"
    assert not inspector.queue("emails").paused


def test_purge_deletes_what_a_filter_finds():
    for name in ("welcome", "welcome", "remind"):
        publish("emails", name, 1, delay=60)
        publish("emails", name, 1)

    with pytest.raises(CommandError, match="This deletes 2 delayed messages that match --name welc"):
        mq("purge", "emails", "--state", "delayed", "--name", "welc")
    assert mq_json("purge", "emails", "--state", "delayed", "--name", "welc", "--yes")["deleted"] == 2
    assert mq_json("purge", "emails", "--state", "ready", "--name", "welc", "--yes")["deleted"] == 2
    view = inspector.queue("emails")
    assert (view.delayed, view.ready) == (1, 1)
    with pytest.raises(CommandError, match="Only dead letters have an error"):
        mq("purge", "emails", "--state", "delayed", "--error", "x", "--yes")
    with pytest.raises(CommandError, match="--name is ''"):
        mq("purge", "emails", "--state", "delayed", "--name", "", "--yes")


def test_purge_starts_a_background_job_for_the_consumers():
    publish("emails", "welcome", 1, delay=60)

    purge = ("purge", "emails", "--state", "delayed", "--background", "--yes")
    assert mq(*purge, "--rate", "5") == "started, 1 delayed messages\n"

    found = jobs.get_job("emails", "delayed")
    assert (found.state, found.order.messages, found.rate) == ("running", "delayed", 5)
    with pytest.raises(CommandError, match="Another job is running on the delayed messages"):
        mq(*purge)


def test_a_group_is_shown_and_moved(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"events": {}})
    assert "No group has subscribed." in mq("topics")
    billing = topics["events"].group("billing")
    billing.subscribe("end")
    topics["events"].publish_many([("paid", n) for n in range(3)])
    (row,) = mq_json("topics")
    assert (row["group"], row["lag"], row["pending"]) == ("events:billing", 3, 0)
    mq("topics", "seek", "events:billing", "end")
    assert mq("topics").splitlines()[0].split()[:4] == ["group", "offset", "lag", "lag_s"]
    assert mq_json("topics")[0]["lag"] == 0
    assert mq_json("topics", "seek", "events:billing", "beginning", "--dry-run")["replayed"] == 3
    words = "Would move events:billing: 3 delivered again, 0 skipped, 0 pending"
    assert words in mq("topics", "seek", "events:billing", "beginning", "--dry-run")
    assert billing.status().position.lag == 0
    mq("topics", "seek", "events:billing", "2020-01-01T00:00Z")
    assert billing.status().position.lag == 3
    mq("topics", "seek", "events:billing", billing.status().position.offset)
    with pytest.raises(CommandError, match="topic:group"):
        mq("topics", "seek", "events", "end")
    for nonsense in ("2020-99-01T00", "never", "2020", "2020-11", "2020-99-01"):
        with pytest.raises(CommandError):
            mq("topics", "seek", "events:billing", nonsense)
    with pytest.raises(CommandError):
        mq("topics", "seek", "events:nobody", "end")


def test_a_log_is_shown_with_its_secrets_replaced(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"events": {}})
    assert "No messages." in mq("topics", "log", "events")
    first = topics["events"].publish("paid", {"n": 1, "password": "hunter2"})
    topics["events"].publish("sent", 2)
    one, two = mq_json("topics", "log", "events")
    assert (one["id"], one["name"], one["data"]) == (first, "paid", {"n": 1, "password": "[redacted]"})
    assert [row["data"] for row in mq_json("topics", "log", "events", "--since", two["entry"])] == [2]
    assert mq_json("topics", "log", "events", "--limit", "1") == [one]
    assert one["entry"] in mq("topics", "log", "events")
    assert "hunter2" not in mq("topics", "log", "events")


def test_a_log_is_filtered_and_continued(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"events": {}})
    for number in range(3):
        topics["events"].publish("paid", number, key=f"order:{number}")
        topics["events"].publish("sent", number)
    paid = mq_json("topics", "log", "events", "--name", "PAI")
    assert [row["data"] for row in paid] == [0, 1, 2]
    assert [row["data"] for row in mq_json("topics", "log", "events", "--key", "order:1")] == [1]
    assert [row["data"] for row in mq_json("topics", "log", "events", "--name", "sent", "--newest-first")] == [2, 1, 0]
    assert mq_json("topics", "log", "events", "--name", "paid", "--after", paid[1]["entry"]) == paid[2:]


def test_a_group_is_removed(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"events": {}})
    topics["events"].group("billing").subscribe()
    with pytest.raises(CommandError, match="--yes"):
        mq("topics", "unsubscribe", "events:billing")
    assert mq_json("topics", "unsubscribe", "events:billing", "--yes") == {"removed": True}
    with pytest.raises(CommandError, match="no group billing"):
        mq("topics", "unsubscribe", "events:billing", "--yes")
    assert topics["events"].groups() == []


replayed: list[Any] = []


def handle_again(message: Any) -> None:
    """What an operator chooses to replay into."""
    if message.data == 2:
        raise ValueError("not this one")
    replayed.append(message.data)


def test_a_part_of_a_log_is_replayed_into_a_chosen_handler(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"events": {}})
    group = topics["events"].group("billing")
    group.subscribe("end")
    topics["events"].publish_many([("paid", n) for n in range(5)])
    entries = [row["entry"] for row in mq_json("topics", "log", "events")]
    chosen = ["events:billing", "--since", entries[1], "--until", entries[3], "--handler", f"{__name__}.handle_again"]
    replayed.clear()
    told = mq_json("topics", "replay", *chosen, "--dry-run")
    assert (len(told["handled"]), told["failed"], replayed) == (3, [], [])
    told = mq_json("topics", "replay", *chosen)
    assert (len(told["handled"]), replayed) == (2, [1, 3])
    assert [failed["error"] for failed in told["failed"]] == ["ValueError: not this one"]
    assert "2 handled, 1 failed" in mq("topics", "replay", *chosen)
    assert group.status().position.lag == 5
    with pytest.raises(CommandError, match="nowhere"):
        mq("topics", "replay", "events:billing", "--handler", "nowhere.handle")
    with pytest.raises(CommandError, match="no subscriber"):
        mq("topics", "replay", "events:billing")


@pytest.mark.parametrize(("to", "said", "target"), TAKING)
def test_dead_letters_that_match_are_taken(to, said, target):
    bury_many("emails", 3)
    bury("emails", "remind", error="SMTPError: refused")

    assert mq_json("redrive", "emails", *to, "--all", "--name", "REMIND", "--error", "smtp")[said] == 1
    assert (inspector.queue(target).ready, inspector.queue("emails").dead) == (1, 3)
    assert mq("redrive", "emails", *to, "--all", "--name", "nope") == f"0 {said}\n"


def test_a_filter_that_cannot_be_applied_is_refused():
    """An empty one comes from an unset variable of a shell."""
    bury("emails", message_id="m1")
    every = (
        *(["--all", "--name", ""], ["--all", "--error="], ["--all", "--key", "", "--name", "remind"]),
        *(["--all", "--rate", "0"], ["--all", "--rate", "-5"]),
        *(["m1", "--name", "remind"], ["m1", "--rate", "5"], ["m1", "--background"]),
    )
    assert [options for options in every if refusal("redrive", "emails", *options) == ("", 0)] == []
    assert (inspector.queue("emails").dead, jobs.get_job("emails")) == (1, None)


@pytest.mark.parametrize(("to", "said", "target"), TAKING)
def test_dead_letters_are_left_to_consumers_when_that_is_wished(to, said, target):
    bury_many("emails", 3)
    assert mq_json("redrive", "emails", *to, "--all", "--background", "--rate", "5") == {"begun": True, "total": 3}
    assert jobs.get_job("emails").rate == 5
    with pytest.raises(CommandError, match="Another job is running"):
        mq("redrive", "emails", "--all")
    assert inspector.queue("emails").dead == 3
    while work_here("emails", "w1") != IDLE:
        pass
    assert mq("jobs", "watch", "emails") == f"finished: 3 {said}, 3 of 3 scanned\n"
    assert inspector.queue(target).ready == 3


def test_what_is_parked_is_counted_and_shown(mq_settings):
    mq_settings(QUEUES={"emails": {"CONCURRENCY": {"key": 1}}})
    for number in range(3):
        publish("emails", "welcome", {"n": number}, key="user:7")
    store = opened("emails")
    store.take("c1", count=10)

    assert mq_json("status", "emails")[0]["parked"] == 2
    assert [row["data"] for row in mq_json("find", "emails", "--state", "parked")] == [{"n": 1}, {"n": 2}]
    assert mq("purge", "emails", "--state", "parked", "--yes") == "2 deleted\n"


def test_status_tells_what_holds_the_threads_of_a_queue_that_makes_no_progress(mq_settings):
    mq_settings(QUEUES={"imports": {}, "payments": {}})
    publish("imports", "crunch", 1)
    (delivery,) = take("imports", 1)
    full = ["imports", delivery.stream, delivery.entry.decode(), 45_000, 40_000]
    for queue in ("imports", "payments"):
        told = {"threads": 4, "busy": [4, 0], "full": {"threads": full}}
        open_members(get_config().queue(queue), open_transport("produce")).beat("s1", {}, {"c1": told})
    publish("payments", "capture", 1)

    _, payments = mq_json("status")

    assert (payments["busy"], payments["threads"]) == (4, 4)
    assert {**payments["busy_with"], "ms": 0} == {"slots": "threads", "handler": "crunch", "queue": "imports", "ms": 0}
    *_, row, line = mq("status").splitlines()
    assert row.split()[:2] == ["payments", "starved"]
    said = "payments makes no progress: all 4 threads of its consumers are busy with crunch of queue imports for "
    # 45 s when the heartbeat was written.
    assert line.removeprefix(said) in {f"{seconds} s" for seconds in range(45, 60)}


def test_consumers_are_listed_and_asked():
    beat("emails", consumers=2)

    first, _ = mq_json("consumers")

    assert (first["consumer"], first["supervisor"], first["state"], first["queues"]) == (
        "s1-c0",
        "s1",
        "running",
        ["emails"],
    )
    headings, row, _ = mq("consumers").splitlines()
    assert headings.split() == ["consumer", "state", "handled", "failed", "heartbeat_s", "queues"]
    assert row.split()[:4] == ["s1-c0", "running", "0", "0"]
    assert mq("consumers", "--quiet", "s1-c1") == "asked\n"
    assert [row["asked"] for row in mq_json("consumers")] == ["", "quiet"]
    assert mq_json("consumers", "--stop", "s1") == {"asked": "s1", "queues": ["emails"]}
    with pytest.raises(CommandError, match="There is no consumer or supervisor nobody"):
        mq("consumers", "--stop", "nobody")


@pytest.fixture
def partly_away(mq_settings, tmp_path):
    """Settings with a queue and a topic on a server that cannot be reached."""
    away = {"CONNECTION": f"unix://{tmp_path}/nobody.sock"}
    mq_settings(QUEUES={"emails": {}, "far": away}, TOPICS={"events": {}, "log": away})


@pytest.mark.usefixtures("partly_away")
def test_a_server_that_cannot_be_reached_is_named_beside_what_the_others_have():
    schedules.create("hourly", queue="emails", every=3600, message="m")
    beat("emails", "web-1")
    opened("events:billing")
    for verb, shown, named in (
        ("status", "emails", "far"),
        ("topics", "events:billing", "log"),
        ("schedules", "hourly", "far"),
        ("consumers", "web-1", "far"),
    ):
        out = StringIO()
        with pytest.raises(CommandError, match=rf"Cannot read .*{named}: Cannot reach Redis at .*nobody\.sock"):
            call_command("mq", verb, stdout=out)
        assert shown in out.getvalue(), verb
        out = StringIO()
        with pytest.raises(CommandError):
            call_command("mq", verb, "--json", stdout=out)
        assert [row for row in json.loads(out.getvalue()) if "error" in row and named in row.values()], verb


@pytest.mark.usefixtures("partly_away")
def test_nothing_is_said_to_be_empty_when_a_server_cannot_be_reached(subtests):
    for arguments in (["schedules"], ["consumers"], ["jobs"], ["find", "name:nobody"]):
        out = StringIO()
        with subtests.test(arguments=arguments), pytest.raises(CommandError, match=r"Cannot read .*far"):
            call_command("mq", *arguments, stdout=out)
        assert out.getvalue() == ""


@pytest.mark.usefixtures("partly_away")
def test_the_totals_are_those_of_the_queues_that_can_be_read():
    queues["emails"].publish("welcome", 1)
    totals = inspector.totals()
    assert (totals.ready, totals.published) == (1, 1)
    assert list(totals.errors) == ["far", "log"]


def test_wrong_arguments_exit_with_2(mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {}}, TOPICS={"events": {}})
    every = (
        ("publish", "emails", "welcome", "{"),
        *(("publish", "emails", "welcome", "--headers", headers) for headers in ("[]", '"x"', "null", "0", "{")),
        ("publish", "emails", "welcome", "--delay", "9", "--unique", "u", "--at-most", "8"),
        ("publish", "emails", "", "1"),
        ("publish", "emails", "welcome", "--priority", "urgent"),
        ("publish", "emails", "welcome", "--priority", "101"),
        ("topics", "log", "events", "--since", "2026-13-01"),
        ("topics", "seek", "events:billing", "somewhere"),
        ("purge", "emails", "--state", "ready", "--error", "x", "--yes"),
        ("purge", "emails", "--state", "ready"),
        ("schedules", "create", "x", "--message", "m"),
        ("schedules", "create", "x", "--message", "m", "--every", "60", "--data", "{"),
        ("schedules", "change", "x"),
    )
    assert [arguments for arguments in every if refusal(*arguments)[1] != 2] == []
    assert inspector.queue("emails").ready == 0


def test_a_number_out_of_its_range_is_refused():
    every = (
        *(("find", "emails", "--limit", value) for value in ("0", "501", "few")),
        *(("redrive", "emails", "--all", "--rate", value) for value in ("0", "-5", "x")),
    )
    # From the command line it exits with 2, as argparse does.
    assert [arguments for arguments in every if "a whole number from 1" not in refusal(*arguments)[0]] == []
