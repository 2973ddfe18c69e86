"""Run the gateway: `python -m example_project.gateway`."""

import argparse
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from example_project.gateway.manners import Manners
from example_project.gateway.server import Gateway

USUAL = Manners()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the address, then serve until SIGTERM or Ctrl-C."""
    options = parse(arguments)
    manners = Manners(
        seed=options.seed,
        failing=options.failing,
        slow=options.slow,
        slow_seconds=options.slow_seconds,
        gone=options.gone,
        unknown=options.unknown,
        sms_a_second=options.sms_a_second,
    )
    signal.signal(signal.SIGTERM, stop)
    # From the first printed byte on somebody may ask it to stop.
    listener = None if options.fd is None else socket.socket(fileno=options.fd)
    with suppress(KeyboardInterrupt), Gateway(options.port, listener=listener, manners=manners) as gateway:
        print(gateway.url, flush=True)
        gateway.serve_forever()
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m example_project.gateway", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="any free one unless given")
    parser.add_argument("--fd", type=int, help="a listening socket to use instead")
    parser.add_argument("--seed", type=int, default=USUAL.seed, help="the same seed fails in the same way")
    for name, says in (
        ("failing", "requests answered with 503"),
        ("slow", "requests answered late"),
        ("gone", "devices that are gone"),
        ("unknown", "numbers that nobody has"),
    ):
        parser.add_argument(f"--{name}", type=float, default=getattr(USUAL, name), help=f"share of {says}")
    parser.add_argument("--sms-a-second", type=int, default=USUAL.sms_a_second, help="more are answered with 429")
    parser.add_argument("--slow-seconds", type=float, default=USUAL.slow_seconds)
    return parser.parse_args(arguments)


def stop(*_: object) -> None:
    """End serving."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
