"""`python -m tests.soak [--minutes 240]`: print what the processes hold, and end with 1 if it has grown."""

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

import django

from example_project.demo.closing import Closing
from example_project.demo.surroundings import surroundings

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=240.0)
    parser.add_argument("--rate", type=float, default=5.0, help="visitors a second (default: %(default)s)")
    parser.add_argument("--kill", type=float, default=300.0, help="seconds between two kills (default: %(default)s)")
    options = parser.parse_args()
    (closing := Closing()).listen()
    with tempfile.TemporaryDirectory(prefix="mq-soak-") as folder:
        named = f"soak-{secrets.token_hex(4)}"
        with surroundings(Path(folder), namespace=named, reminder_seconds=10.0) as found:
            # The settings are read from the environment that has just been made.
            django.setup()
            from tests.soak import holdings

            sys.exit(holdings.soak(found, closing, seconds=options.minutes * 60, rate=options.rate, kill=options.kill))
