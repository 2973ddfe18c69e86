"""Run a handler with `@exactly_once` for the messages of a batch."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.consumers.worker.coroutine_in_thread import call_in_thread
from mq_django.consumers.worker.once_call import OnceCall
from mq_django.core.batch_outcomes import outcomes_of
from mq_django.core.exceptions import repr_of
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import ACK, Ack, Bury, Outcome, Retry
from mq_django.errors import InvalidOutcomes
from mq_django.inbox.identity import Identity
from mq_django.inbox.once import Once
from mq_django.inbox.once_together import OnceTogether
from mq_django.inbox.retention import outcome_of_forgotten
from mq_django.registry import Handler

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
