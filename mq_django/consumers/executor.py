"""Run one delivery; the result is a value."""

import math
import time
import traceback

from mq_django.conf import QueueConfig
from mq_django.consumers.board import FAILED, HANDLED, Board
from mq_django.consumers.settler import Settler
from mq_django.consumers.verdicts import again
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import ACK, Ack, Bury, Expire, HandBack, Outcome, Retry
from mq_django.registry import Handler, find
from mq_django.signals import handler_finished, handler_started
from mq_django.stores.base import Settlement

logger = get_logger(__name__)


#: What a handler may return to decide by itself. Written as a union in the function, it would be built a message.
_OUTCOMES = (Ack, Retry, Bury)


class Executor:
    """Runs the deliveries of one queue in any thread, and hands their outcomes to its settler."""

    def __init__(self, config: QueueConfig, number: int, board: Board, settler: Settler) -> None:
        self._config = config
        self._number = number
        self._board = board
        self._settler = settler
        self._default_timeout = config.timeout.total_seconds() if config.timeout else None

    def timeout(self, handler: Handler) -> float | None:
        """Return how many seconds a handler may run, or None."""
        return handler.timeout.total_seconds() if handler.timeout else self._default_timeout

    def begin(self, lane: int, delivery: Delivery, timeout: float | None = None) -> float:
        """Note on the board that a lane runs a delivery; return the moment, or 0.0 when it must not run after all."""
        message, now = delivery.message, time.monotonic()
        deadline = math.inf if timeout is None else now + timeout
        # Noted first, looked at second: the supervisor gives back what a stopped process does not run, and says so
        # before. Past held_until others may have it already: by a clock that is read now, because this thread may have
        # been stopped since. A hand-back is fenced.
        self._board.run(lane, self._number, delivery.home, delivery.entry, now, deadline)
        if time.monotonic() > self._board.held_until(self._number) or self._board.paused(self._number):
            outcome: Outcome = HandBack()
        elif message.expires_ms is not None and time.time() * 1000 > message.expires_ms:
            outcome = Expire()
        else:
            if handler_started.receivers:
                handler_started.send_robust(Handler, queue=message.queue, message=message)
            return now
        self._board.idle(lane)
        handler = find(message.queue, message.name)
        keeps_result = handler is not None and handler.keeps_result
        self._settler.add(Settlement(delivery, outcome, keeps_result=keeps_result))
        return 0.0

    def end(self, delivery: Delivery, handler: Handler, returned: object, seconds: float) -> None:
        """Settle a delivery whose handler has returned."""
        self._finish(delivery, handler, self._outcome(handler, returned), seconds)

    def fail(self, delivery: Delivery, handler: Handler, error: BaseException, seconds: float) -> None:
        """Settle a delivery whose handler has raised."""
        message, policy = delivery.message, handler.retry or self._config.retry
        told = f"{_path(type(error))}: {error}"
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, policy.bury_on):
            outcome: Outcome = Bury(told, trace)
        else:
            outcome = Retry(error=told, traceback=trace)
        self._finish(delivery, handler, outcome, seconds)
        logger.debug("Message %s failed at attempt %d", message.id, message.attempt, exc_info=error)

    def give_up(self, delivery: Delivery, handler: Handler, error: BaseException) -> None:
        """Settle a delivery that could not be settled by what its handler returned or raised.

        For what only user code makes possible, such as an exception whose text raises.
        """
        logger.error("Message %s cannot be settled as its handler wants", delivery.message.id, exc_info=error)
        outcome = Retry(error=f"{_path(type(error))} while its outcome was settled")
        self._finish(delivery, handler, outcome, 0.0)

    def settle(self, settlement: Settlement) -> None:
        """Hand an outcome over without having run anything."""
        self._settler.add(settlement)

    @staticmethod
    def _outcome(handler: Handler, returned: object) -> Outcome:
        if returned is ACK or isinstance(returned, _OUTCOMES):
            return returned
        return Ack(returned) if handler.keeps_result else ACK

    def _finish(self, delivery: Delivery, handler: Handler, outcome: Outcome, seconds: float) -> None:
        delay_ms = 0
        if isinstance(outcome, Retry):
            outcome, delay_ms = again(self._config, delivery.message, handler, outcome)
        self._board.ended(HANDLED if isinstance(outcome, Ack) else FAILED, self._number, delivery.home, delivery.entry)
        self._settler.add(Settlement(delivery, outcome, delay_ms, int(seconds * 1e6), handler.keeps_result))
        if handler_finished.receivers:
            message = delivery.message
            handler_finished.send_robust(
                Handler, queue=message.queue, message=message, outcome=outcome, seconds=seconds
            )


def _path(kind: type[BaseException]) -> str:
    """Return where an exception's class is to be found, as tracebacks show it."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
