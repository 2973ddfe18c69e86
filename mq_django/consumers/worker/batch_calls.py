"""Call a handler with the messages of a batch, and again with halves of them when it raises."""

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from asgiref.sync import sync_to_async

from mq_django.consumers.decisions import may_retry_uncharged, uncharged_retry
from mq_django.consumers.shared_state import Receipt
from mq_django.consumers.worker.batch_endings import (
    BatchEnd,
    BatchHandling,
    Failed,
    Member,
    judge_batch,
    judge_batch_error,
    judge_left_by_batch,
    judge_shared_by_batch,
    log_common,
    log_split,
    refuse_reports,
    settle_acks,
    settle_uncharged,
)
from mq_django.consumers.worker.databases import CONNECTION_CHECK
from mq_django.consumers.worker.executor import anotify, notify
from mq_django.consumers.worker.lanes import LoopLane, RunningState, ThreadLane, WorkItem
from mq_django.consumers.worker.once_call import once_batch_call
from mq_django.core.batches import HalvingPlan
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import ACK, HandBack, Outcome
from mq_django.registry import Handler
from mq_django.signals import handler_started


class EndedMessage(NamedTuple):
    """A message that has ended, for the function that its handler has for that."""

    delivery: Delivery
    outcome: Outcome
    seconds: float
    raised: BaseException | None


