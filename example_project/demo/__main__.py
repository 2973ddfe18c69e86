"""Run the demo: `python -m example_project.demo [--seconds N]`."""

import argparse
import secrets
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import django

from example_project.demo.children import ROOT, ChildFailed, Closed
from example_project.demo.closing import Closing
from example_project.demo.surroundings import Occupied, surroundings
from mq_django.errors import MQError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until Ctrl-C, or for some seconds; return 1 if a message was lost."""
    options = parse(arguments)
    closing = Closing()
    closing.listen()
    opened = surroundings(
        options.folder.resolve(),
        namespace=f"demo-{secrets.token_hex(4)}",
        reminder_seconds=options.reminder_seconds,
    )
    try:
        with opened as found:
            django.setup()
            # What deals with models can be imported only now, and Django can be set up only now: its settings
            # are read from the environment that `surroundings` has just made.
            show = import_module("example_project.demo.show")
            return int(show.perform(found, options, closing))
    except Closed:
        return 0
    except (MQError, ChildFailed, Occupied) as error:
        print(error, file=sys.stderr)
        return 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m example_project.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after this time; without it, at Ctrl-C")
    parser.add_argument("--rate", type=float, default=3.0, help="visitors a second (default: %(default)s)")
    parser.add_argument(
        "--reminder-seconds",
        type=float,
        default=10.0,
        help="how long a cart is left alone before its owner gets a reminder (default: %(default)s)",
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo" / "run", help="for database, mails and logs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
