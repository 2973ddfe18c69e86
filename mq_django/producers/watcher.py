"""Hear of what changes on a server: one thread and one subscription a process, for all that wait in it.

The results of tasks are watched so.
"""

import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from mq_django.conf import QueueConfig, get_config
from mq_django.core.clock import MAX_DELAY, read_duration
from mq_django.core.ids import token
from mq_django.core.logs import get_logger
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidWait, StoreError
from mq_django.stores.results import Result, SeenResult, read_notification, watch
from mq_django.transport.connections import clients_closed, open_session, open_transport
from mq_django.transport.subscription import Subscription

logger = get_logger(__name__)


#: Seconds that a read of the subscription waits.
LISTEN = 0.25
#: Seconds without anybody who waits, after which the subscription ends.
IDLE = 30.0
#: Seconds between two lines in the log about failures.
LOG_AGAIN = 30.0
#: Seconds until the next try after a failure.
TRY_AGAIN = 0.2


def checked_timeout(timeout: object) -> timedelta:
    """Return the longest time that a caller waits.

    Raises:
        InvalidWait: it cannot be.
    """
    try:
        found = read_duration(timeout)
    except TypeError as error:
        raise InvalidWait(f"timeout must be {error}, not {repr_of(timeout)}") from error
    if not timedelta(0) <= found <= MAX_DELAY:
        raise InvalidWait(f"timeout must be from 0 to {MAX_DELAY.days} days, not {repr_of(timeout)}")
    return found


