"""The main process of `runconsumer`: it starts consumers and sends their heartbeats. It runs no handlers."""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from mq_django import __version__
from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.processes import here, started
from mq_django.consumers.service import STUCK, Liveness, Service, assign, by_server, server_of
from mq_django.consumers.supervisor.chores import Trimmer, WorkflowService, inbox_trimmers
from mq_django.consumers.supervisor.health import Health, MainLoop
from mq_django.consumers.supervisor.heartbeat import Announcement
from mq_django.consumers.supervisor.launcher import Launcher
from mq_django.consumers.supervisor.reclaimer import Reclaimer
from mq_django.consumers.supervisor.reload import Change, Probe
from mq_django.consumers.supervisor.services import ServerServices
from mq_django.consumers.supervisor.worker_set import WorkerSet, WorkerStates, slots_in_use
from mq_django.consumers.supervisor.workers import WorkerOptions, WorkerProcess
from mq_django.core import clock
from mq_django.core.ids import token
from mq_django.core.logs import get_logger
from mq_django.core.message_format import PROTOCOL
from mq_django.stores import open_log
from mq_django.stores.log import Log, PartitionedLog
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.connections import open_session

# Receive signals as numbers in a pipe, so that the main loop handles them at a defined point.

#: The signals that stop the process.
STOPS = frozenset({signal.SIGTERM, signal.SIGINT})
#: Windows, where this module is imported but not used, has only those.
_HANDLED = STOPS | {signal.Signals[name] for name in ("SIGHUP", "SIGCHLD") if name in signal.Signals.__members__}


class SignalPipe:
    """Receives the process's signals, and wake-ups from other threads. Outside the main thread only wake-ups."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # With --autoreload this is not the main thread, and the reloader ends the process.
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._main:
            # The Python handlers do nothing: the interrupted code may hold any lock that they would need.
            for number in _HANDLED:
                signal.signal(number, _ignore)
            signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            # hold() has blocked them, and exec() keeps that.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main:
            # The handlers stay, so that a second SIGTERM does not change the exit code. The pipe stays open, because
            # a thread that outlives its supervisor may still write to it.
            signal.set_wakeup_fd(-1)

    def wait(self, seconds: float) -> Iterator[int]:
        """Wait up to some seconds; yield the number of each received signal, and 0 for each wake-up."""
        select.select([self._read], [], [], seconds)
        yield from self._take()

    def wake(self) -> None:
        """End a wait(). For any thread."""
        with suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def hold(self) -> bool:
        """Block signals for an exec(), which keeps them blocked; return False if a stop signal has already arrived."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        return STOPS.isdisjoint(self._take())

    def _take(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self._read, 64)
        return b""


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal's number arrives in the pipe."""


logger = get_logger(__name__)

T = TypeVar("T")

#: Seconds between two checks of the consumer processes, for systems where no signal reports their exit.
CHECK_EVERY = 0.2
#: Seconds to settle for the last consumers while Redis cannot be reached. After that, another supervisor does it.
LAST_RECLAIM = 5.0
#: Seconds that a service may take to end.
LAST_ROUND = 2.0