class RunningBatch:
    """Runs some messages of one handler, until each has an outcome.

    Args:
        items: the messages, each with the executor of its queue or partition.
        handler: gets them in a list.
        state: the shared state.
        row: where it has the receipts of what runs.
    """

    #: See DeliveryRunner.
    number = -1

    def __init__(self, items: Sequence[Member], handler: Handler, state: RunningState, row: int) -> None:
        self._handler = handler
        self._state = state
        self._row = row
        #: Of the queue, or of one of its partitions: they have the same options.
        self._executor = items[0][1]
        self._is_of_one_queue = len({id(executor) for _, executor in items}) == 1
        self._timeout = self._executor.timeout(handler)
        # Nothing here refers back to this object: messages are freed at once, and not by the garbage collector.
        self._plan = HalvingPlan[Member, Failed](items, may_be_common=partial(_may_be_common, items, handler))
        #: The messages of the present call.
        self._group = items
        self._has_called = self._has_split = False

    def run(self, lane: ThreadLane, *_: object) -> None:
        """Run the messages in this thread."""
        lane.cancelled = False
        refuse_reports(self._group[0][0])
        databases = lane.databases
        while group := self._begin(lane):
            started = time.monotonic()
            if databases.held and started - databases.checked > CONNECTION_CHECK:
                databases.refresh()
            end = self._call(lane, group)
            seconds = time.monotonic() - started
            if databases.held and databases.is_disturbed():
                end = judge_left_by_batch(end, self._handler, databases.clean_up(), len(group))
            for ended in self._settle(group, end, seconds):
                notify(ended.delivery, self._handler, *ended[1:])
        for ended in self._finish(lane.number):
            notify(ended.delivery, self._handler, *ended[1:])

    async def run_coroutine(self, lane: LoopLane, *_: object) -> None:
        """Run the messages on this event loop."""
        lane.cancelled = False
        refuse_reports(self._group[0][0])
        databases = lane.databases
        while group := self._begin(lane):
            rollbacks, started = databases.rollbacks, time.monotonic()
            if databases.held and started - databases.checked > CONNECTION_CHECK:
                await sync_to_async(databases.refresh)()
            end = await self._acall(lane, group)
            seconds = time.monotonic() - started
            if databases.held and databases.is_disturbed():
                # Read first: coroutines beside it may end during the clean-up.
                is_alone = lane.is_alone()
                left = await sync_to_async(databases.clean_up)()
                if left and is_alone:
                    rollbacks, end = databases.rollbacks, judge_left_by_batch(end, self._handler, left, len(group))
            if databases.rollbacks != rollbacks:
                end = judge_shared_by_batch(end, self._handler, len(group))
            for ended in self._settle(group, end, seconds):
                await anotify(ended.delivery, self._handler, *ended[1:])
        for ended in self._finish(lane.number):
            await anotify(ended.delivery, self._handler, *ended[1:])

    def _call(self, lane: ThreadLane, group: Sequence[Member]) -> BatchEnd:
        """Call the handler, within the middleware if there is some. Whatever it does, the call has an end."""
        executor, handle = self._executor, self._executor.handle
        handler = self._called(group)
        try:
            if handle is None:
                return judge_batch(executor, handler, lane.call(handler, _messages(group), self._timeout), len(group))
            messages = _messages(group)
            handling = BatchHandling(executor, handler, group[0][0], messages)
            around = handling.around(lane, lambda: lane.call(handler, messages, self._timeout))
            return handling.end_of(handle(around))
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler must not end the lane
            return judge_batch_error(executor, lane, group[0][0], handler, error, len(group))

    async def _acall(self, lane: LoopLane, group: Sequence[Member]) -> BatchEnd:
        """See _call()."""
        handler, executor, handle = self._handler, self._executor, self._executor.ahandle
        try:
            if handle is None:
                returned = await lane.call(handler, _messages(group), self._timeout)
                return judge_batch(executor, handler, returned, len(group))
            messages = _messages(group)
            handling = BatchHandling(executor, handler, group[0][0], messages)
            around = handling.around_coroutine(lane, lambda: lane.call(handler, messages, self._timeout))
            return handling.end_of(await handle(around))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the outcome
            return judge_batch_error(executor, lane, group[0][0], handler, error, len(group))

    def _called(self, group: Sequence[Member]) -> Handler:
        """Return what is called with the messages of a group."""
        if self._handler.once is None:
            return self._handler
        return once_batch_call(self._handler, [delivery for delivery, _ in group], self._executor.config)

    def _begin(self, lane: ThreadLane | LoopLane) -> Sequence[Member]:
        """Return the messages of the next call, which are noted as running; empty: there is none."""
        while group := self._plan.next_group():
            if self._has_called and self._executor.reports.stopping.is_set():
                for delivery, executor in [*group, *self._plan.take_rest()]:
                    executor.hand_back(delivery)
                return ()
            # Noted before it is checked whether they are held: see Executor.
            self._note(lane.number, group)
            admitted = self._admitted(group)
            if len(admitted) < len(group):
                self._state.idle(lane.number)
                if admitted:
                    self._note(lane.number, admitted)
            if admitted:
                self._has_called, lane.job = True, self._job()
                return admitted
        return ()

    def _admitted(self, group: Sequence[Member]) -> Sequence[Member]:
        """Return the messages that may run, and settle the others."""
        if self._executor.admission.admits([delivery for delivery, _ in group]) and self._is_of_one_queue:
            admitted = group
        else:
            outcomes = [executor.admission.refusal(delivery) for delivery, executor in group]
            admitted = [member for member, outcome in zip(group, outcomes, strict=True) if outcome is None]
            for (delivery, executor), outcome in zip(group, outcomes, strict=True):
                if outcome is not None:
                    executor.admission.refuse(delivery, self._handler, outcome)
        if not self._has_called and handler_started.receivers:
            for delivery, executor in admitted:
                executor.admission.announce(delivery.message)
        return admitted

    def _note(self, lane: int, group: Sequence[Member]) -> None:
        """Note in the shared state what runs from now on."""
        self._group, now = group, time.monotonic()
        self._mark(lane, now, math.inf if self._timeout is None else now + self._timeout)

    def _mark(self, lane: int, since: float, deadline: float) -> None:
        if len(self._group) > 1:
            # As plain tuples, one at a time: a receipt of each message would take longer.
            receipts = ((executor.number, delivery.stream, delivery.entry) for delivery, executor in self._group)
            self._state.run_batch(lane, self._row, receipts, since, deadline)
        else:
            delivery, executor = self._group[0]
            self._state.run(lane, executor.number, delivery.stream, delivery.entry, since, deadline)

    def _settle(self, group: Sequence[Member], end: BatchEnd, seconds: float) -> list[EndedMessage]:
        """Pass on the outcomes of a call, and return what has ended with it."""
        ended, count = list[EndedMessage](), len(group)
        if end.outcomes is not None:
            self._plan.succeeded()
            ended = self._settle_each(group, end.outcomes, seconds / count, end.raised)
        else:
            if count > 1 and not self._has_split:
                self._has_split = True
                log_split(self._handler, group, end)
            assert end.failure is not None
            self._plan.failed(group, Failed(end.failure, end.raised, seconds))
        for item, failed in self._plan.take_alone():
            ended += self._settle_each([item], [failed.outcome], failed.seconds, failed.raised)
        return ended

    def _settle_each(
        self, group: Sequence[Member], outcomes: Sequence[Outcome], seconds: float, raised: BaseException | None
    ) -> list[EndedMessage]:
        handler, count, found = self._handler, len(group), list[EndedMessage]()
        if self._is_of_one_queue and all([outcome is ACK for outcome in outcomes]) and handler.ended is None:  # noqa: C419
            settle_acks(self._executor, self._state, self._row, [delivery for delivery, _ in group], seconds)
            return []
        for (delivery, executor), outcome in zip(group, outcomes, strict=True):
            final = executor.settle_ended(delivery, handler, outcome, seconds, raised, together=count)
            found.append(EndedMessage(delivery, final, seconds, raised))
        return found

    def _finish(self, lane: int) -> list[EndedMessage]:
        """Pass on the outcomes of messages that fail for a common reason, and of what failed alone."""
        self._state.idle(lane)
        ended = list[EndedMessage]()
        for item, failed in self._plan.take_alone():
            ended += self._settle_each([item], [failed.outcome], failed.seconds, failed.raised)
        common = self._plan.take_common()
        if common:
            log_common(self._handler, [item for item, _ in common], common[0][1])
        for (delivery, executor), failed in common:
            if isinstance(failed.outcome, HandBack):
                # Another delivery runs, or this process stops.
                ended += self._settle_each([(delivery, executor)], [failed.outcome], failed.seconds, failed.raised)
                continue
            retry = uncharged_retry(executor.config, delivery, self._handler, failed.outcome)
            settle_uncharged((delivery, executor), retry, failed.seconds)
            ended.append(EndedMessage(delivery, retry, failed.seconds, failed.raised))
        return ended

    def _job(self) -> WorkItem:
        """Return what the lane runs, for those who look: it stands for the first message of the present call."""
        return WorkItem(self._group[0][0], self._handler, self)

    def overdue(self, lane: int, _: Delivery, *, since: float) -> None:
        """Mark the present call as past its deadline: see DeliveryRunner."""
        self._mark(lane, since, time.monotonic())

    def receipt(self, _: Delivery) -> Receipt:
        """Return the receipt of the first message of the present call."""
        return self.receipts()[0]

    def receipts(self, *_: object) -> Sequence[Receipt]:
        """Return the receipts of the messages of the present call."""
        return [executor.receipt(delivery) for delivery, executor in self._group]

    def rescue(self, delivery: Delivery, handler: Handler, error: BaseException) -> None:
        """Have the messages of the present call retried, and hand back the rest: see DeliveryRunner."""
        for member, executor in self._group:
            executor.rescue(member, handler, error)
        self.hand_back(delivery)

    def hand_back(self, delivery: Delivery) -> None:
        """Hand back what the plan still has."""
        for unfinished, executor in self._plan.take_rest():
            executor.hand_back(unfinished)


def _messages(group: Sequence[Member]) -> list[Message]:
    return [delivery.message for delivery, _ in group]


def _may_be_common(members: Sequence[Member], handler: Handler) -> bool:
    """Return whether all messages may still be retried without a charge."""
    return all(may_retry_uncharged(executor.config, delivery, handler) for delivery, executor in members)
