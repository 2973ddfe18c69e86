"""The loop of all background threads, and the server that each of them uses.

What works for several queues in one thread is made once per server, so that a server that is slow or down does not
affect the queues of another one. In a Redis Cluster, each master is a server. A queue whose slot is moved to another
master stays with those that it was with at the start: its commands follow it, and a process that starts later has it
with its new neighbours. Queues keep the numbers that they have in the whole process.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from django.conf import settings
from django.db import reset_queries

from mq_django.conf import DeliveryOptions, QueueConfig
from mq_django.consumers import outage
from mq_django.consumers.outage import LOG_AGAIN
from mq_django.core.logs import get_logger
from mq_django.core.partitions import listed
from mq_django.core.texts import class_name
from mq_django.errors import ConnectionLost, ConnectionRejected, QueueFull, ReadOnly, StoreError
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.connections import node_of, open_session
from mq_django.transport.failures import concerns_one_slot
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import TOGETHER, Transport

logger = get_logger(__name__)

T = TypeVar("T")

#: Seconds until a service retries after an error of Redis: the first time, and at most.
FIRST_BACKOFF = 0.1
MAX_BACKOFF = 2.0
#: Failures of different items that are logged in LOG_AGAIN: other programs may make any number of schedules fail.
MAX_LOGGED = 1000
#: Seconds that a queue may take of a round.
BUDGET = 0.2

#: Errors of the whole server: the next queue would fail in the same way.
SERVER_ERRORS = (ConnectionLost, ConnectionRejected, ReadOnly)


class RoundShares(Generic[T]):
    """Iterates over what a service does for its queues: for each of these BUDGET seconds, so that others need not wait.

    Args:
        items: what there is to do.
        queue_of: returns the queue of an item.
    """

    def __init__(self, items: Iterable[T], queue_of: Callable[[T], Any]) -> None:
        self._items = items
        self._queue_of = queue_of
        #: What is left to do.
        self.left: list[T] = []

    def __iter__(self) -> Iterator[T]:
        spent: dict[Any, float] = {}
        for item in self._items:
            queue = self._queue_of(item)
            if spent.get(queue, 0.0) > BUDGET:
                self.left.append(item)
                continue
            began = time.monotonic()
            yield item
            spent[queue] = spent.get(queue, 0.0) + time.monotonic() - began


class Answer(NamedTuple):
    """A reply of Redis about one of several queues. Times are on the monotonic clock."""

    #: An error reply is an exception.
    reply: Any
    #: When all of them were asked about, about when the server ran the command for this one, and when all had come.
    began: float
    ran: float
    ended: float


class Service:
    """A thread that repeats `run_once`. start() and stop() are idempotent, and stop() may come first."""

    #: Used in logs and as the thread's name.
    name = "service"

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        #: It waits for its next round.
        self._sleeping = False
        self._backoff = 0.0
        #: Successful rounds since the last failure.
        self._successes = 0
        #: (item, error) -> when it was last logged.
        self._logged: dict[tuple[str, str], float] = {}
        #: The server that it uses, as in CONNECTION; "": that of the project. None: it uses several, by each().
        self.connection: str | None = ""
        #: The time of the latest round, or step of one, on the monotonic clock.
        self.progressed = time.monotonic()

    def run_once(self) -> float:
        """Do one round, and return the seconds until the next one. wake() starts it earlier."""
        raise NotImplementedError

    def recover(self, error: Exception) -> None:
        """Restore a consistent state after a failed round."""

    def close(self) -> None:
        """Release the loop's resources. Called in its own thread when it has ended."""

    @property
    def stopping(self) -> bool:
        """Return whether stop() was called."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the loop in a thread of its own."""
        if self._thread is None and not self.stopping:
            self.progressed = time.monotonic()
            self._thread = threading.Thread(target=self._loop, name=f"mq_django {self.name}", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Start the next round at once."""
        self._woken.set()

    def stop(self) -> None:
        """End the loop after its current round, without waiting for that."""
        self._stopping.set()
        self._woken.set()

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the loop to end, and return whether it has."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def progress(self) -> Mapping[str, object]:
        """Return the name with a value that changes with each round, or None if the loop has ended; see Liveness."""
        if self._thread is None or self.stopping:
            return {}
        if not self._thread.is_alive():
            return {self.name: None}
        return {self.name: time.monotonic() if self._sleeping else self.progressed}

    def each(
        self,
        items: Iterable[T],
        do: Callable[[T], object],
        *,
        called: Callable[[T], str],
        server: Callable[[T], str] = lambda _: "",
    ) -> None:
        """Call `do` with each item. An error is logged with the item's name, and the next item follows.

        Services use this for their queues, topics and schedules, so that a failure of one does not affect the others.

        Args:
            items: for example the numbers of queues.
            do: is called with each.
            called: returns the name of an item, for logs.
            server: returns the server that an item is on.

        Raises:
            SERVER_ERRORS: a server failed, which concerns all its items. Those on other servers have been processed.
        """
        failed: dict[str, StoreError] = {}
        for item in items:
            self.progressed = time.monotonic()
            where = server(item)
            if where in failed:
                continue
            try:
                do(item)
            except SERVER_ERRORS as error:
                if concerns_one_slot(error):
                    self._log_failure(called(item), error)
                    continue
                failed[where] = error
                if self.connection is None:
                    outage.failed(where, self, error)
            except BaseException as error:  # noqa: BLE001 - as in _round
                self._log_failure(called(item), error)
        if failed:
            raise next(iter(failed.values()))

    def each_together(
        self,
        items: Iterable[T],
        ask: Callable[[T], Command],
        do: Callable[[T, "Answer"], object],
        *,
        transport: Transport,
        called: Callable[[T], str],
        most: int = TOGETHER,
    ) -> None:
        """Ask one server about each item, in few commands, and call `do` with each answer; see each().

        Args:
            items: for example the numbers of queues.
            ask: returns the command about an item.
            do: is called with each item and its answer.
            transport: see Transport.together(), also for `most`.
            called: see each().
        """
        commands: dict[T, Command] = {}
        self.each(items, lambda item: commands.update({item: ask(item)}), called=called)
        began = time.monotonic()
        replies = transport.together(list(commands.values()), most=most)
        ended = time.monotonic()
        # The server has answered one after another.
        step = (ended - began) / max(1, len(commands))
        answers = {
            item: Answer(reply, began, began + step * (at + 0.5), ended)
            for at, (item, reply) in enumerate(zip(commands, replies, strict=True))
        }
        self.each(answers, lambda item: do(item, answers[item]), called=called)

    def _log_failure(self, what: str, error: BaseException) -> None:
        """Log a failure that may repeat every round, at most once per LOG_AGAIN."""
        if not self._may_log(what, error):
            return
        if isinstance(error, StoreError | QueueFull):
            logger.warning("%s of %s failed, and will retry: %s", self.name, what, error)
        else:
            logger.error("%s of %s failed; continuing with the others", self.name, what, exc_info=error)

    def _may_log(self, what: str, error: BaseException) -> bool:
        """Return whether such an error has not been logged recently, nor many others, and note that it is now."""
        now, which = time.monotonic(), (what, class_name(type(error)))
        if now - self._logged.get(which, -LOG_AGAIN) < LOG_AGAIN:
            return False
        if len(self._logged) >= MAX_LOGGED:
            self._logged = {one: at for one, at in self._logged.items() if now - at < LOG_AGAIN}
            if len(self._logged) >= MAX_LOGGED:
                return False
        self._logged[which] = now
        return True

    def _loop(self) -> None:
        try:
            while not self.stopping:
                self.progressed = time.monotonic()
                pause = self._round()
                if settings.DEBUG:
                    # As at the start of a request. Django keeps 9,000 for each connection.
                    reset_queries()
                if pause > 0:
                    self._sleeping = True
                    self._woken.wait(pause)
                    self._sleeping = False
                self._woken.clear()
        finally:
            outage.forget(self)
            self.close()

    def _round(self) -> float:
        try:
            pause = self.run_once()
        except StoreError as error:
            return self._back_off(error)
        except BaseException as error:
            # SystemExit as well: a receiver of a signal may raise it, and the thread must not end.
            if self._may_log("", error):
                logger.exception("%s failed, and will retry", self.name)
            self._recover(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            return MAX_BACKOFF
        self._successes += 1
        if not self._backoff:
            return pause
        if self._successes == 1:
            # It may only have cleaned up, and the next may fail again. An outage lasts until that is known.
            return min(pause, MAX_BACKOFF)
        if not outage.recovered(self):
            logger.info("%s has recovered", self.name)
        self._backoff = 0.0
        return pause

    def _back_off(self, error: StoreError) -> float:
        if self.stopping:
            return 0.0
        now = time.monotonic()
        self._successes = 0
        if isinstance(error, SERVER_ERRORS):
            if self.connection is not None:
                outage.failed(self.connection, self, error)
        elif not self._backoff or now - self._logged.get(("", ""), now) >= LOG_AGAIN:
            self._logged["", ""] = now
            logger.warning("%s failed, and will retry: %s", self.name, error)
        self._backoff = min(MAX_BACKOFF, self._backoff * 2 or FIRST_BACKOFF)
        self._recover(error)
        return self._backoff

    def _recover(self, error: Exception) -> None:
        try:
            self.recover(error)
        except BaseException:
            logger.exception("%s could not recover, and will retry", self.name)


# Detect loops and threads that have ended or are stuck.

#: Seconds without progress after which a loop counts as stuck. The longest round, with a Redis that does not answer,
#: takes about 20 s.
STUCK = 30.0
#: At most this many seconds between two checks count: in a longer gap this process itself did not run.
MAX_GAP = 2.0


class Liveness:
    """Watches loops. check() checks once."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._seen: dict[str, tuple[object, float]] = {}

    def check(self, progress: Mapping[str, object], *, limit: float) -> list[str]:
        """Return a description of each loop that has ended or is stuck.

        `progress` has for each loop a value that changes with each round, or None if it has ended without being asked
        to. `limit` is the number of seconds for which the value may stay the same.
        """
        now = time.monotonic()
        passed = min(MAX_GAP, now - self._looked)
        self._looked = now
        found = {}
        for name, value in progress.items():
            before, still = self._seen.get(name, (value, 0.0))
            found[name] = (value, still + passed if value == before else 0.0)
        self._seen = found
        ended = [f"{name} has ended" for name, (value, _) in found.items() if value is None]
        return ended + [
            f"{name} is stuck for {still:.0f} s"
            for name, (value, still) in found.items()
            if value is not None and still > limit
        ]


# How often processes send heartbeats, and after how much silence they count as dead.


def interval(visibility_seconds: float) -> float:
    """Return the seconds between heartbeats.

    One seventh of the visibility timeout: a process that freezes for four fifths of the timeout just before a heartbeat
    still sends it in time. The others see a heartbeat up to an interval late, and so a death.
    """
    return min(3.0, visibility_seconds / 7)


def held_for(visibility_seconds: float) -> float:
    """Return the seconds after a heartbeat in which no supervisor takes its sender for dead."""
    return visibility_seconds - min(0.1, visibility_seconds / 20)


#: Queues on one server, by their numbers.
ServerQueues = Mapping[int, QueueConfig]


def by_server(queues: Sequence[QueueConfig]) -> dict[str, ServerQueues]:
    """Return the queues on each server, by its connection, and of a cluster also by the address of the master."""
    found: dict[str, dict[int, QueueConfig]] = {}
    for number, config in enumerate(queues):
        found.setdefault(server_of(config.connection, config.keys.wake), {})[number] = config
    return {**found}


def server_of(connection: str, key: str) -> str:
    """Return a name of the server that has a key."""
    return f"{connection} {node_of(connection, key)}".strip()


def connection_of(queues: ServerQueues) -> str:
    """Return the connection of queues on one server."""
    return next(iter(queues.values())).connection


def open_session_to(queues: ServerQueues) -> AnySession:
    """Return a session of its own to the server of these queues, for one thread."""
    return open_session("chores", connection_of(queues))


def open_stores(queues: ServerQueues, session: AnySession | None = None) -> dict[int, Store]:
    """Open the stores of these queues on a session, for one thread. None: on one of their own."""
    session = session or open_session_to(queues)
    return {number: open_store(config, session) for number, config in queues.items()}


def assign(services: Iterable[Service], configs: Collection[DeliveryOptions], *, servers: int) -> None:
    """Tell services which server they use: that of these queues or topics.

    If there are several servers, the names of the services say so in logs and to the watchdog.
    """
    names = ", ".join(listed([config.name for config in configs]))
    for service in services:
        service.connection = next(iter(configs)).connection
        if servers > 1:
            service.name = f"{service.name} ({names:.60})"
