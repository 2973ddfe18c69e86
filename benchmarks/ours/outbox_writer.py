"""Write rows into the outbox, and time transactions that do: `benchmarks.outbox_rows` runs it."""

import json
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")

from benchmarks import messages
from benchmarks.in_django.writer import Action, nothing, pace, prepare, times
from mq_django import queues

#: Messages of one publish_many().
MANY = 1000

queue = queues[messages.queue_name(0)]


def fill(count: int) -> None:
    """Publish no-op messages through the outbox, a thousand with each transaction."""
    for start in range(0, count, MANY):
        queue.publish_many(
            [(messages.NOOP, messages.make(number)) for number in range(start, min(start + MANY, count))], outbox=True
        )


def one(*, outbox: bool, kind: str = messages.NOOP) -> Action:
    """Return what publishes a message."""
    return lambda number: queue.publish(kind, messages.make(number), outbox=outbox) and None


def many(*, outbox: bool) -> Action:
    """Return what publishes a thousand messages with one call."""
    return lambda number: (
        queue.publish_many([(messages.NOOP, messages.make(number)) for _ in range(MANY)], outbox=outbox) and None
    )


def costs(count: int) -> list[float]:
    """Return the ms of a transaction that writes a row: alone, with a publish at the commit, with one by the outbox.

    Three of one message, and three of a thousand.
    """
    single = times([nothing, one(outbox=False), one(outbox=True)], count)
    return single + times([nothing, many(outbox=False), many(outbox=True)], max(1, count // 20))


def main(verb: str, count: int) -> object:
    """Do what the command line says, and return what it found."""
    prepare()
    if verb == "fill":
        return fill(count)
    if verb == "pace":
        return pace(one(outbox=True, kind=messages.NOTE), count)
    return costs(count)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
