"""The tables of arguments in docs/commands.md, made of the commands' parsers. `make docs` writes them."""

import argparse
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import django
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"

#: Of every command of Django, and of every verb: the page says once what they do.
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
    """Return the arguments of a parser that its table has."""
    return [
        action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        and action.dest not in OF_ALL
        and not isinstance(action, argparse._SubParsersAction)
    ]


def table(name: str) -> str:
    """Return the help of a verb and its arguments as Markdown."""
    parser = parsers()[name]
    found = arguments(parser)
    rows = [f"| `{_shown(action)}` | {_help(action)} |\n" for action in found]
    return "".join([f"| `{name}` | {parser.description} |\n|-|-|\n", *rows])


def _shown(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    words = " ".join(value) if isinstance(value, tuple) else value
    if action.option_strings:
        return action.option_strings[0] + ("" if action.nargs == 0 else f" {words}")
    return {None: words, "?": f"[{words}]", "*": f"[{words} …]", "+": f"{words} …"}[action.nargs]


def _help(action: argparse.Action) -> str:
    choices = f"One of {', '.join(f'`{choice}`' for choice in action.choices)}." if _lists(action) else ""
    return " ".join(filter(None, [action.help, choices])).replace("|", r"\|")


def _lists(action: argparse.Action) -> bool:
    # The codes of the doctor have a page of their own.
    return bool(action.choices) and len(action.choices) < 20


def renewed(page: str) -> str:
    """Return the page with its tables as they have to be."""
    return re.sub(r"(<!-- command: ([\w ]+) -->\n)(?:\|.*\n)*", lambda found: found[1] + table(found[2]), page)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
