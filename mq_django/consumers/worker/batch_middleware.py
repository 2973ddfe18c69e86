"""Run the middleware around a call with a batch."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from mq_django.consumers.worker.batch_endings import BatchEnd, judge_batch, judge_batch_error
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.lanes import LoopLane, ThreadLane
from mq_django.core.batch_outcomes import outcomes_of, worst_of
from mq_django.core.exceptions import repr_of
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import Ack, Bury, Outcome, Retry
from mq_django.middleware import Handling
from mq_django.registry import Handler


class BatchHandling:
    """One call with a batch, for middleware.

    Middleware gets one outcome for the call. If it returns that, each message has its own; if it returns another one,
    that is the outcome of all.

    Args:
        executor: of the queue.
        handler: is called.
        first: the delivery of the first message.
        messages: of the call.
    """

    def __init__(self, executor: Executor, handler: Handler, first: Delivery, messages: list[Message]) -> None:
        self._executor = executor
        self._handler = handler
        self._first = first
        self._messages = messages
        self._end: BatchEnd | None = None
        #: What middleware gets.
        self._shown: Outcome | None = None
        self._handling: Handling | None = None

    def around(self, lane: ThreadLane, call: Callable[[], object]) -> Handling:
        """Return what middleware gets of a call in this thread."""

        def run(handling: Handling) -> Outcome:
            try:
                self._end = judge_batch(self._executor, self._handler, call(), len(self._messages))
            except BaseException as error:  # noqa: BLE001 - middleware gets the outcome
                self._end = self._failed(lane, error)
            return self._show(handling, self._end)

        return self._made(run)

    def around_coroutine(self, lane: LoopLane, call: Callable[[], Awaitable[object]]) -> Handling:
        """Return what middleware gets of a call on this event loop."""

        async def run(handling: Handling) -> Outcome:
            try:
                self._end = judge_batch(self._executor, self._handler, await call(), len(self._messages))
            except BaseException as error:  # noqa: BLE001 - middleware gets the outcome
                self._end = self._failed(lane, error)
            return self._show(handling, self._end)

        return self._made(run)

    def end_of(self, returned: object) -> BatchEnd:
        """Return the end of the call by what the middleware has returned."""
        if self._handling is not None:
            # Its traceback refers to frames that refer to the handling.
            self._handling.exception = None
        if self._end is not None and returned is self._shown:
            return self._end
        if not isinstance(returned, Ack | Retry | Bury):
            raise TypeError(f"Middleware must return the outcome of handle(handling), not {repr_of(returned, 200)}")
        return BatchEnd(
            outcomes_of(returned, len(self._messages)), None, None if self._end is None else self._end.raised
        )

    def _made(self, run: Callable[[Handling], object]) -> Handling:
        first = self._messages[0]
        self._handling = Handling(first.queue, first, self._handler.where, run, batch=tuple(self._messages))
        return self._handling

    def _failed(self, lane: ThreadLane | LoopLane, error: BaseException) -> BatchEnd:
        return judge_batch_error(self._executor, lane, self._first, self._handler, error, len(self._messages))

    def _show(self, handling: Handling, end: BatchEnd) -> Outcome:
        handling.exception = end.raised
        if end.outcomes is not None:
            shown = self._executor.decided(self._first, self._handler, worst_of(end.outcomes))
        elif len(self._messages) == 1:
            assert end.failure is not None
            shown = self._executor.decided(self._first, self._handler, end.failure)
        else:
            # It is called again at once, with halves of the messages.
            shown = Retry(timedelta(0), str(getattr(end.failure, "error", "")), getattr(end.failure, "traceback", ""))
        self._shown = shown
        return shown
