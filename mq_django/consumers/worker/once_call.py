"""Run a handler with `@exactly_once` for a delivery that may be a repeat."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import InterfaceError, OperationalError

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import RAN_AT_DEATH, UNDECIDED
from mq_django.consumers.worker.loops import call_in_thread
from mq_django.core.attempts import read_history
from mq_django.core.batches import outcomes_of
from mq_django.core.exactly_once import Postponed
from mq_django.core.keys import LOG
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import ACK, Ack, Bury, Outcome, Retry, outcome_of
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidOutcomes
from mq_django.inbox.entries import Identity
from mq_django.inbox.once import BUSY_PAUSE, Once, OnceTogether, is_forgotten, oldest_ms, outcome_of_forgotten
from mq_django.inbox.passes import FIRST
from mq_django.registry import Handler

logger = get_logger(__name__)


def once_call(handler: Handler, delivery: Delivery, config: QueueConfig) -> Handler:
    """Return a handler that runs a delivery once, in a thread.

    Args:
        handler: with `@exactly_once`.
        delivery: that it is for.
        config: of the queue or partition.
    """
    return replace(handler, call=OnceCall(handler, delivery, config), is_async=False)


class OnceCall:
    """The call of a handler for one delivery. See once_call()."""

    def __init__(self, handler: Handler, delivery: Delivery, config: QueueConfig) -> None:
        self._handler = handler
        self._delivery = delivery
        self._config = config

    def __call__(self, message: Message) -> Outcome:
        """Handle the message, or return the outcome that it has had."""
        handler = self._handler
        assert handler.once is not None
        once = Once(handler.once, Identity.of(message, self._config.name, handler.name))
        try:
            if self._is_last_look():
                return once.look() or self._lost()
            if self.is_uncertain(once):
                return outcome_of_forgotten(once)
            return once.run(partial(self._outcome, message))
        except (OperationalError, InterfaceError) as error:
            if once.has_started or message.attempt == 1:
                raise
            # An earlier attempt may have been handled, and this one has not started, so it is not charged.
            logger.warning("Message %s is handed back: database %s failed: %s", message.id, handler.once, error)
            time.sleep(BUSY_PAUSE)
            raise Postponed from error

    def _outcome(self, message: Message) -> Outcome:
        handler = self._handler
        return outcome_of(self._returned(message), keeps_result=handler.keeps_result)

    def _returned(self, message: Message) -> Any:
        call: Callable[[Message], Any] = self._handler.call
        if not self._handler.is_async:
            return call(message)
        limit = self._handler.timeout or self._config.timeout
        return call_in_thread(call, message, None if limit is None else limit.total_seconds())

    def _is_last_look(self) -> bool:
        """Return whether the attempts were used up by an earlier delivery, whose process has died.

        Its supervisor does not know whether the transaction was committed. This delivery only finds that out.
        """
        attempt = self._delivery.message.attempt
        policy = self._handler.retry or self._config.retry
        if attempt == 1 or not policy.exhausted(attempt - 1, default_max=self._config.max_attempts):
            return False
        # RSMQ's format has no history.
        history = read_history(self._delivery.history)
        return not history or history[-1].error in UNDECIDED

    def _lost(self) -> Bury:
        history = read_history(self._delivery.history)
        error = history[-1].error if history else RAN_AT_DEATH
        return Bury(error, reason="crashed" if error == RAN_AT_DEATH else "attempts")

    def is_uncertain(self, once: Once) -> bool:
        """Return whether this may be a repeat of a delivery whose row is deleted by now."""
        message = self._delivery.message
        if not is_forgotten(message.published_ms, FIRST):
            return False
        if message.attempt > 1 and not self._began_lately():
            return True
        if self._delivery.stream != LOG:
            return False
        found = once.current_pass()
        return found.is_sought and is_forgotten(message.published_ms, found)

    def _began_lately(self) -> bool:
        """Return whether the first attempt since the last redrive is not older than the inbox."""
        earlier = self._delivery.message.attempt - 1
        history = read_history(self._delivery.history)[-earlier:]
        began = history[0].started_ms or history[0].finished_ms if len(history) == earlier else None
        return began is not None and began >= oldest_ms()


ONE_TRANSACTION = (
    "The messages of a batch with @exactly_once are handled in one transaction, so their handler returns None or one "
    "outcome for all, not {returned}"
)


def once_batch_call(handler: Handler, deliveries: Sequence[Delivery], config: QueueConfig) -> Handler:
    """Return a handler that runs these deliveries once, in a thread.

    Args:
        handler: with `@exactly_once` and a batch.
        deliveries: of one call, each at its first attempt.
        config: of the queue, or of one of its partitions.
    """
    return replace(handler, call=OnceBatchCall(handler, deliveries, config), is_async=False)


def alone(handler: Handler) -> Handler:
    """Return a handler that gets one message and passes it on as a batch of one.

    For a message at a later attempt, of which the inbox has to say what became of the earlier one.
    """
    call: Callable[[list[Message]], Any] = handler.call

    async def run_coroutine(message: Message) -> Outcome:
        made: Awaitable[Any] = call([message])
        return _outcome_of(await made)

    def run(message: Message) -> Outcome:
        return _outcome_of(call([message]))

    return replace(handler, call=run_coroutine if handler.is_async else run, batch=0, linger=0.0)


class OnceBatchCall:
    """The call of a handler for some deliveries. See once_batch_call()."""

    def __init__(self, handler: Handler, deliveries: Sequence[Delivery], config: QueueConfig) -> None:
        self._handler = handler
        self._deliveries = deliveries
        self._config = config

    def __call__(self, messages: Sequence[Message]) -> list[Outcome] | None:
        """Handle those messages that were not handled before, and return the outcomes of all; None: all are acked."""
        handler = self._handler
        assert handler.once is not None
        identities = [Identity.of(message, self._config.name, handler.name) for message in messages]
        handled = OnceTogether(handler.once, identities).handled()
        outcomes: list[Outcome] = [ACK] * len(messages)
        rest: dict[Identity, int] = {}
        for at, identity in enumerate(identities):
            if identity in handled:
                continue
            once = Once(handler.once, identity)
            if OnceCall(handler, self._deliveries[at], self._config).is_uncertain(once):
                outcomes[at] = outcome_of_forgotten(once)
            else:
                # Two messages with the same identity are one.
                rest.setdefault(identity, at)
        if rest:
            chosen = [messages[at] for at in rest.values()]
            outcome = OnceTogether(handler.once, list(rest)).run(partial(self._outcome, chosen))
            for at, identity in enumerate(identities):
                if identity in rest:
                    outcomes[at] = outcome
        return None if all(outcome is ACK for outcome in outcomes) else outcomes

    def _outcome(self, messages: list[Message]) -> Outcome:
        handler = self._handler
        call: Callable[[list[Message]], Any] = handler.call
        if not handler.is_async:
            return _outcome_of(call(messages))
        limit = handler.timeout or self._config.timeout
        return _outcome_of(call_in_thread(call, messages, None if limit is None else limit.total_seconds()))


def _outcome_of(returned: object) -> Outcome:
    """Return the outcome of all messages of a call by what its handler has returned.

    Raises:
        InvalidOutcomes: it is something else than None or one outcome.
    """
    if returned is not None and not isinstance(returned, Ack | Retry | Bury):
        raise InvalidOutcomes(ONE_TRANSACTION.format(returned=repr_of(returned, 200)))
    return outcomes_of(returned, 1)[0]
