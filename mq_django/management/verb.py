"""What a verb of the command `mq` is, and what it returns."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mq_django.management.terminal import Terminal

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


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its name and help, its arguments, and the function that runs it.

    The function gets the options and the terminal. It returns None if it has printed everything itself.
    """

    name: str
    help: str
    run: Callable[[Options, Terminal], VerbResult | None]
    add_options: Callable[[argparse.ArgumentParser], None] | None = None
    #: Whether its first argument is a queue, which must exist.
    has_queue: bool = False

    def add_to(self, verbs: Any) -> None:
        """Add the verb to the subparsers of the command."""
        parser = add_parser(verbs, self.name, self.help)
        if self.has_queue:
            parser.add_argument("queue", help="A queue, or the group of a topic as topic:group.")
        if self.add_options is not None:
            self.add_options(parser)


def add_parser(parsers: Any, name: str, what: str) -> argparse.ArgumentParser:
    """Add the parser of a verb, or of an action of a verb, with the options that all have."""
    parser: argparse.ArgumentParser = parsers.add_parser(name, help=what, description=what)
    # Without defaults, which would replace what was given before the verb.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="Print JSON.")
    for option in ("--settings", "--pythonpath", "-v"):
        parser.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color"):
        parser.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser
