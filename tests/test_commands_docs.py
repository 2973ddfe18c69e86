"""docs/commands.md: every verb, action and option of `runconsumer`, and no others; its examples can be parsed."""

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache

from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from mq_django.management.commands import mq
from tests.shell import ROOT

TEXT = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\$ (?:.*\| )?manage\.py (.+?)(?: >.*)?$", TEXT, re.MULTILINE)
#: Of every command of Django, and of every verb.
OF_ALL = {action.dest for action in BaseCommand().create_parser("", "")._actions} | {"json"}


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, of the verbs and of their actions, by their names."""
    found = {}
    for name in ("mq", "runconsumer"):
        parser = load_command_class("mq_django", name).create_parser("manage.py", name)
        found.update(_below(name, parser))
    return found


def _below(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, below in action.choices.items():
                yield from _below(f"{name} {verb}", below)


def arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a parser that not every command has."""
    return [
        action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        and action.dest not in OF_ALL
        and not isinstance(action, argparse._SubParsersAction)
    ]


def section(heading: str) -> str:
    return TEXT.partition(f"\n{heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def test_every_verb_has_a_section_and_a_link_to_it():
    sections = re.findall(r"^### mq (\w+)$", TEXT, re.MULTILINE)
    assert sorted(sections) == sorted(mq.VERBS)
    assert sorted(re.findall(r"\[`(\w+)`\]\(#mq-\1\)", TEXT.partition("\n## ")[0])) == sorted(mq.VERBS)


def test_every_action_is_named_in_the_section_of_its_verb():
    actions = [name.split() for name in parsers() if name.count(" ") == 2]
    assert len(actions) > 15
    missing = [
        (verb, action)
        for _, verb, action in actions
        if not re.search(rf"(?:`|mq ){verb} {action}\b|`{action}`", section(f"### mq {verb}"))
    ]
    assert missing == []


def test_every_option_of_runconsumer_has_its_row():
    options = {option for action in arguments(parsers()["runconsumer"]) for option in action.option_strings}
    rows = " ".join(re.findall(r"^- (`--.*?): ", section("## runconsumer"), re.MULTILINE))
    assert set(re.findall(r"--[\w-]+", rows)) == options


def test_no_other_option_is_named():
    known = {option for parser in parsers().values() for action in parser._actions for option in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", TEXT)) <= known


def test_every_argument_has_a_help():
    missing = [(name, each.dest) for name, parser in parsers().items() for each in arguments(parser) if not each.help]
    assert missing == []


def test_each_example_can_be_parsed(subtests):
    for line in EXAMPLES:
        verb, *rest = shlex.split(line)
        with subtests.test(line):
            assert parsers()[verb].parse_args(rest)


def test_each_verb_has_an_example_or_is_dangerous():
    shown = {re.match(r"mq (\w+)", line)[1] for line in EXAMPLES if line.startswith("mq")}
    assert set(mq.VERBS) - shown == set()
