"""The output of the command `mq`: lines, JSON, colours and progress."""

import getpass
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.core.management.color import Style, no_style

from mq_django.conf import QueueConfig
from mq_django.core.texts import escape, truncate
from mq_django.errors import ConnectionLost, ConnectionRejected
from mq_django.inspector.message_views import moment_text

T = TypeVar("T")

#: Seconds between two lines about the progress, if it is not a bar.
PROGRESS = 2.0

#: Characters of a progress bar.
BAR = 20

#: Returns to the beginning of a line of the terminal, and clears it.
CLEAR_LINE = "\r\x1b[K"


class Heading(str):
    """A line above a table or a section, which has a style on a terminal."""

    __slots__ = ()


class OutputError(OSError):
    """The output cannot be written, for example because its disk is full."""


@contextmanager
def writing() -> Iterator[None]:
    """Raise OutputError for an error of the output in this block, except BrokenPipeError: its reader has closed it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"Cannot write the output: {error.strerror or error}") from error


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
        with writing():
            self._out.write(_writable(self._out, line), ending=ending)

    def flush(self) -> None:
        """Send what was printed to the terminal."""
        with writing():
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


# Tables in a terminal, for the command `mq`.

#: Characters of a cell with data.
MAX_DATA = 200

#: The text of a cell without a value.
EMPTY = "-"


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line of headings and a line for each row, none without rows. The columns are the keys of all rows.

    An empty cell is "-", so that each line has as many words as columns as long as no value has a space.
    """
    if not rows:
        return []
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, *([_cell(key, row.get(key)) for key in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    are_numbers = [all(isinstance(row.get(key), int | float | None) for row in rows) for key in columns]
    headings, *cells = ["  ".join(map(_padded, line, widths, are_numbers)).rstrip() for line in lines]
    return [Heading(headings), *cells]


def away_text(errors: Mapping[str, str]) -> str:
    """Return which queues and topics cannot be read, and why, as a sentence for each error; "" if all can."""
    named = {error: ", ".join(name for name in errors if errors[name] == error) for error in errors.values()}
    return " ".join(f"Cannot read {escape(names)}: {error}" for error, names in named.items())


def left_out_text(more: Mapping[str, int]) -> str:
    """Return how many groups of which topics are not shown, as a sentence for each topic; "" if all are."""
    return " ".join(f"Topic {name} has {count} more groups, which are not shown." for name, count in more.items())


def _cell(key: str, value: Any) -> str:
    if value is None:
        return EMPTY
    if key == "data":
        return truncate(escape(json.dumps(value, ensure_ascii=False)), MAX_DATA)
    return (",".join(map(escape, value)) if isinstance(value, list) else escape(str(value))) or EMPTY


def _padded(cell: str, width: int, is_number: bool) -> str:
    return cell.rjust(width) if is_number else cell.ljust(width)


# What a verb of the command `mq` is, and what it returns.

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VerbResult:
    """The output of a verb, and how the command ends after it was printed."""

    #: The JSON values of `--json`, and the lines of text without it.
    found: Any
    lines: Iterable[str]
    #: The command prints this to stderr and exits with 1; empty: it has succeeded.
    error: str = ""
    #: The exit code without an error.
    code: int = 0
    #: A line for people, which is printed to stderr after the output.
    note: str = ""


def with_away(
    rows: Sequence[Mapping[str, Any]], lines: Sequence[str], empty: str, away: Mapping[str, str], *, note: str = ""
) -> VerbResult:
    """Return rows, and for each queue that cannot be read its error. Without lines and errors it is `empty`."""
    errors = [{"queue": name, "error": error} for name, error in away.items()]
    return VerbResult([*rows, *errors], lines or ([] if away else [empty]), away_text(away), note=note)


def columns(view: object, names: str) -> dict[str, Any]:
    """Return attributes of a view as JSON values. A name may be `key=attribute`.

    A time in ms is shown as text under a name without `_ms`. With `?`, an empty value is null.
    """
    found = {}
    for each in names.split():
        key, _, attribute = each.rstrip("?").partition("=")
        value = getattr(view, attribute or key)
        if (attribute or key).endswith("_ms"):
            key, value = key.removesuffix("_ms"), moment_text(value)
        found[key] = (value or None) if each.endswith("?") else value
    return found


def confirm(options: Options, what: str) -> None:
    """Refuse what was not confirmed.

    Raises:
        CommandError: --yes is not given.
    """
    if not options["yes"]:
        raise CommandError(f"{what} Confirm with --yes.", returncode=2)


def user_name() -> str:
    """Return who uses the command, for what the admin shows. In a container, a user may have no name."""
    try:
        return f"{getpass.getuser()}, mq"
    except (ImportError, KeyError, OSError):
        return "unknown user, mq"


def read_each(configs: Sequence[QueueConfig], read: Callable[[QueueConfig], T]) -> tuple[dict[str, T], dict[str, str]]:
    """Return what is read of queues, by name, and the errors of those whose server cannot be reached."""
    found: dict[str, T] = {}
    away: dict[str, str] = {}
    for config in configs:
        try:
            # One timeout is enough to know that a server cannot be reached.
            if config.connection not in away:
                found[config.name] = read(config)
        except (ConnectionLost, ConnectionRejected) as error:
            away[config.connection] = str(error)
    return found, {config.name: away[config.connection] for config in configs if config.connection in away}
