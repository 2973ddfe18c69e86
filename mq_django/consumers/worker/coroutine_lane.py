"""A place of an event loop, which runs handlers that are coroutine functions, one after another."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context

from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.lanes import Argument, WorkItem
from mq_django.core.interrupts import place
from mq_django.errors import HandlerTimeout
from mq_django.registry import Handler


class CoroutineLane:
    """A place for one of the coroutines that run at once."""

    databases: Databases

    def __init__(self, number: int, is_alone: Callable[[], bool]) -> None:
        self.number = number
        self.is_alone = is_alone
        self.job: WorkItem | None = None
        self.task: asyncio.Task[None] | None = None
        #: Somebody has cancelled what it runs; the blocks in which it is not interrupted.
        self.cancelled = self._given_up = False
        self._guards = 0
        self._is_calling = False
        #: The context of all its tasks.
        self._context: Context | None = None

    def context(self, base: Context) -> Context:
        """Return a fresh context for a task, in which the handler finds this place."""
        if self._context is None:
            self._context = base.copy()
            self._context.run(place.set, self)
        return self._context.copy()

    async def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """Call a coroutine function; raise HandlerTimeout when it takes longer than `timeout` seconds."""
        self._given_up, self._guards, self._is_calling = False, 0, True
        try:
            return await self._call(handler, argument, timeout)
        finally:
            self._is_calling = False
            if self.cancelled and self.task is not None:
                # What it awaits next belongs to the consumer.
                self.task.uncancel()

    def running(self) -> WorkItem | None:
        """Return what it runs, while the handler itself runs."""
        return self.job if self._is_calling else None

    def has_cancelled(self, *, force: bool) -> bool:
        """Return whether what it runs was cancelled already, with `force` by force."""
        return self._given_up if force else self.cancelled

    def cancel(self, job: WorkItem, *, force: bool) -> None:
        """Cancel the task of a job if that still runs; with `force` have its process replaced if it goes on."""
        task = self.task
        if task is not None:
            with suppress(RuntimeError):  # a handler has closed the loop
                task.get_loop().call_soon_threadsafe(self._cancel, job, force)

    def _cancel(self, job: WorkItem, force: bool) -> None:
        task = self.task
        if self.job is not job or task is None or not self._is_calling:
            return
        if force and not self._given_up:
            self._given_up = True
            job.executor.overdue(self.number, job.delivery, since=time.monotonic())
        if not self.cancelled:
            self.cancelled = True
            if not self._guards:
                task.cancel()

    def guard(self) -> None:
        """Begin a block in which the handler is not interrupted: see `uninterrupted`."""
        self._guards += 1

    def unguard(self) -> None:
        """End a block, and interrupt the handler if it was cancelled meanwhile."""
        self._guards -= 1
        if self._guards or not self.cancelled or not self._is_calling or self.task is None:
            return
        try:
            is_own = asyncio.current_task() is self.task
        except RuntimeError:
            is_own = False
        if is_own:
            raise asyncio.CancelledError
        # A task of the handler's own, or a thread that it waits for.
        self.task.get_loop().call_soon_threadsafe(self._cancel_task, self.task)

    def seal(self) -> None:
        """Let nothing cancel the task from now on: see `seal`."""
        self._is_calling = False

    def _cancel_task(self, task: "asyncio.Task[None]") -> None:
        if self.task is task and self._is_calling:
            task.cancel()

    @staticmethod
    async def _call(handler: Handler, argument: Argument, timeout: float | None) -> object:
        if timeout is None:
            return await handler.call(argument)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await handler.call(argument)
        except TimeoutError as error:
            if limit.expired():
                raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error
            raise
