"""Transactions of a project that publish: `benchmarks.transactions` runs it in the environment of who is measured.

python -m benchmarks.in_django.writer benchmarks.in_django.celery costs 200
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module

import django

django.setup()

from django.core.management import call_command  # noqa: E402 - needs the project to be set up
from django.db import connection, transaction  # noqa: E402

from benchmarks import messages  # noqa: E402

#: Transactions before the clock starts, and messages of one where only the messages count.
WARM_UP, MANY = 5, 100
#: Messages a second, with pauses between them.
RATE = 20.0

#: Does something with a number in the transaction that is open.
Action = Callable[[int], None]


def prepare() -> None:
    """Create the tables: those of the queue, and one of a project."""
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS bench_order (number INTEGER, note VARCHAR(200))")


def write(number: int) -> None:
    """Write a row of the project."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO bench_order (number, note) VALUES (%s, %s)", [number, "a parcel for the neighbour"])


def nothing(_: int) -> None:
    """Publish nothing."""


def pace(publish: Action, count: int) -> list[int]:
    """Publish with pauses, each time in a transaction with a row; return when each was committed, in nanoseconds."""
    committed: list[int] = []
    for number in range(count):
        with transaction.atomic():
            # Before what is published at the commit.
            transaction.on_commit(lambda: committed.append(time.monotonic_ns()))
            write(number)
            publish(number)
        time.sleep(1 / RATE)
    return committed


def times(forms: Sequence[Action], count: int) -> list[float]:
    """Return the median ms of a transaction that writes a row and does what a form says, for forms in turns."""
    took: list[list[float]] = [[] for _ in forms]
    for number in range(WARM_UP + count):
        for found, publish in zip(took, forms, strict=True):
            began = time.perf_counter()
            with transaction.atomic():
                write(number)
                publish(number)
            found.append((time.perf_counter() - began) * 1000)
    return [statistics.median(found[WARM_UP:]) for found in took]


def fill(publish: Action, count: int) -> None:
    """Publish with a call each, many in a transaction."""
    for start in range(0, count, MANY):
        with transaction.atomic():
            for number in range(start, min(start + MANY, count)):
                publish(number)


def main(name: str, verb: str, count: int) -> object:
    """Do what the command line says, and return what it found."""
    module = import_module(name)

    def noting(number: int) -> None:
        module.publish(messages.NOTE, messages.make(number))

    def idle(number: int) -> None:
        module.publish(messages.NOOP, messages.make(number))

    prepare()
    if verb == "fill":
        return fill(noting, count)
    if verb == "pace":
        return pace(noting, count)
    return times([nothing, idle], count)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
