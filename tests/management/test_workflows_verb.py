"""`manage.py mq workflows`."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from mq_django import inspect
from mq_django.conf import get_config
from mq_django.core.keys import WorkflowKeys
from mq_django.core.messages import Bury, StepEnd
from mq_django.inspector import workflow_runs
from tests.management.test_mq import mq, mq_json
from tests.seeding import end_steps, start_run, take

pytestmark = pytest.mark.usefixtures("mq_settings")

NO = Bury(error="ValueError: no", reason="attempts")


@pytest.fixture
def keys(namespace):
    return WorkflowKeys(namespace, "0")


def refused(*args):
    with pytest.raises(CommandError) as found:
        mq("workflows", *args)
    return str(found.value), found.value.returncode


def checked(*args):
    """Run the check, and return its output and exit code."""
    out = StringIO()
    try:
        call_command("mq", "workflows", "--check", *args, stdout=out, stderr=StringIO())
    except SystemExit as end:
        return out.getvalue(), end.code
    return out.getvalue(), 0


def test_runs_are_listed():
    assert mq("workflows") == "No runs.\n"
    failed, running = start_run({1: []}), start_run({1: [], 2: [1]}, name="shop.flows.report")
    end_steps(failed, NO, 1)
    end_steps(running, StepEnd(), 1)
    heading, first, second = mq("workflows").splitlines()
    assert heading.split() == ["run", "name", "state", "done", "failed", "running", "started"]
    assert first.split()[:6] == [running, "shop.flows.report", "running", "1/2", "0", "1"]
    assert second.split()[:6] == [failed, "shop.flows.import_file", "failed", "0/1", "1", "0"]
    assert [row["run"] for row in mq_json("workflows", "--state", "failed")] == [failed]
    assert [row["run"] for row in mq_json("workflows", "--name", "report", "--limit", "1")] == [running]
    assert [row["run"] for row in mq_json("workflows", "--limit", "1")] == [running]
    assert refused("--state", "odd")[1] == 2


def test_a_run_is_shown_with_its_steps():
    run_id = start_run({1: [], 2: [1]}, unique="shop:a.csv")
    end_steps(run_id, NO, 1)
    row = mq_json("workflows", run_id)
    assert (row["state"], row["steps"], row["failed"], row["failure"]) == ("failed", 2, 1, "step 1: ValueError")
    assert [(step["step"], step["state"], step["message"]) for step in row["list"]] == [
        (1, "failed", f"w:{run_id}.1.1"),
        (2, "waiting", None),
    ]
    assert row["list"][0]["seconds"] >= 0
    assert [step["step"] for step in mq_json("workflows", run_id, "--state", "waiting")["list"]] == [2]
    text = mq("workflows", run_id)
    assert "failure   step 1: ValueError" in text
    assert "The first 1 are shown" in mq("workflows", run_id, "--limit", "1")
    assert refused("0gone0gone") == (
        "There is no run 0gone0gone: it has ended a week ago, waits for a commit, or was rolled back.",
        1,
    )


def test_a_run_is_cancelled_and_retried():
    run_id = start_run({1: []})
    end_steps(run_id, NO, 1)
    assert refused(run_id, "--retry") == (
        f"This retries run {run_id} of shop.flows.import_file. Confirm with --yes.",
        2,
    )
    assert mq("workflows", run_id, "--retry", "--yes") == "1 failed steps run again\n"
    assert len(take("default", 5)) == 1
    assert mq("workflows", run_id, "--cancel", "--yes") == "cancelled\n"
    assert mq("workflows", run_id, "--cancel", "--yes") == "was already cancelled\n"
    assert workflow_runs.run(run_id).state == "cancelled"


def test_a_failed_step_is_skipped():
    run_id = start_run({1: [], 2: [1]})
    assert refused(run_id, "--skip", "1", "--yes") == (f"Step 1 of run {run_id} has not failed", 1)
    end_steps(run_id, NO, 1)
    assert mq_json("workflows", run_id, "--skip", "1", "--yes") == {"skipped": True}
    end_steps(run_id, StepEnd(), 2)
    assert workflow_runs.run(run_id).state == "succeeded"
    assert "nothing to retry" in refused(run_id, "--retry", "--yes")[0]


def test_arguments_that_do_not_fit():
    assert refused("--cancel", "--yes") == ("Give the id of a run.", 2)
    assert refused("--repair") == ("--repair needs --check.", 2)
    assert refused("0gone0gone", "--check")[1] == 1


def test_the_check_finds_and_repairs_what_was_deleted(redis_client, keys):
    run_id = start_run({1: []})
    redis_client.delete(get_config().queue("default").keys.ready)
    assert checked() == ("No problems found.\n", 0)
    # What began just now may be under way.
    redis_client.hset(keys.steps(run_id), 1, "S 0 0 0 1 t 1000")
    text, code = checked()
    assert code == 1
    assert text.splitlines()[1].split()[:6] == ["message", run_id, "1", "default", f"w:{run_id}.1.1", "no"]
    text, code = checked("--repair")
    assert (code, "The step starts again with a new message." in text) == (0, True)
    assert [(each.verb, each.about) for each in inspect.actions().rows] == [("repair run", [run_id])]
    assert checked() == ("No problems found.\n", 0)
    (delivery,) = take("default", 5)
    assert delivery.message.id == f"w:{run_id}.1.2"


def test_what_cannot_be_repaired_is_told(redis_client, keys, mq_settings):
    run_id = start_run({1: []}, queue="emails")
    redis_client.hset(keys.steps(run_id), 1, "S 0 0 0 1 t 1000")
    mq_settings(QUEUES={"default": {}})
    text, code = checked("--repair", run_id)
    assert (code, "The queue of a started step is not in the settings." in text) == (1, True)


def test_nonsense_is_shown_as_text(redis_client, keys):
    run_id = start_run({1: []})
    redis_client.hset(keys.run(run_id), mapping={"name": b"\x1b[2J\xff", "failure": b"1 \x1b[2J", "failed": "1"})
    redis_client.hset(keys.bodies(run_id), 1, '{"name":"step:\\u001b[2J","queue":5}')
    for text in (mq("workflows"), mq("workflows", run_id), mq("workflows", run_id, "--json")):
        assert "\x1b" not in text
