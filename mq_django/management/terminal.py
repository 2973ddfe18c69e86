"""The output of the command `mq`: lines, JSON, colours and progress."""

import json
import os
import time
from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand, OutputWrapper
from django.core.management.color import Style, no_style

#: Seconds between two lines about the progress, if it is not a bar.
PROGRESS = 2.0

#: Characters of a progress bar.
BAR = 20

#: Returns to the beginning of a line of the terminal, and clears it.
CLEAR_LINE = "\r\x1b[K"


class Heading(str):
    """A line above a table or a section, which has a style on a terminal."""

    __slots__ = ()


class Terminal:
    """Where a verb prints: lines of text or JSON, and its progress."""

    def __init__(self, command: BaseCommand, *, as_json: bool, force_color: bool = False) -> None:
        self._out, self._err = command.stdout, command.stderr
        self.as_json = as_json
        self.is_terminal = self._out.isatty()
        has_colours = force_color or (self.is_terminal and not os.environ.get("NO_COLOR"))
        #: The styles of text, without colours unless the output is a terminal.
        self.style: Style = command.style if has_colours else no_style()
        self._shows_bar = self._err.isatty()
        self._reported = time.monotonic()
        self._is_in_bar = False

    def show(self, found: Any, lines: Iterable[str]) -> None:
        """Print JSON values, or lines of text."""
        for line in [json.dumps(found, ensure_ascii=True)] if self.as_json else lines:
            self.write(self.styled(line))

    def styled(self, line: str) -> str:
        """Return a line with the style of its kind."""
        styled: str = self.style.MIGRATE_LABEL(line) if isinstance(line, Heading) else line
        return styled

    def write(self, line: str, *, ending: str = "\n") -> None:
        """Print a line."""
        self._out.write(_writable(self._out, line), ending=ending)

    def flush(self) -> None:
        """Send what was printed to the terminal."""
        self._out.flush()

    def report(self, line: str) -> None:
        """Print a line about the progress, to stderr."""
        self.end_progress()
        self._err.write(_writable(self._err, line))

    def progress(self, done: int, total: int, text: str) -> None:
        """Show how far a long action is: a bar if stderr is a terminal, else a line every few seconds."""
        if self._shows_bar:
            share = min(1.0, done / total) if total else 1.0
            bar = "#" * int(BAR * share)
            bar_line = f"{CLEAR_LINE}[{bar:<{BAR}}] {share:4.0%}  {text}"
            self._err.write(_writable(self._err, bar_line), str, ending="")
            self._err.flush()
            self._is_in_bar = True
        elif time.monotonic() - self._reported > PROGRESS:
            self._reported = time.monotonic()
            self._err.write(_writable(self._err, text))

    def end_progress(self) -> None:
        """Remove the bar."""
        if self._is_in_bar:
            self._is_in_bar = False
            self._err.write(CLEAR_LINE, str, ending="")
            self._err.flush()


def _writable(out: OutputWrapper, text: str) -> str:
    """Return a text with an escape for each character that the encoding of an output does not have."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
