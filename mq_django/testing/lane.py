"""The caller's thread, in the place of a consumer's threads and event loop."""

import math
from collections.abc import Iterable

from asgiref.sync import sync_to_async

from mq_django.consumers.worker.coroutine_lane import CoroutineLane
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.lanes import Argument, WorkItem
from mq_django.core.handler_options import MAX_BATCH
from mq_django.registry import Handler
from mq_django.testing.savepoints import Savepoints


class UnsharedState:
    """Stands for the memory that a consumer shares with its supervisor: see `RunningState` for each method.

    There is no supervisor, and a paused queue delivers nothing.
    """

    def run(self, lane: int, queue: int, stream: int, entry: bytes, since: float, deadline: float = math.inf) -> None:
        """See RunningState.run()."""

    def run_batch(
        self, lane: int, row: int, receipts: Iterable[tuple[int, int, bytes]], since: float, deadline: float
    ) -> None:
        """See RunningState.run_batch()."""

    def largest_batch(self) -> int:
        """See RunningState.largest_batch()."""
        return MAX_BATCH

    def idle(self, lane: int) -> None:
        """See RunningState.idle()."""

    def ended(self, state: int, queue: int, stream: int, entry: bytes) -> None:
        """See RunningState.ended()."""

    def batch_handled(self, row: int, count: int) -> None:
        """See RunningState.batch_handled()."""

    def holds(self, queue: int, read_at: float) -> bool:
        """See RunningState.holds()."""
        return True

    def may_run(self, queue: int, read_at: float) -> bool:
        """See RunningState.may_run()."""
        return True


class CallerLane:
    """Runs functions in the caller's thread. Their timeouts do not apply, because nothing could interrupt them."""

    number = 0
    job: WorkItem | None = None
    cancelled = False

    def __init__(self, databases: Databases) -> None:
        self.databases = databases

    def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """See ThreadLane.call()."""
        savepoints = Savepoints()
        try:
            return handler.call(argument)
        finally:
            savepoints.leave()


class CallerCoroutineLane(CoroutineLane):
    """Runs coroutine functions, one at a time. Their database operations are in the caller's thread."""

    def __init__(self, databases: Databases) -> None:
        super().__init__(0, is_alone=lambda: True)
        self.databases = databases

    async def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """See LoopLane.call()."""
        savepoints = await sync_to_async(Savepoints)()
        try:
            return await super().call(handler, argument, timeout)
        finally:
            await sync_to_async(savepoints.leave)()
