"""The handlers of each queue."""

import os
import time
from collections.abc import Callable

from benchmarks import messages
from mq_django import handler, stream
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


def stream_chunks(message: Message) -> None:
    """Stream chunks, and in a line the ns that all took of this thread."""
    count, size, pause = (message.data[name] for name in ("count", "size", "pause"))
    chunk, took = "x" * size, 0
    for _ in range(1 if not pause else count):
        began = time.thread_time_ns()
        for _ in range(1 if pause else count):
            stream(chunk)
        took += time.thread_time_ns() - began
        time.sleep(pause)
    stream.log(str(took))


#: The most messages of a call, if batches are measured.
BATCH = int(os.environ.get("BENCH_BATCH", "0"))

for number in range(messages.QUEUES):
    for kind in messages.KINDS:
        if kind == messages.NOOP and BATCH:
            handler(messages.queue_name(number), kind, batch=BATCH)(noop_for_many)
        else:
            handler(messages.queue_name(number), kind)(noop if kind == messages.NOOP else noted(kind))
    handler(messages.queue_name(number), "stream")(stream_chunks)
