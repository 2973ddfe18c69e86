"""The command `mq` for tests: its parser is made once."""

from argparse import ArgumentParser
from functools import cache
from typing import Any

import pytest
from django.core.management.base import BaseCommand

from mq_django.management.commands.mq import Command


@cache
def _parser(program: str, verb: str, is_from_command_line: bool) -> ArgumentParser:
    command = Command()
    if is_from_command_line:
        command._called_from_command_line = True
    return BaseCommand.create_parser(command, program, verb)


@pytest.fixture(autouse=True)
def _one_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the parser once for all tests: the options of all verbs take longer than what most tests do."""

    def create_parser(command: Any, program: str, verb: str, **_: Any) -> ArgumentParser:
        return _parser(program, verb, getattr(command, "_called_from_command_line", False))

    monkeypatch.setattr(Command, "create_parser", create_parser)
