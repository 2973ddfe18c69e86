"""The handler that streams numbered chunks and lines."""

import os
import time
from itertools import count

from mq_django import handler, stream
from mq_django.core.messages import Message
from tests.chaos.observing import note
from tests.chaos.settings import QUEUE

#: Each so many chunks one is a line of the log.
LINES = 5

_runs = count(1)


class Failed(Exception):
    """It did not work this time."""


def tell(message: Message) -> None:
    """Stream the name of the run with each number, up to a half in attempts that fail."""
    told, run = message.data, f"{os.getpid()}-{next(_runs)}"
    fails = message.attempt <= told["fails"]
    for number in range(1, told["chunks"] + 1):
        (stream.log if number % LINES == 0 else stream)(f"{run} {number}")
        time.sleep(told["ms"] / 1000)
        if fails and number * 2 >= told["chunks"]:
            raise Failed(told["id"])
    note("effect", id=told["id"], attempt=message.attempt)


def register() -> None:
    """Register the handler. A module that does so by itself is found, and imported in every scenario."""
    handler(QUEUE, "tell")(tell)
