"""The main thread of a consumer process: it handles its supervisor's requests and detects its end."""

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
from mq_django.consumers import hangups, processes
from mq_django.consumers.decisions import send
from mq_django.consumers.outage import LOG_AGAIN, Outage
from mq_django.consumers.processes import Grace, is_reloaded, resident_mib
from mq_django.consumers.service import (
    ServerQueues,
    Service,
    by_server,
    connection_of,
    held_for,
    interval,
    open_session_to,
)
from mq_django.consumers.shared_state import OVERTIME, SharedState
from mq_django.consumers.worker.consumer import Consumer
from mq_django.consumers.worker.consumer import slots as slots_of
from mq_django.core.logs import get_logger
from mq_django.core.partitions import listed
from mq_django.errors import StoreError
from mq_django.signals import consumer_started, consumer_stopping
from mq_django.stores import open_members

logger = get_logger(__name__)

#: Seconds between two checks whether to stop, and between two of the more expensive checks.
CHECK_EVERY = 0.1
EXPENSIVE_EVERY = 1.0
#: Seconds without messages after which a quarantine stops: usually, and with --drain.
QUARANTINE_IDLE, QUARANTINE_IDLE_DRAINING = 10.0, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """The options of a consumer process: its supervisor passes them as JSON.

    The supervisor may run an older version than the process that it starts, so the names of the fields stay.
    """

    consumer: str
    supervisor: str
    queues: Sequence[str]
    threads: int
    grace: float
    drain: bool
    #: The file descriptors of the shared state and of a pipe, which the process inherits. The supervisor has the other
    #: end of the pipe, so that a read returns nothing when it has died.
    board: int
    lifeline: int
    #: The backlog of a quarantine; "" for any other consumer.
    line: str = ""
    #: It is replaced after this many messages, or when it uses this much memory in MiB; 0: never.
    max_messages: int = 0
    max_memory: float = 0.0

    def as_text(self) -> str:
        """Return the options as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> "LaunchSpec":
        """Parse the result of as_text()."""
        return cls(**json.loads(text))


class ChildProcess:
    """The main loop of a consumer process."""

    def __init__(self, spec: LaunchSpec) -> None:
        config = get_config()
        self._spec = spec
        self._stop_asked = False
        self._shared_state = SharedState(spec.board, slots_of(spec.threads))
        self._queues = [config.queue(name) for name in spec.queues]
        self._consumer = Consumer(
            spec.consumer, self._queues, threads=spec.threads, shared_state=self._shared_state, backlog=spec.line
        )
        self._checked = 0.0
        self._orphaned = self._drained = False

    def run(self) -> int:
        """Run the consumer until it must stop; return the exit code: 1 if a handler outlasted the grace period."""
        self._listen()
        names = list(dict.fromkeys(queue.public_name for queue in self._queues))
        send(consumer_started, Consumer, consumer=self._consumer.id, queues=names)
        # The objects of the start stay for good: the garbage collector need not check all of Django each time.
        gc.collect()
        gc.freeze()
        self._shared_state.tick()
        self._consumer.start()
        does = "is a quarantine for" if self._spec.line else "handles"
        queues = ", ".join(listed(self._spec.queues))
        logger.info("Consumer %s %s %s with %d threads", self._consumer.id, does, queues, self._spec.threads)
        self._wait()
        if not self._drained:
            self._shared_state.leave()
        send(consumer_stopping, Consumer, consumer=self._consumer.id, queues=names)
        if self._orphaned:
            self._consumer.inherit_backlog()
        orphan_heartbeats = [
            OrphanHeartbeat(self._spec.supervisor, self._consumer.names, share, self._shared_state)
            for share in (by_server(self._queues).values() if self._orphaned else ())
        ]
        for service in orphan_heartbeats:
            service.start()
        ended = self._stop()
        for service in orphan_heartbeats:
            service.end()
        logger.info("Consumer %s stopped", self._consumer.id)
        return 0 if ended else 1

    def _listen(self) -> None:
        # Ctrl-C and a hangup reach the whole foreground process group. Only the supervisor handles them. A function
        # that does nothing, because programs that handlers start would inherit SIG_IGN.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._ask_to_stop())
        hangups.release()
        processes.close_in_children(self._close_in_child)

    def _close_in_child(self) -> None:
        os.close(self._spec.lifeline)
        self._shared_state.close()

    def _ask_to_stop(self) -> None:
        self._stop_asked = True

    def _stop(self) -> bool:
        grace = Grace(self._spec.grace)

        def check() -> None:
            self._shared_state.tick()
            if self._shared_state.is_stopping_fast():
                grace.end()
            now = time.monotonic()
            running = self._shared_state.running()
            # Only handlers are left that cannot be interrupted.
            if running and all(now > item.deadline + OVERTIME or self._consumer.never_ends(item) for item in running):
                grace.end()

        grace.on_check = check
        return self._consumer.stop(grace)

    def _wait(self) -> None:
        """Return when it is time to stop."""
        while not self._stop_asked:
            self._shared_state.tick()
            readable, _, _ = select.select([self._spec.lifeline], [], [], CHECK_EVERY)
            if readable and not os.read(self._spec.lifeline, 1):
                if is_reloaded():
                    logger.info("Consumer %s stops: the code has changed, or --autoreload ends", self._consumer.id)
                else:
                    logger.warning("The supervisor of consumer %s has died; the consumer stops", self._consumer.id)
                self._orphaned = True
                return
            if self._shared_state.must_become_quiet():
                self._consumer.quiet()
                self._shared_state.mark_quiet()
                logger.info("Consumer %s is quiet: it fetches no more", self._consumer.id)
            if time.monotonic() - self._checked > EXPENSIVE_EVERY:
                self._checked = time.monotonic()
                self._consumer.note_counts()
                if reason := self._reason_to_leave():
                    logger.info("Consumer %s will be replaced: %s", self._consumer.id, reason)
                    return
            if self._spec.drain and not self._spec.line and self._is_drained():
                self._drained = True
                return

    def _reason_to_leave(self) -> str:
        spec = self._spec
        if stuck := self._consumer.stuck():
            logger.error("Consumer %s must be replaced: %s", self._consumer.id, "; ".join(stuck))
            return "it is stuck"
        if self._consumer.is_blocked():
            return "its event loop is blocked"
        if spec.max_messages and self._consumer.settled() >= spec.max_messages:
            return f"it has handled {self._consumer.settled()} messages"
        if spec.max_memory and resident_mib() > spec.max_memory:
            return f"it uses {resident_mib():.0f} MiB"
        if self._consumer.idle_seconds() > (QUARANTINE_IDLE_DRAINING if spec.drain else QUARANTINE_IDLE):
            return "no messages are left to run alone"
        return ""

    def _is_drained(self) -> bool:
        try:
            return self._consumer.is_idle()
        except StoreError:
            return False


def run(spec: LaunchSpec) -> int:
    """Run a consumer process with these options, and return its exit code."""
    Outage.grace = LOG_AGAIN
    code = ChildProcess(spec).run()
    processes.end_children()
    if code:
        # A handler that still runs in any thread would prevent the interpreter from exiting.
        logging.shutdown()
        os._exit(code)
    return code


# Send the heartbeats of a supervisor that has died.


class OrphanHeartbeat(Service):
    """Sends heartbeats for a consumer whose supervisor has died, while its last handlers finish."""

    name = "orphan's heartbeat"

    def __init__(
        self, supervisor: str, consumers: Sequence[str], queues: ServerQueues, shared_state: SharedState
    ) -> None:
        super().__init__()
        self.connection = connection_of(queues)
        session = open_session_to(queues)
        self._supervisor = supervisor
        self._consumers = consumers
        self._queues = queues
        self._members = {number: open_members(config, session) for number, config in queues.items()}
        self._timeouts = {number: config.visibility_timeout.total_seconds() for number, config in queues.items()}
        self._shared_state = shared_state

    def run_once(self) -> float:
        """Send one heartbeat to every queue, under the supervisor's name."""
        self.each(self._members, self._beat, called=self._name)
        return min(interval(timeout) for timeout in self._timeouts.values())

    def _beat(self, number: int) -> None:
        began = time.monotonic()
        members = self._members[number]
        if members.keep_alive(self._supervisor):
            until = began + held_for(self._timeouts[number])
            self._shared_state.hold_until(number, until, since=members.held_since)

    def _name(self, number: int) -> str:
        return self._queues[number].name

    def end(self) -> None:
        """Stop, and remove the consumer. Without this it would stay registered until its heartbeat expires."""
        self.stop()
        if not self.join(1.0):
            return
        try:
            self.each(self._members, lambda n: self._members[n].leave(self._consumers), called=self._name)
        except StoreError as error:
            logger.warning("Consumer %s remains registered until its heartbeat expires: %s", self._consumers[0], error)
