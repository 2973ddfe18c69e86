"""What `runconsumer` starts: it owns the consumers, speaks for them in Redis, and runs no handler itself."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.children import Child, spawn
from mq_django.consumers.heartbeat import Heartbeat
from mq_django.consumers.listener import Listener
from mq_django.consumers.promoter import Promoter
from mq_django.consumers.reclaimer import reclaim_child, reclaim_supervisor
from mq_django.consumers.scheduler import Scheduler
from mq_django.consumers.service import Service
from mq_django.consumers.trimmer import Trimmer
from mq_django.core.ids import token
from mq_django.core.version import VERSION
from mq_django.errors import StoreError
from mq_django.stores import open_store
from mq_django.stores.base import Promoted, Store
from mq_django.stores.log import Log
from mq_django.stores.members import Members, Roll
from mq_django.stores.schedules import Schedules, scheduled
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session

logger = logging.getLogger(__name__)

#: Seconds between two looks at the children, where no signal tells of their end.
LOOK = 0.2
#: Seconds to wait before a consumer that died young is started again, doubled each time.
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0
#: A consumer that lived this long, in seconds, died of something else than its start.
YOUNG = 10.0


class Supervisor:
    """Starts consumers, starts them again when they die, and does the chores that need no handler."""

    def __init__(
        self,
        queues: Sequence[QueueConfig],
        *,
        processes: int,
        threads: int,
        grace: float,
        drain: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        self.id = f"{socket.gethostname()[:40]}-{os.getpid()}-{token()}"
        self._queues = queues
        self._processes = processes
        self._threads = threads
        self._grace = grace
        self._drain = drain
        self._arguments = arguments
        self._since_ms = int(time.time() * 1000)
        self._children: list[Child] = []
        self._stopping = 0
        self._changed = threading.Event()
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self._numbers = {config.keys.wake: number for number, config in enumerate(queues)}
        self._stores, self._members = self._open(Session(get_client("consume")))
        self._heartbeat = self._make_heartbeat()
        self._listener = Listener(get_client("consume"), self._numbers, self._heard)
        self._trimmer = Trimmer([Log(topic, Session(get_client("consume"))) for topic in get_config().topics.values()])
        self._scheduler = self._make_scheduler()
        self._promoter = Promoter(
            self._open(Session(get_client("consume")))[0], hears=lambda: self._listener.hears, seen=self._seen
        )

    def _open(self, session: Session) -> tuple[list[Store], list[Members]]:
        return (
            [open_store(config, session) for config in self._queues],
            [Members(config, session) for config in self._queues],
        )

    def _make_scheduler(self) -> Scheduler:
        session, queues = Session(get_client("consume")), {config.name: config for config in self._queues}
        entries = [entry for entry in scheduled() if entry.queue in queues]
        stores = {entry.queue: Schedules(queues[entry.queue], session) for entry in entries}
        return Scheduler(entries, stores)

    def _make_heartbeat(self) -> Heartbeat:
        stores, members = self._open(Session(get_client("consume")))

        def reclaim(number: int, supervisor: str, roll: Roll) -> None:
            reclaim_supervisor(stores[number], members[number], supervisor, roll)

        return Heartbeat(self.id, stores, members, describe=self._describe, reclaim=reclaim)

    def run(self) -> int:
        """Run until asked to stop, or until all is drained; return the exit code."""
        self._listen_to_signals()
        services: tuple[Service, ...] = (
            *(self._heartbeat, self._listener, self._promoter, self._trimmer, self._scheduler),
        )
        for service in services:
            service.start()
        try:
            while not self._ended():
                self._changed.wait(LOOK)
                self._changed.clear()
                self._bury_the_dead()
                self._fill_up()
        finally:
            for service in services:
                service.stop()
            for service in services:
                service.join(2.0)
            self._leave()
        return 0

    def stop(self) -> None:
        """Ask the consumers to finish; asked again, to hand back at once."""
        self._stopping += 1
        for child in self._children:
            child.terminate()
        self._changed.set()

    def _ended(self) -> bool:
        return bool(self._stopping) and not self._children

    def _listen_to_signals(self) -> None:
        # With --autoreload this is not the main thread, and the reloader ends the process by itself.
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGCHLD, lambda *_: self._changed.set())

    def _fill_up(self) -> None:
        if self._stopping or time.monotonic() < self._not_before:
            return
        while len(self._children) < self._processes:
            self._children.append(self._spawn())
            self._heartbeat.wake()

    def _spawn(self) -> Child:
        return spawn(
            f"{self.id}-{token()[:6]}",
            queues=[config.name for config in self._queues],
            threads=self._threads,
            grace=self._grace,
            drain=self._drain,
            arguments=self._arguments,
        )

    def _bury_the_dead(self) -> None:
        for child in list(self._children):
            code = child.process.poll()
            if code is None:
                continue
            self._children.remove(child)
            if self._drain and code == 0:
                self._processes -= 1
                self._stopping += not self._processes
            elif not self._stopping:
                self._put_off(child, code)
            self._reclaim(child)
            child.close()

    def _put_off(self, child: Child, code: int) -> None:
        """Wait before the next start when consumers die as soon as they live."""
        logger.error("Consumer %s ended with %d; another takes its place", child.consumer, code)
        if time.monotonic() - child.started < YOUNG:
            self._not_before = time.monotonic() + self._pause
            self._pause = min(MAX_PAUSE, self._pause * 2)
        else:
            self._pause = FIRST_PAUSE

    def _reclaim(self, child: Child) -> None:
        for number, (store, members) in enumerate(zip(self._stores, self._members, strict=True)):
            try:
                moved = reclaim_child(number, store, members, child.consumer, child.board)
            except StoreError as error:
                logger.warning("What consumer %s held waits for Redis: %s", child.consumer, error)
                continue
            if moved:
                logger.warning("%d messages of consumer %s go to others", moved, child.consumer)

    def _leave(self) -> None:
        for members in self._members:
            try:
                members.leave([], supervisor=self.id)
            except StoreError as error:
                logger.warning("Supervisor %s stays on the roll until it is found silent: %s", self.id, error)

    def _describe(self) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
        host = socket.gethostname()
        description = {"host": host, "pid": os.getpid(), "since_ms": self._since_ms, "version": VERSION}
        consumers = {
            child.consumer: {
                "host": host,
                "pid": child.process.pid,
                "since_ms": child.since_ms,
                "threads": self._threads,
                "version": VERSION,
            }
            for child in list(self._children)
        }
        return description, consumers

    def _heard(self, number: int, text: str) -> None:
        if text in ("paused", "resumed"):
            for child in list(self._children):
                child.board.set_paused(number, text == "paused")
        self._promoter.expect(number)

    def _seen(self, number: int, promoted: Promoted) -> None:
        for child in list(self._children):
            child.board.set_paused(number, promoted.paused)
            child.board.set_unhandled(number, bool(promoted.unhandled))
