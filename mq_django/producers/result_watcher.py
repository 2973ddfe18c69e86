"""Watch the results of tasks on one server: one thread and one subscription a process, for all that wait in it."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core.ids import token
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.stores.results import Result, SeenResult, read_notification, watch
from mq_django.transport.connections import clients_closed, open_session, open_transport
from mq_django.transport.subscription import Subscription

logger = get_logger(__name__)

#: Seconds between two looks at a result: the longest that a lost notification delays it.
CHECK_EVERY = 1.0
#: Seconds that a read of the subscription waits.
LISTEN = 0.25
#: Seconds that the first wait of a process gives the subscription to begin. Without one it looks each second.
SUBSCRIBE_WITHIN = 1.0
#: Seconds without anybody who waits, after which the subscription ends.
IDLE = 30.0
#: Seconds between two lines in the log about failures.
LOG_AGAIN = 30.0
#: Seconds until the next try after a failure.
TRY_AGAIN = 0.2

#: Called once with the id of a result when it has ended, or with None when it does not exist any more.
Ended = Callable[[str, Result | None], object]


@dataclass(slots=True)
class _Awaited:
    """A result that somebody waits for."""

    config: QueueConfig
    message_id: str
    looked: float
    length: int = 0
    on_end: list[Ended] = field(default_factory=list)


class ResultWatcher:
    """Tells those who wait for results of one server when these end.

    It hears of them by pub/sub, and looks at each once a second, because pub/sub may lose notifications.
    """

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self._process = token()
        self._transport = open_transport("produce", connection)
        self._awaited: dict[str, _Awaited] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        #: It has subscribed, or that has failed.
        self._subscribed = threading.Event()
        self._retired = False
        self._logged = -LOG_AGAIN

    def watch(self, config: QueueConfig, message_ids: Iterable[str], on_end: Ended) -> None:
        """Call `on_end` for each of the results when it has ended: now, or later in a thread of this.

        Args:
            config: their queue or partition, on the server of this.
            message_ids: of the results.
            on_end: gets the id, and the result, or None if it does not exist. It must return at once.

        Raises:
            StoreError: Redis cannot be reached, or refuses a command. Nothing is watched.
        """
        now = time.monotonic()
        keys = [(config.keys.result(each), each) for each in message_ids]
        with self._lock:
            for key, message_id in keys:
                self._awaited.setdefault(key, _Awaited(config, message_id, now)).on_end.append(on_end)
            self._run()
        # The subscription comes first, so that an ending after the look is heard of.
        self._subscribed.wait(SUBSCRIBE_WITHIN)
        try:
            self._read(config, [key for key, _ in keys])
        except BaseException:
            self.forget(config, [message_id for _, message_id in keys], on_end)
            raise

    def forget(self, config: QueueConfig, message_ids: Iterable[str], on_end: Ended) -> None:
        """Call `on_end` no more for these results."""
        with self._lock:
            for message_id in message_ids:
                key = config.keys.result(message_id)
                awaited = self._awaited.get(key)
                if awaited is None:
                    continue
                with suppress(ValueError):
                    awaited.on_end.remove(on_end)
                if not awaited.on_end:
                    del self._awaited[key]

    def retire(self) -> None:
        """End the thread as soon as nobody waits."""
        self._retired = True

    def _run(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._subscribed.clear()
            self._thread = threading.Thread(target=self._loop, name="mq_django results", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        channels = [
            part.keys.results_channel(self._process)
            for part in get_config().each_part()
            if part.keeps_results and part.connection == self._connection
        ]
        subscription = Subscription(open_session("produce", self._connection), channels)
        busy = time.monotonic()
        try:
            while True:
                with self._lock:
                    if self._awaited:
                        busy = time.monotonic()
                    elif self._retired or time.monotonic() > busy + IDLE:
                        # Under the lock: who waits from now on starts another thread.
                        self._thread = None
                        return
                self._round(subscription)
        finally:
            subscription.close()

    def _round(self, subscription: Subscription) -> None:
        try:
            if subscription.open():
                # Notifications from before are lost.
                self._due_now()
                self._subscribed.set()
            self._read_again()
            for _, message in subscription.messages(LISTEN):
                self._hear(message)
        except Exception as error:  # noqa: BLE001 - those who wait have timeouts, and the thread must not end
            subscription.close()
            self._subscribed.set()
            self._log(error)
            time.sleep(TRY_AGAIN)
            # Without a subscription, such as for a Redis user who may not subscribe, looking goes on.
            with suppress(StoreError):
                self._read_again()

    def _log(self, error: Exception) -> None:
        # One that is retired has lost its connection on purpose.
        if not self._retired and time.monotonic() - self._logged > LOG_AGAIN:
            self._logged = time.monotonic()
            text = "Waiting for results: no notifications; looking each second until that succeeds: %s"
            logger.warning(text, error, exc_info=None if isinstance(error, StoreError) else error)

    def _hear(self, message: bytes) -> None:
        name, _, value = message.partition(b"\n")
        key = name.decode(errors="replace")
        if key in self._awaited:
            self._note(key, read_notification(self._transport, key, value))
        with self._lock:
            if (awaited := self._awaited.get(key)) is not None:
                # It was delivered again. The notification has ended the registration.
                awaited.looked = -math.inf

    def _due_now(self) -> None:
        with self._lock:
            for awaited in self._awaited.values():
                awaited.looked = -math.inf

    def _read_again(self) -> None:
        """Look at what nobody has looked at for a second."""
        before = time.monotonic() - CHECK_EVERY
        with self._lock:
            due = [(key, awaited.config) for key, awaited in self._awaited.items() if awaited.looked < before]
        queues = {config.name: config for _, config in due}
        for name, config in queues.items():
            self._read(config, [key for key, found in due if found.name == name])

    def _read(self, config: QueueConfig, keys: Iterable[str]) -> None:
        known = {}
        with self._lock:
            for key in keys:
                if (awaited := self._awaited.get(key)) is not None:
                    known[key], awaited.looked = awaited.length, time.monotonic()
        for key, seen in watch(self._transport, config, known, self._process).items():
            self._note(key, seen)

    def _note(self, key: str, seen: SeenResult) -> None:
        with self._lock:
            awaited = self._awaited.get(key)
            if awaited is None:
                return
            if seen.exists and seen.ended is None:
                awaited.length = seen.length
                return
            del self._awaited[key]
        for on_end in awaited.on_end:
            try:
                on_end(awaited.message_id, seen.ended)
            except RuntimeError:
                logger.debug("The event loop that waited for result %s is closed", awaited.message_id)


_lock = threading.Lock()
#: By connection.
_watchers: dict[str, ResultWatcher] = {}


def watcher(connection: str) -> ResultWatcher:
    """Return this process's watcher of the results on a server.

    Raises:
        ConfigurationError: CONNECTION cannot be used.
        ConnectionLost: the embedded server does not start.
    """
    with _lock:
        found = _watchers.get(connection)
        if found is None:
            _watchers[connection] = found = ResultWatcher(connection)
        return found


def _forget_all(**_: Any) -> None:
    """Make new watchers from now on: the settings may be others."""
    for each in _watchers.values():
        each.retire()
    _watchers.clear()


def _after_fork() -> None:
    """Forget the watchers of the parent, whose threads this process does not have."""
    global _lock  # noqa: PLW0603 - a thread of the parent may hold it during the fork
    _lock = threading.Lock()
    _watchers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
clients_closed.connect(_forget_all, dispatch_uid="mq_django.result_watcher")
