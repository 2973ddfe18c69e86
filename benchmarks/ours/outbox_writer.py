"""Write rows into the outbox, and time transactions that do: `benchmarks.outbox_rows` runs it."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")
django.setup()

from django.core.management import call_command  # noqa: E402 - needs the project to be set up
from django.db import connection, transaction  # noqa: E402

from benchmarks import messages  # noqa: E402
from mq_django import queues  # noqa: E402

#: Messages of one publish_many().
MANY = 1000
#: Transactions before the clock starts.
WARM_UP = 5

queue = queues[messages.queue_name(0)]


def prepare() -> None:
    """Create the tables: ours, and one of a project."""
    call_command("migrate", "mq_django", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS bench_order (number INTEGER, note VARCHAR(200))")


def write(number: int) -> None:
    """Write a row of the project."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO bench_order (number, note) VALUES (%s, %s)", [number, "a parcel for the neighbour"])


def fill(count: int) -> None:
    """Publish no-op messages through the outbox, a thousand with each transaction."""
    for start in range(0, count, MANY):
        queue.publish_many(
            [(messages.NOOP, messages.make(number)) for number in range(start, min(start + MANY, count))], outbox=True
        )


def pace(count: int, rate: float) -> list[int]:
    """Publish messages at a rate, each in a transaction with a row; return when each was committed, in nanoseconds."""
    committed = []
    for number in range(count):
        with transaction.atomic():
            write(number)
            queue.publish(messages.NOTE, messages.make(number), outbox=True)
        committed.append(time.monotonic_ns())
        time.sleep(1 / rate)
    return committed


def costs(count: int, publish: Callable[[int, bool | None], None]) -> list[float]:
    """Return the ms of a transaction that writes a row: alone, with a publish at the commit, with one by the outbox."""
    took: list[list[float]] = [[], [], []]
    for number in range(WARM_UP + count):
        for found, outbox in zip(took, (None, False, True), strict=True):
            began = time.perf_counter()
            with transaction.atomic():
                write(number)
                if outbox is not None:
                    publish(number, outbox)
            found.append((time.perf_counter() - began) * 1000)
    return [statistics.median(found[WARM_UP:]) for found in took]


def one(number: int, outbox: bool | None) -> None:
    """Publish a message."""
    queue.publish(messages.NOOP, messages.make(number), outbox=outbox)


def many(number: int, outbox: bool | None) -> None:
    """Publish a thousand messages with one call."""
    queue.publish_many([(messages.NOOP, messages.make(number)) for _ in range(MANY)], outbox=outbox)


def main(verb: str, count: int) -> object:
    """Do what the command line says, and return what it found."""
    prepare()
    if verb == "fill":
        return fill(count)
    if verb == "pace":
        return pace(count, rate=20.0)
    return costs(count, one) + costs(max(1, count // 20), many)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
