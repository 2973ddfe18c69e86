"""The output of the command `mq`."""

import json
from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand
from django.core.management.color import Style, no_style


class Terminal:
    """Where a verb prints: lines of text or JSON, and its progress."""

    def __init__(self, command: BaseCommand, *, as_json: bool, force_color: bool = False) -> None:
        self._out, self._err = command.stdout, command.stderr
        self.as_json = as_json
        #: The styles of text, without colours unless the output is a terminal.
        self.style: Style = command.style if force_color or self._out.isatty() else no_style()

    def show(self, found: Any, lines: Iterable[str]) -> None:
        """Print JSON values, or lines of text."""
        for line in [json.dumps(found, ensure_ascii=True)] if self.as_json else lines:
            self.write(line)

    def write(self, line: str) -> None:
        """Print a line."""
        self._out.write(line)

    def report(self, line: str) -> None:
        """Print a line about the progress, to stderr."""
        self._err.write(line)
