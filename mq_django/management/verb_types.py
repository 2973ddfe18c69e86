"""What a verb of the command `mq` is: the function that does it, its arguments, and their types."""

import argparse
import errno
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from mq_django.consumers.supervisor.health import Health, Route, listen, serving
from mq_django.core import clock
from mq_django.core.clock import MAX_DELAY, aware
from mq_django.management.terminal import Options, Terminal, VerbResult

#: Seconds of the units of a period.
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

LAST_PORT = 65535

#: The most messages that a verb shows.
MAX_SHOWN = 500

#: The largest of other numbers; the largest number of a row, and its digits.
MAX_WHOLE, LAST_ROW, MAX_DIGITS = 10**9, 2**63 - 1, 19


def whole(text: str) -> int:
    """Parse a whole number from 1."""
    return _whole(text, 1, MAX_WHOLE)


def count(text: str) -> int:
    """Parse a whole number from 0."""
    return _whole(text, 0, MAX_WHOLE)


def row(text: str) -> int:
    """Parse the number of a row of a table."""
    return _whole(text, 1, LAST_ROW)


def _whole(text: str, least: int, most: int) -> int:
    # Python refuses to convert a text of thousands of digits.
    if not text.isdecimal() or len(text) > MAX_DIGITS or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"a whole number from {least} to {most:,}, not {text!r}")
    return int(text)


def priority(text: str) -> int | str:
    """Parse a priority: a whole number, or a name, which is checked later."""
    return int(text) if re.fullmatch(r"-?\d{1,3}", text, re.ASCII) else text


def page_size(text: str) -> int:
    """Parse how many messages to show."""
    return _whole(text, 1, MAX_SHOWN)


def duration(text: str) -> float:
    """Parse a number of seconds, up to the longest delay."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_DELAY.total_seconds():
        most = f"{MAX_DELAY.total_seconds():,.0f} ({MAX_DELAY.days} days)"
        raise argparse.ArgumentTypeError(f"a number of seconds from 0 to {most}, not {text!r}")
    return seconds


def period(text: str) -> float:
    """Parse a number of seconds, or one with a unit such as 90s, 5m, 2h or 1d, up to the longest delay, as seconds."""
    if (seconds := _seconds(text)) > MAX_DELAY.total_seconds():
        raise argparse.ArgumentTypeError(f"a time up to {MAX_DELAY.days}d, not {text!r}")
    return seconds


def span(most: timedelta) -> Callable[[str], float]:
    """Return a function that parses a period above zero and up to a longest one."""

    def read(text: str) -> float:
        if not 0 < (seconds := _seconds(text)) <= most.total_seconds():
            raise argparse.ArgumentTypeError(f"a time above 0 and up to {most.days}d, not {text!r}")
        return seconds

    return read


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"a time such as 90, 90s, 5m, 2h or 1d, not {text!r}")
    return float(found[1]) * UNITS[found[2]]


def address(text: str) -> tuple[str, int]:
    """Parse `[HOST:]PORT`; without a host, it is "". An IPv6 address is written in brackets."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if (":" in host and not is_bracketed) or text.startswith(":") or not re.fullmatch(r"[0-9]{1,5}", port):
        raise argparse.ArgumentTypeError(f"a port, or a host and a port such as 127.0.0.1:8080, not {text!r}")
    if not 1 <= int(port) <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"a port from 1 to {LAST_PORT}, not {port}")
    return (host[1:-1] if is_bracketed else host), int(port)


class Moment(NamedTuple):
    """A time, and how it was given."""

    ms: int
    text: str

    def __str__(self) -> str:
        return self.text


def time_ms(text: str) -> Moment:
    """Parse a date, a time or an age such as 2h. A time without an offset is in the project's time zone."""
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,3})?[smhd]", text):
        return Moment(clock.now_ms() - round(_seconds(text) * 1000), text)
    try:
        return Moment(round(aware(datetime.fromisoformat(text)).timestamp() * 1000), text)
    except (ValueError, OverflowError) as error:
        expected = "a time such as 2026-11-01T06:00Z, or how long ago, such as 2h or 7d"
        raise argparse.ArgumentTypeError(f"{expected}, not {text!r}") from error


def cursor(text: str) -> str:
    """Parse the cursor at the end of a list."""
    if not re.fullmatch(
        r"(?:[0-9]{1,5}/|(?:[0-9]{1,5}/)?(?:[a-z]+\.)?[0-9]{1,20}(?:-[0-9]{1,20}(?:\.[0-9]{1,20})?)?)", text
    ):
        raise argparse.ArgumentTypeError(f"what `mq find` printed after --after, not {text!r}")
    return text


