"""Signals as numbers in a pipe, so that the main loop handles them between two looks and not in between."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

#: What ends the process.
STOPS = frozenset({signal.SIGTERM, signal.SIGINT})
#: Windows, where this module is imported and not used, has only those.
_HANDLED = STOPS | {signal.Signals[name] for name in ("SIGHUP", "SIGCHLD") if name in signal.Signals.__members__}


class SignalPipe:
    """Receives the process's signals, and rings of other threads. Without effect on signals outside the main thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # With --autoreload this is not the main thread, and the reloader ends the process by itself.
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._main:
            # Python handlers do nothing: whatever lock they took, the code they interrupt may hold it.
            for number in _HANDLED:
                signal.signal(number, _ignore)
            signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            # exec() keeps them blocked since hold().
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main:
            # The handlers stay: a second SIGTERM in the last moment changes nothing about the exit code. So does the
            # pipe: a thread that outlives its supervisor may still ring.
            signal.set_wakeup_fd(-1)

    def wait(self, seconds: float) -> Iterator[int]:
        """Yield the numbers of the signals that have come, and 0 for each ring; wait for the first so long."""
        select.select([self._read], [], [], seconds)
        yield from self._take()

    def ring(self) -> None:
        """End a wait(), from any thread."""
        with suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def hold(self) -> bool:
        """Block signals for an exec(), which keeps them blocked; return False if one that stops has come before."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        return STOPS.isdisjoint(self._take())

    def _take(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self._read, 64)
        return b""


def _ignore(number: int, frame: FrameType | None) -> None:
    """Handle a signal by doing nothing: its number comes by the pipe."""
