"""Decide whether a delivery may run and what its outcome is, and pass that on."""

from collections.abc import Sequence
from datetime import timedelta

from mq_django import registry
from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import decide, retry_invalid, send, settled_as
from mq_django.consumers.outage import pool_hint
from mq_django.consumers.shared_state import FAILED, HANDLED, RETURNED, Receipt, SharedState
from mq_django.consumers.worker.breakers import Breakers, Cancels
from mq_django.consumers.worker.settler import Settler
from mq_django.core import clock
from mq_django.core.handler_options import Postponed
from mq_django.core.logs import get_logger
from mq_django.core.messages import (
    ACK,
    CANCEL,
    POSTPONED,
    Ack,
    Bury,
    Cancel,
    Delivery,
    Expire,
    HandBack,
    Outcome,
    Retry,
    StepDrop,
    with_texts,
)
from mq_django.core.retries import retry_after
from mq_django.core.texts import is_a, summary_of, traceback_of
from mq_django.middleware import handling_chain
from mq_django.registry import Handler
from mq_django.signals import handler_finished
from mq_django.stores.base import Settlement
from mq_django.stores.results import EXPIRED

logger = get_logger(__name__)

#: Makes a named tuple in half the time that its own constructor takes.
_new = tuple.__new__


class Executor:
    """The facts of a queue that running its deliveries needs.

    Args:
        config: of the queue.
        number: of the queue in this process.
        shared_state: says what this consumer holds, and whether the queue is paused.
        settler: gets the outcomes.
        cancels: the messages that are to be cancelled; None: none are.
    """

    def __init__(
        self,
        config: QueueConfig,
        number: int,
        shared_state: SharedState,
        settler: Settler,
        cancels: Cancels | None = None,
    ) -> None:
        self.config = config
        self.number = number
        self.state = shared_state
        self.settler = settler
        self.cancels = cancels
        self.reports = settler.reports
        if settler.breakers is not None and cancels is not None:
            settler.breakers.changed = cancels.forget
        kinds = registry.kinds(config.public_name)
        #: Runs a handler within all middleware, by whether the handler runs on the event loop; empty without
        #: middleware.
        self.chains = {kind: handling_chain(is_async=kind) for kind in kinds}

    def may_run(self, read_at: float) -> bool:
        """Return whether all deliveries that were read at a time may run, as nearly always. If not, see refusal()."""
        return self.state.may_run(self.number, read_at) and (self.cancels is None or not self.cancels.any)

    def refusal(self, delivery: Delivery) -> Outcome | None:
        """Return the outcome of a delivery that must not run now, or None. It is in the shared state already."""
        message = delivery.message
        if not self.state.may_run(self.number, delivery.read_at):
            return HandBack()
        if self.cancels is not None and message.id in self.cancels.ids:
            is_asked = self.cancels.has(delivery)
            if is_asked is None:
                return HandBack()
            if is_asked:
                return Cancel("Cancelled before it started")
        if delivery.probe and self.settler.breakers is None and self.cancels is not None:
            # Of a breaker that was opened by hand. Without one, no queue looks at each outcome.
            self.settler.breakers = Breakers(self.config)
            self.settler.breakers.changed = self.cancels.forget
        if message.expires_ms is not None and clock.now() * 1000 > message.expires_ms:
            return Expire() if self.config.on_expire == "discard" else Bury(EXPIRED, reason="expired")
        return None if self.cancels is None else self.cancels.held(delivery)

    def hand_back(self, delivery: Delivery) -> None:
        """Hand back a delivery that has not started."""
        self.settler.add(Settlement(delivery, HandBack()))

    def receipt(self, delivery: Delivery) -> Receipt:
        """Return the receipt of a delivery in the shared state."""
        return Receipt.of(self.number, delivery.stream, delivery.entry)

    def judge_error(self, delivery: Delivery, handler: Handler, error: BaseException, *, is_cancelled: bool) -> Outcome:
        """Return the outcome of a handler that has raised."""
        if is_cancelled:
            # Also if the interrupt has become another error on its way.
            return CANCEL
        if is_a(error, Postponed) or self.reports.is_interrupt(error):
            return POSTPONED
        if is_a(error, Retry) or is_a(error, Bury):
            return with_texts(error)
        policy = handler.retry or self.config.retry
        try:
            # The class decides, before any text is made.
            buries = issubclass(type(error), tuple(policy.bury_on))
        except BaseException as second:  # noqa: BLE001 - a project may extend RetryPolicy
            return retry_invalid(delivery, handler, second)
        text, trace = summary_of(error) + pool_hint(error), traceback_of(error)
        return Bury(text, trace) if buries else Retry(retry_after(error), text, trace)

    def decided(self, delivery: Delivery, handler: Handler, outcome: Outcome) -> Outcome:
        """Return the final outcome: a Retry without attempts left becomes a Bury, any other gets its delay."""
        if not isinstance(outcome, Retry):
            return outcome
        try:
            return decide(self.config, delivery.message, handler, outcome)
        except BaseException as error:  # noqa: BLE001 - a project may extend RetryPolicy
            # By the queue's policy, because the handler's may be the cause.
            return decide(self.config, delivery.message, None, retry_invalid(delivery, handler, error))

    def finish(
        self,
        delivery: Delivery,
        handler: Handler,
        outcome: Outcome,
        seconds: float,
        raised: BaseException | None,
        *,
        together: int = 1,
        uncharged: bool = False,
    ) -> Outcome:
        """Pass the outcome of a delivery that has run to the settler, and return its final form.

        Args:
            delivery, handler, outcome: what has run, and how it has ended.
            seconds, raised: how long it ran, and what it has raised.
            together: how many messages the call had.
            uncharged: the outcome is a Retry that counts as no attempt, and is logged by the caller.
        """
        micros = int(seconds * 1e6)
        if isinstance(outcome, Ack):
            kind = type(outcome)
            self.state.ended(HANDLED if kind is Ack else RETURNED, self.number, delivery.stream, delivery.entry)
            # The handler of a dropped step has only asked for its run.
            ran = None if kind is StepDrop else micros
            values = (delivery, outcome, 0, ran, handler.keeps_result, False, False, together, None)
            self.settler.add(_new(Settlement, values))
        elif isinstance(outcome, HandBack) and not outcome.suspect:
            # Interrupted at a stop: it has neither failed nor ended.
            self.settler.add(Settlement(delivery, outcome))
        elif uncharged:
            assert isinstance(outcome, Retry)
            assert isinstance(outcome.delay, timedelta)
            delay_ms = round(outcome.delay.total_seconds() * 1000)
            failure = self.settler.counted_failure(delivery, handler, outcome, raised)
            self.settler.add(Settlement(delivery, outcome, delay_ms, micros, uncharged=True, failure=failure))
        else:
            failure = self.settler.counted_failure(delivery, handler, outcome, raised)
            outcome = self.decided(delivery, handler, outcome)
            if outcome is CANCEL:
                logger.info("Handler %s was cancelled: message %s", handler.where, delivery.message.id)
            if failure:
                self.state.ended(RETURNED, self.number, delivery.stream, delivery.entry)
                self.settler.add(Settlement(delivery, outcome, micros=micros, failure=failure))
                # What becomes of it is decided when it is settled, by what all consumers have seen.
                outcome = Retry(error=failure.error)
            else:
                self.state.ended(FAILED, self.number, delivery.stream, delivery.entry)
                self.settler.add(settled_as(delivery, outcome, handler, micros=micros, exception=raised))
        if handler_finished.receivers:
            message = delivery.message
            send(handler_finished, queue=message.queue, message=message, outcome=outcome, seconds=seconds)
        return outcome

    def finish_ack(self, delivery: Delivery, seconds: float, *, keeps_result: bool) -> None:
        """Pass on that the only message of a call is handled and has no result, and that no signal is sent of it."""
        self.state.ended(HANDLED, self.number, delivery.stream, delivery.entry)
        values = (delivery, ACK, 0, int(seconds * 1e6), keeps_result, False, False, 1, None)
        self.settler.add(_new(Settlement, values))

    def finish_acks(self, row: int, deliveries: Sequence[Delivery], seconds: float) -> None:
        """Pass on that all messages of a call are handled, each with its share of the seconds.

        If there are several, the row of the shared state has their receipts.
        """
        micros, together = int(seconds * 1e6), len(deliveries)
        if together > 1:
            self.state.batch_handled(row, together)
        else:
            self.state.ended(HANDLED, self.number, deliveries[0].stream, deliveries[0].entry)
        self.settler.add_all(
            [_new(Settlement, (each, ACK, 0, micros, False, False, False, together, None)) for each in deliveries]
        )
        if handler_finished.receivers:
            for each in deliveries:
                send(handler_finished, queue=each.message.queue, message=each.message, outcome=ACK, seconds=seconds)