# The ports of `runconsumer`: for probes, and for metrics.

# Open the port that an option of a command names.

#: The hosts that stand for all addresses.
ALL_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound here


def shown(where: tuple[str, int]) -> str:
    """Return an address as it is written in an option."""
    host, port = where
    return f"{f'[{host}]' if ':' in host else host}:{port}" if host else str(port)


def open_port(
    option: str, where: tuple[str, int], *, users: Mapping[str, socket.socket] | None = None
) -> socket.socket:
    """Return a socket that accepts connections at a host and a port; without a host on all addresses.

    Args:
        option: the option that names the address.
        where: the address.
        users: the sockets that this command has opened, by the option and its value.

    Raises:
        CommandError: the port is in use or not permitted, or the host is not one of this machine.
    """
    try:
        return listen(*where)
    except OSError as error:
        user = next((user for user, other in (users or {}).items() if _overlap(other, where)), "")
        if error.errno == errno.EADDRINUSE and user:
            words = f"{user} uses this port. Use the same host and port for both, or another port"
            raise CommandError(f"{option} {shown(where)}: {words}.", returncode=2) from error
        reason = {errno.EADDRINUSE: "another process uses this port", errno.EACCES: "the user may not use this port"}
        words = reason.get(error.errno or 0, error.strerror or str(error))
        raise CommandError(f"{option} {shown(where)}: {words}.") from error


def _overlap(listener: socket.socket, where: tuple[str, int]) -> bool:
    """Return whether a socket listens at an address: it may listen on all, and a host may have several names."""
    host, port = where
    taken_host, taken_port, *_ = listener.getsockname()
    if taken_port != port:
        return False
    hosts = {found[4][0] for found in socket.getaddrinfo(host, port)} if host else {taken_host}
    return taken_host in hosts or bool({taken_host, *hosts} & ALL_ADDRESSES)


#: Loaded when it is needed: it needs the package prometheus-client.
MEASURING = "mq_django.observability.process_metrics.measuring"

#: A host, or "" for all addresses, and a port.
Address = tuple[str, int]


class Ports(NamedTuple):
    """What the ports of a `runconsumer` serve."""

    health: Health
    #: The measurer, a `ProcessMetrics`; None without a port for metrics.
    measured: Any


def check_ports(options: Mapping[str, Any]) -> None:
    """Check that the ports can be used.

    Raises:
        CommandError: a port is in use or not permitted.
        MissingDependency: metrics need a package that is not installed.
    """
    if options["metrics_port"]:
        import_string(MEASURING)
    for listener in _listeners(options).values():
        listener.close()


@contextmanager
def serving_ports(options: Mapping[str, Any]) -> Iterator[Ports]:
    """Serve inside what `--health-port` and `--metrics-port` ask for; both on one port if it is the same.

    Raises:
        CommandError: a port is in use or not permitted.
        MissingDependency: metrics need a package that is not installed.
    """
    health, measured = Health(), None
    with ExitStack() as stack:
        metrics_at = options["metrics_port"]
        measuring = import_string(MEASURING) if metrics_at else None
        # Before the folder for metrics is created.
        listeners = _listeners(options)
        routes: dict[Address, dict[str, Route]] = {where: {} for where in listeners}
        if options["health_port"]:
            routes[options["health_port"]] |= health.routes()
        if measuring is not None:
            measured = stack.enter_context(measuring())
            routes[metrics_at] |= measured.routes()
        for where, listener in listeners.items():
            stack.enter_context(serving(listener, routes[where]))
        yield Ports(health, measured)


def _listeners(options: Mapping[str, Any]) -> dict[Address, socket.socket]:
    """Return a socket for each address."""
    users: dict[str, socket.socket] = {}
    with ExitStack() as stack:
        for where, option in _options(options).items():
            users[f"{option} {shown(where)}"] = stack.enter_context(open_port(option, where, users=users))
        stack.pop_all()
    return dict(zip(_options(options), users.values(), strict=True))


def _options(options: Mapping[str, Any]) -> Mapping[Address, str]:
    """Return the option that asks for each address. Two for the same are one."""
    asked = {"--health-port": options["health_port"], "--metrics-port": options["metrics_port"]}
    return {where: option for option, where in reversed(asked.items()) if where}


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
