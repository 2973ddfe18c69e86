"""The main thread of a consumer process: it obeys its supervisor, and notices when that is gone."""

import json
import logging
import os
import select
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mq_django.conf import get_config
from mq_django.consumers.board import Board
from mq_django.consumers.consumer import Consumer
from mq_django.consumers.consumer import lanes as lanes_of
from mq_django.consumers.grace import Grace
from mq_django.errors import StoreError

logger = logging.getLogger(__name__)

#: Seconds between two looks at whether to stop.
LOOK = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a supervisor tells a consumer at its start."""

    consumer: str
    queues: Sequence[str]
    threads: int
    grace: float
    drain: bool
    #: File descriptors that the child inherits.
    board: int
    #: Its other end is the supervisor's: it reads as ended when that dies.
    lifeline: int

    def as_text(self) -> str:
        """Return the orders as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> "Orders":
        """Read as_text() back."""
        return cls(**json.loads(text))


class _Stopping:
    """What this process was asked: to finish, and when asked again, to hand back at once."""

    def __init__(self) -> None:
        self.asked = False
        self._grace: Grace | None = None

    def listen(self) -> None:
        # Ctrl-C reaches the whole foreground group; the supervisor alone decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.ask())

    def ask(self) -> None:
        if self._grace is not None:
            self._grace.end()
        self.asked = True

    def begin(self, seconds: float) -> Grace:
        self._grace = Grace(seconds)
        return self._grace


def run(orders: Orders) -> int:
    """Run a consumer until it is told to stop, and return the exit code: 0, or 1 when a handler outlived the grace."""
    stopping = _Stopping()
    stopping.listen()
    config = get_config()
    board = Board(orders.board, lanes_of(orders.threads))
    consumer = Consumer(
        orders.consumer, [config.queue(name) for name in orders.queues], threads=orders.threads, board=board
    )
    consumer.start()
    logger.info("Consumer %s handles %s with %d threads", consumer.id, ", ".join(orders.queues), orders.threads)
    _wait(orders, stopping, consumer)
    ended = consumer.stop(stopping.begin(orders.grace))
    logger.info("Consumer %s stopped", consumer.id)
    return 0 if ended else 1


def _wait(orders: Orders, stopping: _Stopping, consumer: Consumer) -> None:
    """Return when it is time to stop."""
    while not stopping.asked:
        readable, _, _ = select.select([orders.lifeline], [], [], LOOK)
        if readable and not os.read(orders.lifeline, 1):
            logger.warning("The supervisor of consumer %s is gone; it stops", consumer.id)
            return
        if orders.drain and _is_drained(consumer):
            return


def _is_drained(consumer: Consumer) -> bool:
    try:
        return consumer.is_idle()
    except StoreError:
        return False
