"""The loop of everything that runs beside the handlers, written once."""

import logging
import threading
import time

from mq_django.errors import StoreError

logger = logging.getLogger(__name__)

#: Seconds before a service tries again that Redis refused: first, and at most.
FIRST_BACKOFF = 0.1
MAX_BACKOFF = 2.0


class Service:
    """A thread that repeats `run_once`. Start and stop may be called twice, and stop before start."""

    #: Named in logs and in the thread.
    name = "service"

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._backoff = 0.0
        #: Seconds on the monotonic clock of the latest turn of the loop, for the watchdog.
        self.turned = time.monotonic()

    def run_once(self) -> float:
        """Do one round, and return the seconds until the next unless woken."""
        raise NotImplementedError

    def recover(self, error: StoreError) -> None:
        """Mend what an error of Redis has left, before the next round."""

    def close(self) -> None:
        """Let go of what the loop used, in its own thread, when it has ended."""

    @property
    def stopping(self) -> bool:
        """Tell whether stop() was called."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin the loop in a thread of its own."""
        if self._thread is None and not self.stopping:
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

    def _loop(self) -> None:
        try:
            while not self.stopping:
                self.turned = time.monotonic()
                pause = self._round()
                if pause > 0:
                    self._woken.wait(pause)
                self._woken.clear()
        finally:
            self.close()

    def _round(self) -> float:
        try:
            pause = self.run_once()
        except StoreError as error:
            return self._refused(error)
        except Exception:
            logger.exception("%s failed; it goes on", self.name)
            return MAX_BACKOFF
        self._backoff = 0.0
        return pause

    def _refused(self, error: StoreError) -> float:
        if self.stopping:
            return 0.0
        if not self._backoff:
            # Once an outage: the next line about it is that it is over, or nothing.
            logger.warning("%s waits for Redis: %s", self.name, error)
        self._backoff = min(MAX_BACKOFF, self._backoff * 2 or FIRST_BACKOFF)
        self.recover(error)
        return self._backoff