class Supervisor:
    """Starts consumers, replaces those that die, and runs the background services of its queues."""

    def __init__(
        self,
        queues: Sequence[QueueConfig],
        *,
        processes: int,
        worker_options: WorkerOptions,
        launcher: Launcher,
        signals: SignalPipe,
        probe: Probe,
        health: Health,
        watchers: Sequence[Service] = (),
    ) -> None:
        self._queues = queues
        self._since_ms = clock.now_ms()
        self._grace = worker_options.grace
        self._signals = signals
        self._probe = probe
        self._stop_asked = 0
        #: How often SIGHUP has asked for a reload.
        self._reloads = 0
        self._lock = threading.Lock()
        self._liveness = Liveness()
        #: The admin has requested a stop that the main loop has not handled yet.
        self._dismissed = False
        #: It stops in order to execute the same command line again.
        self.restarts = False
        self._evicted = False
        self.id = self._new_id()
        #: Consumer or supervisor -> the latest request, which comes with each heartbeat of each server.
        self._requests: dict[str, str] = {}
        self._states = WorkerStates(range(len(worker_options.queues)), self._describe)
        self._servers = list(self._make_servers())
        self._workers = WorkerSet(
            self.id,
            worker_options,
            self._states,
            launcher,
            processes=processes if worker_options.queues else 0,
            on_exit=self._each_reclaimer(Reclaimer.consumer_exited),
            on_unresponsive=self._each_reclaimer(Reclaimer.consumer_unresponsive),
            on_late=self._each_reclaimer(Reclaimer.consumer_late),
        )
        self._others = [*make_trimmers(), WorkflowService(get_config().each_part()), *inbox_trimmers(queues), *watchers]
        self._health = health
        self._health.watch([server.heartbeat for server in self._servers])

    def _make_servers(self) -> Iterator[ServerServices]:
        shares = by_server(self._queues)
        for share in shares.values():
            server = ServerServices(
                share,
                self._states,
                self.id,
                announce=self._announce,
                evicted=self._on_evicted,
                asked=self._asked,
            )
            assign(server.services, share.values(), servers=len(shares))
            yield server

    def _each_reclaimer(self, report: Callable[[Reclaimer, str, T], None]) -> Callable[[str, T], None]:
        """Return a function that reports a consumer to the reclaimer of each server."""

        def report_to_each(consumer: str, what: T) -> None:
            for server in self._servers:
                report(server.reclaimer, consumer, what)

        return report_to_each

    @staticmethod
    def _new_id() -> str:
        return f"{socket.gethostname()[:40]}-{os.getpid()}-{token()}"

    def run(self) -> int:
        """Run until asked to stop or until the queues are drained, and return the exit code.

        Without queues to consume it starts no consumers and runs until it is asked to stop.
        """
        services: list[Service] = [service for server in self._servers for service in server.services]
        services += self._others
        for service in services:
            service.start()
        try:
            while True:
                self._check()
                self._watch(services)
                if self._stop_asked and not len(self._states):
                    break
                self._wait()
            self._settle_the_last()
        finally:
            for service in services:
                service.stop()
            self._leave(services)
        return 0

    def _check(self) -> None:
        if self._evicted:
            self._evicted = False
            self.id = self._new_id()
            self._workers.begin_anew(self.id)
        if self._workers.check(time.monotonic()):
            for server in self._servers:
                server.introduce_consumers()
        if self._workers.is_drained and not self._stop_asked:
            self._stop()
        self._reload()

    def _watch(self, services: Sequence[Service]) -> None:
        """Restart when a service of this process has ended or is stuck: no other process replaces it. Report health."""
        progress: dict[str, object] = {}
        for service in services:
            progress |= service.progress()
        stuck = self._liveness.check(progress, limit=STUCK)
        if stuck and not self._stop_asked:
            logger.error("Supervisor %s restarts: %s", self.id, "; ".join(stuck))
            self._stop()
            self.restarts = True
        ready, processes = self._workers.readiness()
        stopping = self._stop_asked > 0
        reloading = self.restarts or self._probe.is_running or self._workers.is_renewing
        self._health.report(
            MainLoop(time.monotonic(), ready, processes, stuck, stopping, reloading, reloads=self._reloads)
        )

    def _wait(self) -> None:
        """Wait for a signal or a wake-up, and handle it."""
        for number in self._signals.wait(CHECK_EVERY):
            if number in STOPS:
                self._stop()
            elif number == signal.SIGHUP and not self._stop_asked:
                self._reloads += 1
                self._probe.start()
        if self._dismissed:
            self._dismissed = False
            logger.info("Supervisor %s was asked to stop", self.id)
            self._stop()

    def _stop(self) -> None:
        """Ask the consumers to finish. A second call makes them hand back running messages at once."""
        self._probe.cancel()
        if self.restarts:
            # The consumers are finishing already. This stop is the first request, so handlers keep their grace period.
            self.restarts = False
            logger.info("Supervisor %s stops instead of restarting", self.id)
            return
        self._stop_asked += 1
        how = "handing back running messages" if self._stop_asked > 1 else "waiting for running handlers"
        logger.info("Supervisor %s is shutting down; %s", self.id, how)
        self._workers.stop()

    def _reload(self) -> None:
        """Replace the consumers or restart when the probe has found changed code or settings."""
        change = self._probe.poll()
        if change is Change.NONE:
            logger.info("Supervisor %s replaces its consumers one by one", self.id)
            self._workers.renew()
        elif change is Change.OWN:
            logger.info("Supervisor %s restarts: its queues, topics, schedules, handlers or settings changed", self.id)
            self._stop()
            self.restarts = True

    def _settle_the_last(self) -> None:
        give_up = time.monotonic() + LAST_RECLAIM
        while not all(server.reclaimer.is_done() for server in self._servers) and time.monotonic() < give_up:
            time.sleep(0.01)

    def _leave(self, services: Sequence[Service]) -> None:
        for service in services:
            service.join(LAST_ROUND)
        for server in self._servers:
            if server.heartbeat.join(0):
                server.heartbeat.leave(self.id)

    def _announce(self) -> Announcement:
        process = {**self._process_info(os.getpid(), started(os.getpid())), "protocol": PROTOCOL, "grace": self._grace}
        return Announcement(self.id, process, self._states.announced(), self._states.activity())

    def _describe(self, worker: WorkerProcess) -> Mapping[str, Any]:
        where = self._process_info(worker.process.pid, worker.started)
        state = "stopping" if worker.leaving else "quiet" if worker.shared_state.is_quiet() else "running"
        return {
            **where,
            "since_ms": worker.since_ms,
            "threads": worker.threads,
            "quarantine": worker.quarantine,
            "state": state,
            **({} if worker.shared_state.ticks() else {"starting": True}),
            **slots_in_use(worker.shared_state, worker.threads, [config.name for config in self._queues]),
        }

    def _process_info(self, pid: int, started_at: str) -> dict[str, Any]:
        """Return the fields by which a supervisor on the same machine can tell whether a process still runs."""
        machine = here()
        found = {"host": socket.gethostname(), "pid": pid, "since_ms": self._since_ms, "version": __version__}
        if release := get_config().release:
            found["release"] = release
        if machine is not None:
            found |= {"boot": machine.boot, "pids": machine.pids, "started": started_at}
        return found

    def _on_evicted(self, announcement: Announcement) -> None:
        if announcement.supervisor == self.id:
            self._evicted = True
            self._signals.wake()

    def _asked(self, asks: Mapping[str, str]) -> None:
        """Pass on each request once."""
        with self._lock:
            # Another queue may still have an earlier request to become quiet.
            new = {name: ask for name, ask in asks.items() if self._requests.get(name) not in (ask, "stop")}
            self._requests |= new
        if new:
            self._states.ask(new)
        if new.get(self.id) == "stop":
            self._dismissed = True
            self._signals.wake()


def make_trimmers() -> Iterator[Trimmer]:
    """Yield a trimmer for the topics and partitions of each server. Each topic has a session of its own on it."""
    logs: dict[str, list[Log]] = {}
    topics: dict[str, list[Log | PartitionedLog]] = {}
    for topic in get_config().topics.values():
        sessions: dict[str, AnySession] = {}
        for part in topic.each_part:
            server = server_of(part.connection, part.keys.log)
            if server not in sessions:
                sessions[server] = open_session("chores", part.connection)
            logs.setdefault(server, []).append(Log(part, sessions[server]))
        first = next(iter(sessions))
        topics.setdefault(first, []).append(open_log(topic, sessions[first]))
    for server, share in logs.items():
        trimmer = Trimmer(share, topics.get(server, ()))
        assign([trimmer], [log.config for log in share], servers=len(logs))
        yield trimmer
