"""The main thread of a consumer process: it obeys its supervisor, and notices when that is gone."""

import gc
import json
import logging
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mq_django.conf import get_config
from mq_django.consumers.machine import resident_mib
from mq_django.consumers.shared_state import OVERTIME, SharedState
from mq_django.consumers.worker.consumer import Consumer
from mq_django.consumers.worker.consumer import lanes as lanes_of
from mq_django.consumers.worker.grace import Grace
from mq_django.consumers.worker.orphan_heartbeat import OrphanBeat
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError

logger = get_logger(__name__)

#: Seconds between two looks at whether to stop, and between two looks at what costs more.
LOOK = 0.1
SELDOM = 1.0
#: Seconds that a quarantine waits for more.
QUARANTINE_IDLE, QUARANTINE_IDLE_DRAINING = 10.0, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a supervisor tells a consumer at its start."""

    consumer: str
    supervisor: str
    queues: Sequence[str]
    threads: int
    grace: float
    drain: bool
    #: File descriptors that the child inherits.
    board: int
    #: Its other end is the supervisor's: it reads as ended when that dies.
    lifeline: int
    #: It runs what must run alone, and is held under this name until then.
    line: str = ""
    #: After so many messages, or with so many MiB of memory, another takes its place; 0: never.
    max_messages: int = 0
    max_memory: float = 0.0

    def as_text(self) -> str:
        """Return the orders as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> "Orders":
        """Read as_text() back."""
        return cls(**json.loads(text))


class ChildProcess:
    """A consumer process from its orders to its end."""

    def __init__(self, orders: Orders) -> None:
        config = get_config()
        self._orders = orders
        self._asked = False
        self._shared_state = SharedState(orders.board, lanes_of(orders.threads))
        self._queues = [config.queue(name) for name in orders.queues]
        self._consumer = Consumer(
            orders.consumer, self._queues, threads=orders.threads, shared_state=self._shared_state, backlog=orders.line
        )
        self._seldom = 0.0
        self._orphaned = self._drained = False

    def run(self) -> int:
        """Run the consumer until it is to stop; return the exit code: 0, or 1 when a handler outlived the grace."""
        self._listen()
        # What the start has made stays to the end: the collector need not look at all of Django again and again.
        gc.collect()
        gc.freeze()
        self._shared_state.tick()
        self._consumer.start()
        does = "runs alone what may have killed a process, of" if self._orders.line else "handles"
        queues = ", ".join(self._orders.queues)
        logger.info("Consumer %s %s %s with %d threads", self._consumer.id, does, queues, self._orders.threads)
        self._wait()
        if not self._drained:
            self._shared_state.leave()
        if self._orphaned:
            self._consumer.inherit_line()
        orphan_beat = OrphanBeat(self._orders.supervisor, self._consumer.names, self._queues, self._shared_state)
        if self._orphaned:
            orphan_beat.start()
        ended = self._stop()
        if self._orphaned:
            orphan_beat.end()
        logger.info("Consumer %s stopped", self._consumer.id)
        return 0 if ended else 1

    def _listen(self) -> None:
        # Ctrl-C reaches the whole foreground group; the supervisor alone decides what it means. So does a hangup.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._ask())

    def _ask(self) -> None:
        self._asked = True

    def _stop(self) -> bool:
        grace = Grace(self._orders.grace)

        def look() -> None:
            self._shared_state.tick()
            if self._shared_state.hurried():
                grace.end()
            now = time.monotonic()
            running = self._shared_state.running()
            # Nothing is left to wait for but handlers that cannot be interrupted.
            if running and all(now > item.deadline + OVERTIME or self._consumer.is_in_vain(item) for item in running):
                grace.end()

        grace.each_look = look
        return self._consumer.stop(grace)

    def _wait(self) -> None:
        """Return when it is time to stop."""
        while not self._asked:
            self._shared_state.tick()
            readable, _, _ = select.select([self._orders.lifeline], [], [], LOOK)
            if readable and not os.read(self._orders.lifeline, 1):
                logger.warning("The supervisor of consumer %s is gone; it stops", self._consumer.id)
                self._orphaned = True
                return
            if self._shared_state.shall_be_quiet():
                self._consumer.quiet()
                self._shared_state.mark_quiet()
                logger.info("Consumer %s is quiet: it fetches no more", self._consumer.id)
            if time.monotonic() - self._seldom > SELDOM:
                self._seldom = time.monotonic()
                self._consumer.note_counts()
                if reason := self._reason_to_leave():
                    logger.info("Consumer %s makes place for another: %s", self._consumer.id, reason)
                    return
            if self._orders.drain and not self._orders.line and self._is_drained():
                self._drained = True
                return

    def _reason_to_leave(self) -> str:
        orders = self._orders
        if stuck := self._consumer.stuck():
            logger.error("Consumer %s must be replaced: %s", self._consumer.id, "; ".join(stuck))
            return "it is stuck"
        if orders.max_messages and self._consumer.settled() >= orders.max_messages:
            return f"it has handled {self._consumer.settled()} messages"
        if orders.max_memory and resident_mib() > orders.max_memory:
            return f"it has grown to {resident_mib():.0f} MiB"
        if self._consumer.idle_seconds() > (QUARANTINE_IDLE_DRAINING if orders.drain else QUARANTINE_IDLE):
            return "nothing must run alone any more"
        return ""

    def _is_drained(self) -> bool:
        try:
            return self._consumer.is_idle()
        except StoreError:
            return False


def run(orders: Orders) -> int:
    """Run a consumer as it was ordered, and return the exit code of its process."""
    code = ChildProcess(orders).run()
    if code:
        # A handler that still runs, in a thread of any kind, would keep the interpreter from ending.
        logging.shutdown()
        os._exit(code)
    return code
