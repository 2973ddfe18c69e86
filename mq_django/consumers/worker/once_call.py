"""Run a handler with `@exactly_once` for deliveries that may be repeats."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.db import InterfaceError, OperationalError

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import RAN_AT_DEATH, UNDECIDED
from mq_django.core.handler_options import Postponed
from mq_django.core.keys import LOG
from mq_django.core.logs import get_logger
from mq_django.core.messages import ACK, Ack, Bury, Delivery, Outcome, Retry, outcome_of, outcomes_of
from mq_django.core.retries import read_history
from mq_django.core.running_handler import interruptible
from mq_django.core.texts import repr_of
from mq_django.errors import HandlerTimeout, InvalidOutcomes
from mq_django.inbox.entries import Identity
from mq_django.inbox.once import BUSY_PAUSE, FIRST, Once, OnceTogether, is_forgotten, oldest_ms, outcome_of_forgotten
from mq_django.registry import Handler

logger = get_logger(__name__)


ONE_TRANSACTION = (
    "The messages of a batch with @exactly_once are handled in one transaction, so their handler returns None or one "
    "outcome for all, not {returned}"
)


class OnceCall:
    """What is called in the place of a handler with `@exactly_once`, in a thread.

    Args:
        handler: with `@exactly_once`.
        config: of the queue, or of one of its partitions.
    """

    def __init__(self, handler: Handler, config: QueueConfig) -> None:
        assert handler.once is not None
        self._handler = handler
        self._using = handler.once
        self._config = config

    def __call__(self, deliveries: Sequence[Delivery]) -> Outcome | list[Outcome] | None:
        """Handle the messages of a call, or return the outcomes that they have had; None: all are acked.

        Several are at their first attempt. A later one is alone: the inbox has to say what became of the earlier ones.
        """
        return self._handle(deliveries[0]) if len(deliveries) == 1 else self._handle_all(deliveries)

    def _handle(self, delivery: Delivery) -> Outcome:
        message = delivery.message
        once = Once(self._using, self._identity_of(delivery))
        try:
            if self._is_last_check(delivery):
                return once.earlier_outcome() or _lost(delivery)
            if self._is_uncertain(once, delivery):
                return outcome_of_forgotten(once)
            return once.run(partial(self._outcome, [delivery]))
        except (OperationalError, InterfaceError) as error:
            if once.has_started or message.attempt == 1:
                raise
            # An earlier attempt may have been handled, and this one has not started, so it is not charged.
            logger.warning("Message %s is handed back: database %s failed: %s", message.id, self._using, error)
            time.sleep(BUSY_PAUSE)
            raise Postponed from error

    def _handle_all(self, deliveries: Sequence[Delivery]) -> list[Outcome] | None:
        """Handle those messages that were not handled before, in one transaction."""
        identities = [self._identity_of(delivery) for delivery in deliveries]
        handled = OnceTogether(self._using, identities).handled()
        outcomes: list[Outcome] = [ACK] * len(deliveries)
        rest: dict[Identity, int] = {}
        for at, identity in enumerate(identities):
            if identity in handled:
                continue
            once = Once(self._using, identity)
            if self._is_uncertain(once, deliveries[at]):
                outcomes[at] = outcome_of_forgotten(once)
            else:
                # Two messages with the same identity are one.
                rest.setdefault(identity, at)
        if rest:
            chosen = [deliveries[at] for at in rest.values()]
            outcome = OnceTogether(self._using, list(rest)).run(partial(self._outcome, chosen))
            for at, identity in enumerate(identities):
                if identity in rest:
                    outcomes[at] = outcome
        return None if all(outcome is ACK for outcome in outcomes) else outcomes

    def _identity_of(self, delivery: Delivery) -> Identity:
        return Identity.of(delivery.message, self._config.name, self._handler.name)

    def _outcome(self, deliveries: Sequence[Delivery]) -> Outcome:
        """Call the handler, and return the outcome of all messages.

        Raises:
            InvalidOutcomes: it has returned something else than None or one outcome for several messages.
        """
        handler, messages = self._handler, [delivery.message for delivery in deliveries]
        call: Callable[[Any], Any] = handler.call
        if handler.is_async:
            limit = handler.timeout or self._config.timeout
            call = partial(call_in_thread, call, None if limit is None else limit.total_seconds())
        returned = call(messages if handler.batch else messages[0])
        if not handler.batch:
            return outcome_of(returned, keeps_result=handler.keeps_result)
        if returned is not None and not isinstance(returned, Ack | Retry | Bury):
            raise InvalidOutcomes(ONE_TRANSACTION.format(returned=repr_of(returned, 200)))
        return outcomes_of(returned, 1)[0]

    def _is_last_check(self, delivery: Delivery) -> bool:
        """Return whether the attempts were used up by an earlier delivery, whose process has died.

        Its supervisor does not know whether the transaction was committed. This delivery only finds that out.
        """
        attempt = delivery.message.attempt
        policy = self._handler.retry or self._config.retry
        if attempt == 1 or not policy.exhausted(attempt - 1, default_max=self._config.max_attempts):
            return False
        # RSMQ's format has no history.
        history = read_history(delivery.history)
        return not history or history[-1].error in UNDECIDED

    def _is_uncertain(self, once: Once, delivery: Delivery) -> bool:
        """Return whether this may be a repeat of a delivery whose row is deleted by now."""
        message = delivery.message
        if not is_forgotten(message.published_ms, FIRST):
            return False
        if message.attempt > 1 and not _began_lately(delivery):
            return True
        if delivery.stream != LOG:
            return False
        found = once.current_pass()
        return found.is_sought and is_forgotten(message.published_ms, found)


def _lost(delivery: Delivery) -> Bury:
    history = read_history(delivery.history)
    error = history[-1].error if history else RAN_AT_DEATH
    return Bury(error, reason="crashed" if error == RAN_AT_DEATH else "attempts")


def _began_lately(delivery: Delivery) -> bool:
    """Return whether the first attempt since the last redrive is not older than the inbox."""
    earlier = delivery.message.attempt - 1
    history = read_history(delivery.history)[-earlier:]
    began = history[0].started_ms or history[0].finished_ms if len(history) == earlier else None
    return began is not None and began >= oldest_ms()


# Run a coroutine function in a thread of a consumer, on an event loop of its own.
#
# Its database operations run in the thread, so that they are in the transaction of the thread, and the operations of no
# other coroutine are.

#: Seconds between two checks whether the message was cancelled: the thread itself waits, and cannot be interrupted.
CHECK_EVERY = 0.1


def call_in_thread(function: Callable[[Any], Awaitable[Any]], timeout: float | None, argument: object) -> Any:
    """Call a coroutine function, and return its result.

    Args:
        function: that handles a message, or the messages of a batch.
        timeout: in seconds; None: none.
        argument: the message, or a list of messages.

    Raises:
        HandlerTimeout: it took longer than its timeout.
        BaseException: that of the function.
    """
    # The thread waits for the coroutine.
    thread: Any = interruptible.get()
    if thread is None:
        return async_to_sync(_run)(function, argument, timeout, None)
    # An interrupt of the thread would leave the coroutine running.
    thread.guard()
    thread.end_timeout()
    try:
        return async_to_sync(_run)(function, argument, timeout, thread)
    finally:
        thread.unguard()


async def _run(
    function: Callable[[Any], Awaitable[Any]],
    argument: object,
    timeout: float | None,
    thread: Any,
) -> Any:
    watch = None if thread is None else asyncio.create_task(_cancel_with(thread, asyncio.current_task()))
    try:
        async with asyncio.timeout(timeout) as limit:
            return await function(argument)
    except TimeoutError as error:
        if limit.expired():
            raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error
        raise
    finally:
        if watch is not None:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch


async def _cancel_with(thread: Any, task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task when the message is cancelled, outside of blocks in which it is not interrupted."""
    while not (thread.cancelled and thread.guards <= 1):
        await asyncio.sleep(CHECK_EVERY)
    if task is not None:
        task.cancel()