class Watcher(ABC):
    """A thread that hears by pub/sub of what callers wait for. It also looks, because pub/sub may lose notifications.

    It runs while somebody waits, and for IDLE seconds longer.
    """

    #: What is waited for, in the thread's name and in the log.
    subject: ClassVar[str]

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self._process = token()
        self._transport = open_transport("produce", connection)
        # The garbage collector may end an abandoned reader in a thread that has it.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        #: It has subscribed, or that has failed.
        self._subscribed = threading.Event()
        #: It could not subscribe, so that only looking helps.
        self._is_unsubscribed = False
        self._retired = False
        self._logged = -LOG_AGAIN

    @abstractmethod
    def _is_awaited(self) -> bool:
        """Return whether somebody waits. Called under the lock."""

    @abstractmethod
    def _channels(self) -> list[str]:
        """Return the channels to subscribe to. The first is always the same: on a cluster it chooses the node."""

    @abstractmethod
    def _due_now(self) -> None:
        """Let the next look be at everything."""

    @abstractmethod
    def _read_due(self) -> bool:
        """Look at what is due, and return whether there is more to read at once."""

    @abstractmethod
    def _hear(self, channel: str, data: bytes) -> None:
        """Take a notification; without data also the beginning of the subscription to a channel."""

    def retire(self) -> None:
        """End the thread as soon as nobody waits."""
        self._retired = True

    def _run(self) -> None:
        """Start the thread, if it does not run. Called under the lock."""
        if self._thread is None or not self._thread.is_alive():
            self._subscribed.clear()
            self._thread = threading.Thread(target=self._loop, name=f"mq_django {self.subject}", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        subscription = Subscription(open_session("produce", self._connection), self._channels())
        busy = time.monotonic()
        try:
            while True:
                with self._lock:
                    if self._is_awaited():
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
            subscription.change(self._channels())
            if subscription.open():
                # Notifications from before are lost.
                self._due_now()
                self._is_unsubscribed = False
                self._subscribed.set()
            has_more = self._read_due()
            for channel, data in subscription.messages(0.0 if has_more else LISTEN):
                self._hear(channel, data)
        except Exception as error:  # noqa: BLE001 - those who wait have timeouts, and the thread must not end
            subscription.close()
            self._is_unsubscribed = True
            self._subscribed.set()
            self._log(error)
            time.sleep(TRY_AGAIN)
            # Without a subscription, such as for a Redis user who may not subscribe, looking goes on.
            with suppress(StoreError):
                self._read_due()

    def _log(self, error: Exception) -> None:
        # One that is retired has lost its connection on purpose.
        if not self._retired and time.monotonic() - self._logged > LOG_AGAIN:
            self._logged = time.monotonic()
            text = "Waiting for %s: no notifications; looking each second until that succeeds: %s"
            logger.warning(text, self.subject, error, exc_info=None if isinstance(error, StoreError) else error)


Kind = TypeVar("Kind", bound=Watcher)


class Watchers(Generic[Kind]):
    """The watchers of a kind in this process, by connection."""

    def __init__(self, make: Callable[[str], Kind]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._found: dict[str, Kind] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)
        clients_closed.connect(self.forget_all)

    def of(self, connection: str) -> Kind:
        """Return this process's watcher on a server.

        Raises:
            ConfigurationError: CONNECTION cannot be used.
            ConnectionLost: the embedded server does not start.
        """
        with self._lock:
            found = self._found.get(connection)
            if found is None:
                self._found[connection] = found = self._make(connection)
            return found

    def forget_all(self, **_: Any) -> None:
        """Make new watchers from now on: the settings may be others."""
        # Without the lock, which a thread of the parent may hold in a new process; another thread may add one.
        found, self._found = self._found, {}
        for each in found.values():
            each.retire()

    def _after_fork(self) -> None:
        """Forget the watchers of the parent, whose threads this process does not have."""
        # A thread of the parent may hold the lock during the fork.
        self._lock = threading.Lock()
        self._found.clear()


#: Seconds between two looks at a result: the longest that a lost notification delays it.
CHECK_EVERY = 1.0
#: The same for those who wait for something else, and would hear of the end of the task earlier.
CHECK_SLOWLY = 20.0
#: Seconds that the first wait of a process gives the subscription to begin. Without one it looks each second.
SUBSCRIBE_WITHIN = 1.0

#: Called once with the id of a result when it has ended, or with None when it does not exist any more.
Ended = Callable[[str, Result | None], object]


@dataclass(slots=True)
class _Awaited:
    """A result that somebody waits for."""

    config: QueueConfig
    message_id: str
    looked: float
    is_slow: bool
    length: int = 0
    on_end: list[Ended] = field(default_factory=list)


class ResultWatcher(Watcher):
    """Tells those who wait for results of one server when these end.

    It hears of them by pub/sub, and looks at each once a second, because pub/sub may lose notifications.
    """

    subject = "results"

    def __init__(self, connection: str) -> None:
        super().__init__(connection)
        self._awaited: dict[str, _Awaited] = {}
        self._own_channels = [
            part.keys.results_channel(self._process)
            for part in get_config().each_part()
            if part.keeps_results and part.connection == connection
        ]

    def watch(self, config: QueueConfig, message_ids: Iterable[str], on_end: Ended, *, is_slow: bool = False) -> None:
        """Call `on_end` for each of the results when it has ended: now, or later in a thread of this.

        Args:
            config: their queue or partition, on the server of this.
            message_ids: of the results.
            on_end: gets the id, and the result, or None if it does not exist. It must return at once.
            is_slow: look at them only every 20 s, unless somebody else waits for them, too.

        Raises:
            StoreError: Redis cannot be reached, or refuses a command. Nothing is watched.
        """
        now = time.monotonic()
        keys = [(config.keys.result(each), each) for each in message_ids]
        with self._lock:
            for key, message_id in keys:
                awaited = self._awaited.setdefault(key, _Awaited(config, message_id, now, is_slow))
                awaited.is_slow &= is_slow
                awaited.on_end.append(on_end)
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

    def _is_awaited(self) -> bool:
        return bool(self._awaited)

    def _channels(self) -> list[str]:
        return self._own_channels

    def _hear(self, channel: str, data: bytes) -> None:
        name, _, value = data.partition(b"\n")
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

    def _read_due(self) -> bool:
        """Look at what nobody has looked at for a second, or for longer."""
        now = time.monotonic()
        with self._lock:
            due = [
                (key, awaited.config)
                for key, awaited in self._awaited.items()
                if awaited.looked < now - (CHECK_SLOWLY if awaited.is_slow else CHECK_EVERY)
            ]
        queues = {config.name: config for _, config in due}
        for name, config in queues.items():
            self._read(config, [key for key, found in due if found.name == name])
        return False

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


watchers = Watchers(ResultWatcher)
