"""The verb `relay` of the command `mq`: publish the rows of outboxes, until it is stopped, or all there are."""

import argparse
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mq_django.conf import get_config
from mq_django.consumers.supervisor.outbox_service import OutboxService, destinations_of, outbox_services
from mq_django.management.argument_types import duration
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult
from mq_django.outbox.outbox_databases import outbox_aliases
from mq_django.outbox.pending_rows import count_pending, count_set_aside

#: Seconds until a service must have ended its round.
STOPS = 10.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("--drain", action="store_true", help="Stop when no row is left but those that were set aside.")
    what = "With --drain: for how long to try. Default: 60."
    parser.add_argument("--timeout", type=duration, default=60.0, metavar="SECONDS", help=what)


def relay(options: Options, terminal: Terminal) -> VerbResult | None:
    """Publish the rows of the outboxes of all databases."""
    if options["drain"]:
        return _drain(options["timeout"])
    services = outbox_services()
    with _stopped() as stopped:
        for service in services:
            service.start()
        terminal.report("Publishing the rows of outboxes. Stop with Ctrl-C.")
        stopped.wait()
        for service in services:
            service.stop()
        for service in services:
            service.join(STOPS)
    return None


def _drain(seconds: float) -> VerbResult:
    """Publish until nothing is left, or the time is over."""
    services = [each for each in outbox_services() if isinstance(each, OutboxService)]
    names, ends = [each.name for each in destinations_of(get_config())], time.monotonic() + seconds
    left = _count(names)
    try:
        while left and time.monotonic() < ends:
            pause = min([service.run_once() for service in services])
            left = _count(names)
            if left and pause:
                time.sleep(min(pause, 0.2))
    finally:
        for service in services:
            service.close()
    aside = sum(count_set_aside(alias, names) for alias in outbox_aliases())
    empty = "No row waits in the outbox." if aside else "The outbox is empty."
    lines = [f"{_rows(left)} left in the outbox." if left else empty]
    if aside:
        lines.append(f"{_rows(aside)} set aside and cannot be published: see manage.py mq outbox --set-aside.")
    return VerbResult({"left": left, "set_aside": aside}, lines, code=1 if left else 0)


def _rows(count: int) -> str:
    return "1 row is" if count == 1 else f"{count} rows are"


def _count(names: list[str]) -> int:
    return sum(count_pending(alias, names) for alias in outbox_aliases())


@contextmanager
def _stopped() -> Iterator[threading.Event]:
    """Yield what is set by SIGINT and SIGTERM."""
    found = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        found.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


VERBS = (
    Verb(
        name="relay",
        help="Publish the rows of outboxes: until it is stopped, or with --drain until none is left.",
        run=relay,
        add_options=add_options,
    ),
)
