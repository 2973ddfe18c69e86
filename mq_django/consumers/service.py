"""The loop of everything that runs beside the handlers, written once."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from mq_django.core.logs import get_logger
from mq_django.errors import ConnectionLost, ConnectionRejected, ReadOnly, StoreError

logger = get_logger(__name__)

T = TypeVar("T")

#: Seconds before a service tries again that Redis refused: first, and at most.
FIRST_BACKOFF = 0.1
MAX_BACKOFF = 2.0
#: Seconds between two log lines about the same trouble.
COMPLAIN_AGAIN = 60.0

#: What concerns a whole server, where the next queue would fare no better.
AWAY = (ConnectionLost, ConnectionRejected, ReadOnly)


class Service:
    """A thread that repeats `run_once`. Start and stop may be called twice, and stop before start."""

    #: Named in logs and in the thread.
    name = "service"

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        #: It waits for its next round, however long that is.
        self._resting = False
        self._backoff = 0.0
        #: Good rounds since the last trouble.
        self._good = 0
        self._complained: dict[tuple[str, str], float] = {}
        #: Seconds on the monotonic clock of the latest turn of the loop, or step of it.
        self.turned = time.monotonic()

    def run_once(self) -> float:
        """Do one round, and return the seconds until the next unless woken."""
        raise NotImplementedError

    def recover(self, error: Exception) -> None:
        """Repair what a failed round has left, before the next."""

    def close(self) -> None:
        """Let go of what the loop used, in its own thread, when it has ended."""

    @property
    def stopping(self) -> bool:
        """Tell whether stop() was called."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin the loop in a thread of its own."""
        if self._thread is None and not self.stopping:
            self.turned = time.monotonic()
            self._thread = threading.Thread(target=self._loop, name=f"mq_django {self.name}", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Begin the next round at once."""
        self._woken.set()

    def stop(self) -> None:
        """End the loop after its current round, without waiting for that."""
        self._stopping.set()
        self._woken.set()

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the loop to end, and tell whether it has."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def turns(self) -> Mapping[str, object]:
        """Return a number that changes while the loop turns, or None when it has ended; see Liveness."""
        if self._thread is None or self.stopping:
            return {}
        if not self._thread.is_alive():
            return {self.name: None}
        return {self.name: time.monotonic() if self._resting else self.turned}

    def each(self, items: Iterable[T], do: Callable[[T], object], *, called: Callable[[T], str]) -> None:
        """Call `do` with each item. What it raises for one is logged with the item's name; the others go on.

        Every service goes over its queues, topics and schedules by this, so that none of them can stop another.

        Raises:
            AWAY: the server is away, which concerns all items.
        """
        for item in items:
            self.turned = time.monotonic()
            try:
                do(item)
            except AWAY:
                raise
            except BaseException as error:  # noqa: BLE001 - as in _round: this keeps one item from the others
                self._complain(called(item), error)

    def _complain(self, what: str, error: BaseException) -> None:
        """Log trouble that comes back every round, now and then."""
        if not self._is_news(what, error):
            return
        if isinstance(error, StoreError):
            logger.warning("%s of %s cannot go on, and tries again: %s", self.name, what, error)
        else:
            logger.error("%s of %s failed; the others go on", self.name, what, exc_info=error)

    def _is_news(self, what: str, error: BaseException) -> bool:
        """Tell, and note, that such an error has not been logged for a while."""
        now, which = time.monotonic(), (what, type(error).__name__)
        if now - self._complained.get(which, -COMPLAIN_AGAIN) < COMPLAIN_AGAIN:
            return False
        self._complained[which] = now
        return True

    def _loop(self) -> None:
        try:
            while not self.stopping:
                self.turned = time.monotonic()
                pause = self._round()
                if pause > 0:
                    self._resting = True
                    self._woken.wait(pause)
                    self._resting = False
                self._woken.clear()
        finally:
            self.close()

    def _round(self) -> float:
        try:
            pause = self.run_once()
        except StoreError as error:
            return self._refused(error)
        except BaseException as error:
            # SystemExit as well: receivers of signals are called here, and a thread that ended would be missed.
            if self._is_news("", error):
                logger.exception("%s failed; it goes on", self.name)
            self._mend(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            return MAX_BACKOFF
        self._good += 1
        # One good round may be only the look for what trouble left, and the next be trouble again.
        if self._backoff and self._good > 1:
            logger.info("%s goes on", self.name)
            self._backoff = 0.0
        return pause

    def _refused(self, error: StoreError) -> float:
        if self.stopping:
            return 0.0
        now = time.monotonic()
        self._good = 0
        if not self._backoff or now - self._complained.get(("", ""), now) >= COMPLAIN_AGAIN:
            self._complained["", ""] = now
            logger.warning("Waiting for Redis (%s): %s", self.name, error)
        self._backoff = min(MAX_BACKOFF, self._backoff * 2 or FIRST_BACKOFF)
        self._mend(error)
        return self._backoff

    def _mend(self, error: Exception) -> None:
        try:
            self.recover(error)
        except BaseException:
            logger.exception("%s could not recover; it goes on", self.name)
