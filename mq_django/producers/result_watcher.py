"""Watch the results of tasks on one server: one thread and one subscription a process, for all that wait in it."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from mq_django.conf import QueueConfig, get_config
from mq_django.core.logs import get_logger
from mq_django.producers.watcher import Watcher, Watchers
from mq_django.stores.results import Result, SeenResult, read_notification, watch

logger = get_logger(__name__)

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
