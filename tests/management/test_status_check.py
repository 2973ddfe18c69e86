"""`manage.py mq status --check`, as a cron job or a monitoring program calls it."""

import json
from io import StringIO

import pytest
from django.core.management import call_command

from mq_django.core.project import Thresholds
from mq_django.inspector import actions, problems
from mq_django.management.commands.mq import Command
from mq_django.management.queue_verbs import PROBLEMS
from mq_django.producers import queues
from mq_django.transport.private_server import PrivateServer
from tests.management.test_mq import refusal
from tests.seeding import beat, bury_many, publish_many, set_aside

pytestmark = pytest.mark.usefixtures("mq_settings")


def check(*args):
    """Return the exit code and the lines."""
    out = StringIO()
    try:
        call_command("mq", "status", "--check", *args, stdout=out)
    except SystemExit as end:
        return end.code, out.getvalue().splitlines()
    return 0, out.getvalue().splitlines()


def test_without_problems_it_exits_with_0():
    assert check() == (0, ["OK: no problems."])
    assert check("--json") == (0, ["[]"])


def test_each_problem_is_a_line():
    actions.pause("default", who="ops", reason="a deploy\nis going on")
    queues["emails"].publish("welcome", 1)

    code, (unconsumed, paused) = check()

    assert code == 1
    assert unconsumed == "[unconsumed] emails has 1 message and no running consumer. Is runconsumer started?"
    assert paused.startswith("[paused] default is paused. Paused by ops")
    assert "a deploy<U+000A>is going on" in paused


def test_the_settings_have_the_thresholds_and_arguments_override_them(mq_settings):
    beat("emails")
    bury_many("emails", 2)
    assert check("emails")[0] == 1
    mq_settings(THRESHOLDS={"MAX_BURIED": 2, "MAX_DEAD": 1})
    assert check("emails") == (1, ["[dead] emails has 2 dead letters."])
    assert check("emails", "--max-dead", "2") == (0, ["OK: no problems."])
    assert check("emails", "--max-buried", "0", "--max-dead", "2")[0] == 1
    assert [problem.threshold for problem in problems("emails")] == [1]
    assert problems("emails", thresholds=Thresholds(max_buried=2)) == []


def test_the_queues_the_thresholds_and_what_to_ignore_are_arguments():
    for queue in ("default", "emails"):
        beat(queue)
    bury_many("emails", 2)
    set_aside("default", "nobody.knows")
    publish_many("emails", [("welcome", n) for n in range(3)])

    assert check("emails", "--max-buried", "2") == (0, ["OK: no problems."])
    assert check("default", "--max-unhandled", "1")[0] == 0
    assert check("--ignore", "unhandled", "--ignore", "buried")[0] == 0
    assert check("emails", "--max-buried", "2", "--max-dead", "1", "--max-ready", "2", "--max-age", "5m") == (
        1,
        ["[ready] emails has 3 ready messages.", "[dead] emails has 2 dead letters."],
    )


def test_with_json_it_prints_the_problems_with_their_figures():
    beat("emails")
    set_aside("emails", "nobody.knows")

    code, (line,) = check("--json")

    assert code == 1
    assert json.loads(line) == [
        {
            "queue": "emails",
            "kind": "unhandled",
            "severity": "warning",
            "sentence": "emails has 1 message without a handler in any consumer.",
            "figure": 1,
            "threshold": 0,
            "since": None,
        }
    ]


def test_a_server_that_cannot_be_reached_is_the_problem(mq_settings):
    with PrivateServer() as server:
        url = server.url
    mq_settings(CONNECTION=url)

    code, (line,) = check()
    assert code == 1
    assert line.startswith("[unreadable] Cannot reach Redis at")
    (found,) = json.loads(check("--json")[1][0])
    assert (found["queue"], found["kind"]) == (None, "unreadable")


def test_wrong_arguments_exit_with_2(capsys):
    for args in (["--check", "nope"], ["--max-age", "5m"], ["--ignore", "paused"]):
        assert refusal("status", *args)[1] == 2, args
    for option, value in (
        *(("--max-age", "soon"), ("--max-age", "-1"), ("--max-ready", "-1"), ("--max-dead", "x"), ("--ignore", "x")),
    ):
        with pytest.raises(SystemExit) as caught:
            Command().run_from_argv(["manage.py", "mq", "status", "--check", option, value])
        assert caught.value.code == 2, (option, value)
        assert option in capsys.readouterr().err


def test_each_threshold_has_an_option():
    assert set(PROBLEMS) == set(Thresholds.__dataclass_fields__)


def test_a_muted_problem_is_left_out_and_counted():
    beat("default")
    queues["emails"].publish("welcome", 1)
    out = StringIO()
    for arguments in (("--for", "1h", "--reason", "moved"), ("--off",), ("--off",), ("--for", "1h")):
        call_command("mq", "mute", "emails", "unconsumed", *arguments, stdout=out)
    assert out.getvalue().splitlines() == ["muted", "unmuted", "was not muted", "muted"]

    assert check("--json") == (0, ["[]"])
    call_command("mq", "mute", "--json", stdout=out)
    ((muted,),) = [json.loads(out.getvalue().splitlines()[-1])]
    assert (muted["queue"], muted["kind"], muted["reason"]) == ("emails", "unconsumed", None)
    call_command("mq", "status", "--check", stdout=out, stderr=out)
    assert out.getvalue().splitlines()[-2:] == ["OK: no problems.", "Muted: 1."]
    call_command("mq", "status", "emails", "--json", stdout=out)
    assert json.loads(out.getvalue().splitlines()[-1])[0]["problems"] == []


def test_times_are_in_utc_whatever_the_zone_of_the_project(settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    actions.pause("default")

    _, (paused,) = check()

    assert paused.endswith("+00:00.")
