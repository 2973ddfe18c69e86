"""Run one delivery; the result is a value."""

import logging
import time
import traceback
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.consumers.board import FAILED, HANDLED, Board
from mq_django.consumers.settler import Settler
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import ACK, Ack, Bury, Expire, HandBack, Outcome, Retry
from mq_django.registry import Handler, find
from mq_django.signals import handler_finished, handler_started
from mq_django.stores.base import Settlement

logger = logging.getLogger(__name__)


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

    def begin(self, lane: int, delivery: Delivery) -> bool:
        """Note on the board that a lane runs a delivery; tell False when it must not run after all."""
        message = delivery.message
        if self._board.paused(self._number):
            self.settle(Settlement(delivery, HandBack()))
            return False
        if message.expires_ms is not None and time.time() * 1000 > message.expires_ms:
            handler = find(message.queue, message.name)
            self.settle(Settlement(delivery, Expire(), keeps_result=handler is not None and handler.keeps_result))
            return False
        self._board.run(lane, self._number, delivery.home, delivery.entry, time.monotonic())
        if handler_started.receivers:
            handler_started.send_robust(Handler, queue=message.queue, message=message)
        return True

    def end(self, delivery: Delivery, handler: Handler, returned: object, seconds: float) -> None:
        """Settle a delivery whose handler has returned."""
        self._finish(delivery, handler, self._outcome(handler, returned), seconds)

    def fail(self, delivery: Delivery, handler: Handler, error: BaseException, seconds: float) -> None:
        """Settle a delivery whose handler has raised; called while the error is being handled."""
        message, policy = delivery.message, handler.retry or self._config.retry
        told = f"{_path(type(error))}: {error}"
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, policy.bury_on):
            outcome: Outcome = Bury(told, trace)
        else:
            outcome = Retry(error=told, traceback=trace)
        self._finish(delivery, handler, outcome, seconds)
        logger.debug("Message %s failed at attempt %d", message.id, message.attempt, exc_info=error)

    def settle(self, settlement: Settlement) -> None:
        """Hand an outcome over without having run anything."""
        self._settler.add(settlement)

    @staticmethod
    def _outcome(handler: Handler, returned: object) -> Outcome:
        if isinstance(returned, Ack | Retry | Bury):
            return returned
        return Ack(returned) if handler.keeps_result else ACK

    def _finish(self, delivery: Delivery, handler: Handler, outcome: Outcome, seconds: float) -> None:
        delay_ms = 0
        if isinstance(outcome, Retry):
            outcome, delay_ms = self._again(delivery.message, handler, outcome)
        self._board.ended(HANDLED if isinstance(outcome, Ack) else FAILED, self._number, delivery.home, delivery.entry)
        self._settler.add(Settlement(delivery, outcome, delay_ms, int(seconds * 1e6), handler.keeps_result))
        if handler_finished.receivers:
            message = delivery.message
            handler_finished.send_robust(
                Handler, queue=message.queue, message=message, outcome=outcome, seconds=seconds
            )

    def _again(self, message: Message, handler: Handler, outcome: Retry) -> tuple[Outcome, int]:
        """Return the outcome of a retry, which is burial when the attempts are used up, and its delay."""
        policy = handler.retry or self._config.retry
        if policy.exhausted(message.attempt, default_max=self._config.max_attempts):
            logger.error(
                "Message %s (%s) of queue %s is buried after %d attempts: %s",
                *(message.id, message.name, message.queue, message.attempt, _one_line(outcome.error)),
            )
            return Bury(outcome.error, outcome.traceback, reason="attempts"), 0
        delay = outcome.delay
        delay_ms = policy.delay_ms(message.attempt) if delay is None else round(delay.total_seconds() * 1000)
        logger.warning(
            "Message %s (%s) of queue %s is tried again in %.1f s after attempt %d: %s",
            *(
                message.id,
                message.name,
                message.queue,
                delay_ms / 1000,
                message.attempt,
                _one_line(outcome.error),
            ),
        )
        return outcome, delay_ms


def _path(kind: type[BaseException]) -> str:
    """Return where an exception's class is to be found, as tracebacks show it."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _one_line(text: Any) -> str:
    """Return text without line breaks: a message must not be able to write log lines of its own."""
    return repr(str(text)[:300])
