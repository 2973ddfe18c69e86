"""docs/health.md: its example, its tables, and the commands that it names."""

import re
import shlex
from pathlib import Path
from typing import get_args

import django
import pytest

from mq_django.core.thresholds import Thresholds
from mq_django.inspector.queue_view import Problem
from mq_django.management.commands import mq, runconsumer
from mq_django.observability import problem_watch
from mq_django.observability.problem_watch import ProblemWatcher
from mq_django.signals import problem_began, problem_ended
from tests.seeding import beat, bury_many, publish
from tests.waiting import moment_between

PAGE = (Path(__file__).parent.parent / "docs" / "health.md").read_text(encoding="utf-8")


def test_the_example_prints_the_problems(mq_settings, capsys):
    beat("emails")
    bury_many("emails", 2)
    (code,) = re.findall(r"<!-- try: problems -->\n```python\n(.*?)```", PAGE, re.S)
    exec(code, {})
    assert "emails dead emails has 2 dead letters. 2 0\n" in capsys.readouterr().out


def test_each_problem_has_its_row():
    section = PAGE.partition("\n## Problems\n")[2]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.M)) == get_args(Problem)


def test_each_threshold_is_named():
    missing = [name for name in Thresholds.__dataclass_fields__ if f"--{name.replace('_', '-')}" not in PAGE]
    assert missing == []


def commands():
    """Yield the arguments of the commands that the page executes or has others execute."""
    for listed in re.findall(r'"manage.py", ((?:"[^"]+"(?:, )?)+)', PAGE):
        yield re.findall(r'"([^"]+)"', listed)
    for line in re.findall(r"python manage.py (.+?)(?: 2>&1|$)", PAGE, re.M):
        yield shlex.split(line)


@pytest.mark.parametrize("arguments", list(commands()), ids=" ".join)
def test_each_command_can_be_parsed(arguments):
    verb, *rest = arguments
    command = {"mq": mq, "runconsumer": runconsumer}[verb].Command()
    assert command.create_parser("manage.py", verb).parse_args(rest)


def test_there_are_commands():
    assert len(list(commands())) >= 3


def test_the_receivers_send_mails(mq_settings, mailoutbox, settings, monkeypatch, redis_client):
    settings.ADMINS = ["ops@example.com"] if django.VERSION >= (6, 0) else [("Ops", "ops@example.com")]
    monkeypatch.setattr(problem_watch, "EVERY", 0)
    publish("emails", "welcome", 1)
    (code,) = re.findall(r"<!-- try: problem signals -->\n```python\n(.*?)```", PAGE, re.S)
    receivers = {}
    exec(code, receivers)
    try:
        watcher = ProblemWatcher()
        for _ in range(2):
            moment_between(redis_client)
            watcher.run_once()
        beat("emails")
        monkeypatch.setattr(problem_watch, "QUIET_MS", 0)
        watcher.run_once()
    finally:
        problem_began.disconnect(receivers["report"])
        problem_ended.disconnect(receivers["report_end"])
    began, ended = mailoutbox
    assert began.subject.endswith("emails: unconsumed")
    assert began.body == "emails has 1 message and no running consumer. Is runconsumer started?"
    assert ended.subject.endswith("emails: no longer unconsumed")
    assert ended.body.startswith("It lasted for 0:00:0")
