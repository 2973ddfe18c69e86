"""One thread of a consumer, which runs handlers that are functions, one after another."""

import ctypes
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue

from django.core.cache import caches
from django.db import connections

from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.lanes import Argument, WorkItem
from mq_django.core import handler_context
from mq_django.core.interrupts import HandlerCancelled, place
from mq_django.core.logs import get_logger
from mq_django.errors import HandlerTimeout
from mq_django.registry import Handler

logger = get_logger(__name__)


def make_caches() -> None:
    """Create the thread's cache clients, so that all its messages share them and their connections."""
    for alias in caches:
        try:
            caches[alias]
        except Exception:
            # Code that uses the cache gets the error.
            logger.debug("Cannot create cache %s", alias, exc_info=True)


class HandlerThread:
    """A thread that runs one handler at a time."""

    databases: Databases

    def __init__(
        self, number: int, jobs: "SimpleQueue[WorkItem | None]", shared_state: SharedState, on_low: Callable[[], None]
    ) -> None:
        self.number = number
        self._jobs = jobs
        self._shared_state = shared_state
        self._on_low = on_low
        #: The deadline of the running handler on the monotonic clock, or None.
        self._deadline: float | None = None
        self._lock = threading.Lock()
        #: What it runs, or has run last.
        self.job: WorkItem | None = None
        #: Whether the handler itself runs now and can be interrupted.
        self._is_calling = False
        #: Somebody has cancelled what it runs; the blocks in which it is not interrupted.
        self.cancelled = self._given_up = False
        self.guards = 0
        self.busy = False
        #: How many deliveries have ended here.
        self.ended = 0
        self.thread = threading.Thread(target=self._loop, name=f"mq_django lane {number}", daemon=True)

    def _loop(self) -> None:
        get = self._jobs.get_nowait
        place.set(self)
        self.databases = Databases.of_this_thread()
        make_caches()
        handler_context.enter()
        self.busy = True
        try:
            while True:
                try:
                    job = get()
                except Empty:
                    job = self._wait()
                if job is None:
                    return
                # In a copied context, so that locale, time zone and context variables end with the message.
                self.job = job
                try:
                    copy_context().run(job.executor.run, self, job.delivery, job.handler)
                except BaseException as error:  # noqa: BLE001 - the thread lives, and the delivery has an outcome
                    # A batch has put itself in the place of the job.
                    self.job.executor.rescue(job.delivery, job.handler, error)
                self.ended += 1
                self._on_low()
        finally:
            self._shared_state.idle(self.number)
            connections.close_all()

    def _wait(self) -> WorkItem | None:
        self.busy = False
        self._shared_state.idle(self.number)
        if self.databases.held:
            self.databases.refresh()
        self._on_low()
        job = self._jobs.get()
        self.busy = True
        return job

    def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """Call a handler; raise HandlerTimeout when it takes longer than `timeout` seconds."""
        returned, ended = None, False
        self._given_up, self.guards = False, 0
        try:
            self._deadline = None if timeout is None else time.monotonic() + timeout
            self._is_calling = True
            try:
                returned = handler.call(argument)
                ended = True
            finally:
                # An interrupt that was sent under the lock arrives before this function returns.
                with self._lock:
                    self._is_calling = False
        except HandlerTimeout as error:
            if timeout is None:
                raise
            raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error
        except HandlerCancelled:
            # What has ended before it is interrupted is handled.
            if not ended:
                raise
        return returned

    def interrupt_if_late(self, now: float) -> None:
        """Raise HandlerTimeout in the running handler if it is past its deadline."""
        # Under the lock, so that the error never reaches the next delivery of this lane.
        with self._lock:
            if self._is_calling and self._deadline is not None and now > self._deadline:
                self._interrupt(HandlerTimeout)

    def running(self) -> WorkItem | None:
        """Return what it runs, while the handler itself runs."""
        return self.job if self._is_calling else None

    def has_cancelled(self, *, force: bool) -> bool:
        """Return whether what it runs was cancelled already, with `force` by force."""
        return self._given_up if force else self.cancelled

    def cancel(self, job: WorkItem, *, force: bool) -> None:
        """Interrupt the handler of a job if that still runs; with `force` have its process replaced if it goes on."""
        with self._lock:
            if not self._is_calling or self.job is not job:
                return
            if force and not self._given_up:
                self._given_up = True
                job.executor.overdue(self.number, job.delivery, since=time.monotonic())
            if not self.cancelled:
                self.cancelled = True
                if not self.guards:
                    self._interrupt(HandlerCancelled)

    def guard(self) -> None:
        """Begin a block in which the handler is not interrupted: see `uninterrupted`."""
        with self._lock:
            self.guards += 1

    def unguard(self) -> None:
        """End a block, and interrupt the handler if it was cancelled meanwhile."""
        with self._lock:
            self.guards -= 1
            if self.guards or not self.cancelled or not self._is_calling:
                return
            if threading.get_ident() != self.thread.ident:
                self._interrupt(HandlerCancelled)
                return
        raise HandlerCancelled

    def end_timeout(self) -> None:
        """Let the timeout not interrupt the handler, which watches it itself."""
        with self._lock:
            self._deadline = None

    def seal(self) -> None:
        """Let nothing interrupt the handler from now on: see `seal`."""
        # An interrupt that was sent under the lock arrives before this function returns.
        with self._lock:
            self._is_calling = False

    def _interrupt(self, error: type[BaseException]) -> None:
        """Raise an error in the running handler. Called with the lock held."""
        # Once: the next one could arrive after the handler has ended.
        self._deadline = None
        if self.thread.ident:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread.ident), ctypes.py_object(error))
