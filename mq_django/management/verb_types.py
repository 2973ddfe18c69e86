"""What a verb of the command `mq` is: the function that does it, and its arguments."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.management.base import CommandError

from mq_django.management.terminal import Options, Terminal, VerbResult

Run = Callable[[Options, Terminal], VerbResult | None]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a verb: what argparse gets, and the options of which one must be given with it."""

    name: str
    help: str
    needs: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def dest(self) -> str:
        """Return the name of its value."""
        return _dest(self.options.get("dest", self.name))

    @property
    def default(self) -> Any:
        """Return its value if it is not given."""
        if self.options.get("nargs") == "*" and not self.name.startswith("-"):
            return []
        return self.options.get("default", False if self.options.get("action") == "store_true" else None)

    def add_to(self, parser: Any) -> None:
        """Declare it to argparse."""
        start = f"With {' or '.join(self.needs)}: " if self.needs else ""
        parser.add_argument(self.name, help=start + self.help, **self.options)


@dataclass(frozen=True, slots=True)
class Verb:
    """What a verb does, and its arguments. Of those in a tuple, one may be given.

    The function gets the options and the terminal. It returns None if it has printed everything itself. The first line
    of its docstring is the help.
    """

    run: Run
    arguments: tuple[Argument | tuple[Argument, ...], ...]
    skip_checks: bool = False

    def add_to(self, parsers: Any, name: str) -> None:
        """Declare it to argparse."""
        parser = add_parser(parsers, name, str(self.run.__doc__).partition("\n")[0])
        if self.skip_checks:
            parser.set_defaults(skip_checks=True)
        for each in self.arguments:
            if isinstance(each, Argument):
                each.add_to(parser)
                continue
            group = parser.add_mutually_exclusive_group()
            for one in each:
                one.add_to(group)

    def run_with(self, options: Options, terminal: Terminal) -> VerbResult | None:
        """Do it.

        Raises:
            CommandError: an option is given without the one that it needs.
        """
        arguments = [one for each in self.arguments for one in ((each,) if isinstance(each, Argument) else each)]
        # Without a verb or an action, argparse does not know the arguments of the one that is meant.
        options = {**{each.dest: each.default for each in arguments}, **options}
        for each in arguments:
            is_given = options[each.dest] != each.default
            if is_given and each.needs and all(options[_dest(name)] in (None, False) for name in each.needs):
                raise CommandError(f"{each.name} needs {' or '.join(each.needs)}.", returncode=2)
        return self.run(options, terminal)


@dataclass(frozen=True, slots=True)
class Actions:
    """A verb that has actions. Without one, it does the first of them."""

    help: str
    actions: Mapping[str, Verb]

    def add_to(self, parsers: Any, name: str) -> None:
        """Declare it to argparse."""
        below = add_parser(parsers, name, self.help).add_subparsers(dest="action", metavar="|".join(self.actions))
        for action, each in self.actions.items():
            each.add_to(below, action)

    def run_with(self, options: Options, terminal: Terminal) -> VerbResult | None:
        """Do the given action."""
        return self.actions[options.get("action") or next(iter(self.actions))].run_with(options, terminal)


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


def _dest(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def arg(name: str, what: str, *, needs: str = "", **options: Any) -> Argument:
    """Return an argument with its help. `needs`: the options of which one must be given with it."""
    return Argument(name, what, tuple(needs.split()), options)


def flag(name: str, what: str, *, needs: str = "") -> Argument:
    """Return an option without a value."""
    return arg(name, what, needs=needs, action="store_true")


def verb(run: Run, *arguments: Argument | tuple[Argument, ...], skip_checks: bool = False) -> Verb:
    """Return a verb with its arguments."""
    return Verb(run, arguments, skip_checks)
