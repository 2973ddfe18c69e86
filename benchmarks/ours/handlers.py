"""The handlers of each queue."""

import os
import time
from collections.abc import Callable

from benchmarks import messages
from mq_django import handler
from mq_django.core.messages import Message


def noop(message: Message) -> None:
    """Do nothing."""


def noop_for_many(received: list[Message]) -> None:
    """Do nothing."""


def noted(kind: str) -> Callable[[Message], None]:
    """Return the handler of a kind that sleeps or leaves notes."""
    seconds = messages.SLEEPS[kind]

    def handle(message: Message) -> None:
        if seconds:
            time.sleep(seconds)
        if kind != messages.NAP:
            messages.note(message.data)

    return handle


#: The most messages of a call, if batches are measured.
BATCH = int(os.environ.get("BENCH_BATCH", "0"))

for number in range(messages.QUEUES):
    for kind in messages.KINDS:
        if kind == messages.NOOP and BATCH:
            handler(messages.queue_name(number), kind, batch=BATCH)(noop_for_many)
        else:
            handler(messages.queue_name(number), kind)(noop if kind == messages.NOOP else noted(kind))
