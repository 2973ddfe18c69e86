"""Receive signals as numbers in a pipe, so that the main loop handles them at a defined point."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

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
