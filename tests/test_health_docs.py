"""docs/health.md: its tables, and the commands that it has others execute."""

import re
import shlex
from pathlib import Path
from typing import get_args

from mq_django.core.project import Problem, Thresholds
from mq_django.management.commands import mq, runconsumer

PAGE = (Path(__file__).parent.parent / "docs" / "health.md").read_text(encoding="utf-8")


def test_each_problem_has_its_row():
    section = PAGE.partition("\n## Problems\n")[2]
    assert tuple(re.findall(r"^- `(\w+)`: ", section, re.M)) == get_args(Problem)


def test_each_threshold_is_named():
    missing = [name for name in Thresholds.__dataclass_fields__ if f"--{name.replace('_', '-')}" not in PAGE]
    assert missing == []


def commands():
    """Yield the arguments of the commands that the page executes or has others execute."""
    for listed in re.findall(r'"manage.py", ((?:"[^"]+"(?:, )?)+)', PAGE):
        yield re.findall(r'"([^"]+)"', listed)
    for line in re.findall(r"python manage.py (.+?)(?: 2>&1|$)", PAGE, re.M):
        yield shlex.split(line)


def test_each_command_can_be_parsed():
    found = list(commands())
    assert len(found) >= 3
    for verb, *rest in found:
        command = {"mq": mq, "runconsumer": runconsumer}[verb].Command()
        assert command.create_parser("manage.py", verb).parse_args(rest), (verb, rest)
