"""Settle outcomes in batches: with the next fetch, or after a few milliseconds."""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, compress, repeat
from typing import cast

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import send_signals
from mq_django.consumers.outage import LOG_AGAIN
from mq_django.consumers.service import SERVER_ERRORS, Service
from mq_django.consumers.worker.breakers import breakers_of
from mq_django.core import clock
from mq_django.core.keys import STEP_PREFIX
from mq_django.core.logs import get_logger
from mq_django.core.message_streams import RunStream
from mq_django.core.messages import ACK, Ack, Bury, Cancel, Delivery, HandBack, Outcome, StepDrop, StepEnd, Undecodable
from mq_django.core.running_handler import HandlerRun, Report
from mq_django.core.texts import is_a
from mq_django.errors import Interrupted, StoreError
from mq_django.registry import Handler
from mq_django.signals import delivery_stale, message_buried, message_cancelled, message_retried, send_signal
from mq_django.stores.base import Also, CountedFailure, Settlement, Store, StreamEntry
from mq_django.stores.counters import Slots, latency_bucket
from mq_django.stores.results import ended_command
from mq_django.stores.settling import message_id
from mq_django.transport.scripts import Command


class ReportBook:
    """The reports of the running handlers of one queue in this process. It has none of handlers that do not report."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self._reports: dict[StreamEntry, Report] = {}
        #: The last reports of handlers that have ended, by delivery, until these are settled.
        self.ended: dict[StreamEntry, tuple[Report, bool, bool]] = {}
        #: The process stops: `resumable()` interrupts its handlers.
        self.stopping = threading.Event()
        #: Called when a handler has streamed.
        self.wake: Callable[[], object] = bool
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._reports)

    def end(self, handler_run: HandlerRun, outcome: Outcome) -> bool:
        """Note that a handler has ended. Its report is saved when its delivery is settled.

        Returns whether the message is handled, and chunks of its stream are not in Redis yet.
        """
        handler_run.is_over = True
        report = handler_run.report
        if report is None:
            return False
        receipt = (report.delivery.stream, report.delivery.entry)
        with self._lock:
            self._reports.pop(receipt, None)
            if not report.lost:
                # After a rollback the positions are too far.
                self.ended[receipt] = (report, isinstance(outcome, Ack), handler_run.is_undone)
        return bool(report.stream) and isinstance(outcome, Ack)

    def is_interrupt(self, error: BaseException) -> bool:
        """Return whether a handler was interrupted because the process stops."""
        return is_a(error, Interrupted) and self.stopping.is_set()

    def changed(self) -> list[Report]:
        """Return the reports of running handlers that are not saved."""
        with self._lock:
            return [report for report in self._reports.values() if report.changed and not report.lost]

    def streaming(self) -> list[tuple[Delivery, RunStream]]:
        """Return the running handlers whose chunks are not all sent."""
        with self._lock:
            return [(each.delivery, each.stream) for each in self._reports.values() if each.stream]

    def last_of(self, batch: Sequence[Settlement]) -> tuple[list[Command], list[tuple[Delivery, RunStream]]]:
        """Return the commands that save the last reports of a batch, and what its handlers have streamed.

        Both are for the round trip that settles it.
        """
        found = [self.ended.get((each.delivery.stream, each.delivery.entry)) for each in batch]
        known = [each for each in found if each is not None]
        commands = [ended_command(self.config, *each) for each in known if not each[0].is_empty]
        return commands, [(report.delivery, report.stream) for report, _, _ in known if report.stream is not None]

    def forget(self, receipts: Iterable[StreamEntry]) -> None:
        """Forget the last reports of deliveries that are settled."""
        with self._lock:
            for receipt in receipts:
                self.ended.pop(receipt, None)

    def opened(self, handler_run: HandlerRun) -> Report:
        """Return the report of a run, which is made when its handler reports for the first time."""
        with self._lock:
            if handler_run.report is None:
                delivery = handler_run.delivery
                report = Report(delivery=delivery, config=self.config, stopping=self.stopping, wake=self.wake)
                self._reports[delivery.stream, delivery.entry] = handler_run.report = report
            return handler_run.report


# The latest acks of one queue in this process.

#: Acks that are remembered: about a second's at full speed. A replica lacks less than that when it takes over.
ACKED = 10_000


class LatestAcks:
    """The deliveries of the latest acks, with the ids of their messages. Several threads may add some."""

    def __init__(self) -> None:
        #: Each element has the acks of a round trip: one for each ack would cost the garbage collector much time.
        self._pipelines: deque[tuple[Sequence[StreamEntry], Sequence[str]]] = deque()
        self._count = 0
        self._lock = threading.Lock()

    def add(
        self,
        batch: Sequence[Settlement],
        receipts: Sequence[StreamEntry],
        known: Sequence[str | None],
        outcomes: Sequence[Outcome],
    ) -> None:
        """Note which of these settled deliveries were acked.

        Args:
            batch: the deliveries.
            receipts, outcomes: theirs.
            known: the ids of their messages, as far as these are known.
        """
        ids = [of or message_id(s.delivery) for of, s in zip(known, batch, strict=True)] if not all(known) else known
        if outcomes.count(ACK) < len(outcomes):
            is_acked = [outcome is ACK for outcome in outcomes]
            receipts, ids = list(compress(receipts, is_acked)), list(compress(ids, is_acked))
        if not receipts:
            return
        with self._lock:
            self._pipelines.append((receipts, cast("Sequence[str]", ids)))
            self._count += len(receipts)
            while self._count - len(self._pipelines[0][0]) >= ACKED:
                self._count -= len(self._pipelines.popleft()[0])

    def ids(self) -> Mapping[StreamEntry, str]:
        """Return the ids of the messages by their receipts, at least of the latest ACKED acks."""
        with self._lock:
            pipelines = list(self._pipelines)
        return {receipt: known for pipeline in pipelines for receipt, known in zip(*pipeline, strict=True)}


logger = get_logger(__name__)

_NONE: Sequence[tuple[Delivery, RunStream]] = ()
#: This many outcomes are sent without waiting.
FULL = 200
#: The most outcomes in one round trip.
BATCH = 500
#: The outcomes of steps of workflows about which there are notes for their runs.
STEP_ENDS = (StepEnd, StepDrop, Bury, Cancel)


class Settler:
    """The unsettled outcomes of one queue in this process."""

    def __init__(self, store: Store, queue: str, consumer: str, due: threading.Event, full: threading.Event) -> None:
        self.queue = queue
        self._public_name = store.config.public_name
        self._config = store.config
        #: None: neither the queue nor a handler of it has one, and none was opened by hand.
        self.breakers = breakers_of(store.config)
        #: The reports of the queue's running handlers.
        self.reports = ReportBook(store.config)
        self._slots = Slots(store.keys)
        self._consumer = consumer
        self._unsettled: deque[Settlement] = deque()
        self._lock = threading.Lock()
        self._due = due
        self._full = full
        #: The deliveries that this process has fetched and not yet settled, with the ids of their messages.
        self.in_hand: dict[tuple[int, bytes], str] = {}
        #: A new master need not have the latest acks.
        self._acked = LatestAcks()
        #: Deliveries whose batch failed, which may still have been settled.
        self._repeated: set[tuple[int, bytes]] = set()
        #: Outcomes that Redis refused. They are kept apart, so that they do not delay the others.
        self._refused: list[Settlement] = []
        #: The number of settled deliveries, and of stale ones among them that are not counted yet.
        self.settled = self._stale = 0
        #: Of batches that are being settled: how many stale outcomes their pipelines count.
        self._counting: dict[int, int] = {}
        #: When the first unsettled delivery ended, and the first of the batch just taken, in seconds since 1970.
        self._first_ended = self._ended = 0.0
        #: Type of outcome -> number of settled deliveries.
        self.ended: Counter[type] = Counter()
        #: Called with the queue and the ids of steps of workflows that have ended.
        self.steps_ended: Callable[[str, list[str]], None] | None = None
        #: The number of outcomes so far that steps may have had.
        self._steps = 0
        self._logged = -LOG_AGAIN
        #: The fetcher reads new messages, and so takes no outcomes along.
        self._fetcher_waits = False
        #: Seconds that a handler takes, smoothed. The initial value makes a new consumer fetch little.
        self.seconds = 0.01
        #: The sum of what all handlers have taken.
        self.micros = 0

    def __len__(self) -> int:
        return len(self._unsettled)

    def add(self, settlement: Settlement) -> None:
        """Add an outcome to settle."""
        unsettled = self._unsettled
        unsettled.append(settlement)
        if not self._due.is_set():
            self._due.set()
        if (count := len(unsettled)) == 1:
            self._first_ended = clock.now()
        elif count >= FULL and not self._full.is_set():
            self._full.set()
        if self._fetcher_waits and self._is_complete():
            self._full.set()

    def add_all(self, settlements: Sequence[Settlement]) -> None:
        """Add the outcomes of a call with a batch. The next fetch takes them along if it comes soon."""
        if not self._unsettled:
            self._first_ended = clock.now()
        self._unsettled.extend(settlements)
        self._due.set()
        if len(self._unsettled) >= 2 * BATCH or (self._fetcher_waits and self._is_complete()):
            self._full.set()

    @contextmanager
    def no_more(self) -> Iterator[None]:
        """Read new messages inside this: outcomes are settled at once as soon as no other can join their batch."""
        self._fetcher_waits = True
        # What ended just before would wait for a fetch that does not come.
        if self._unsettled and self._is_complete():
            self._full.set()
        try:
            yield
        finally:
            self._fetcher_waits = False

    def _is_complete(self) -> bool:
        """Return whether all deliveries of this process have ended."""
        return len(self.in_hand) <= len(self._unsettled)

    def not_again(self, taken: Sequence[Delivery | Undecodable]) -> list[Delivery | Undecodable]:
        """Return what was taken without what this process runs already, or has acked just now, which it acks again.

        For what a new master delivers again, because the delivery or the ack was not copied to it. This consumer has
        held both deliveries under the same receipt, so the outcome of the first settles the second.
        """
        acked = self._acked.ids()
        rest = []
        for item in taken:
            receipt, known = (item.stream, item.entry), message_id(item)
            if receipt in self.in_hand:
                if self.in_hand[receipt] != known:
                    # Another message got this id, from a clock that is behind: the running one must not settle it.
                    self.add(Settlement(item, HandBack()))
            elif acked.get(receipt) == known:
                self.in_hand[receipt] = known
                self.add(Settlement(item, ACK))
            else:
                rest.append(item)
        return rest

    def settle(self, store: Store) -> None:
        """Settle a batch in one round trip."""
        batch = self._take()
        if not batch:
            return
        try:
            batch = self._judged(store, batch)
            stale = store.settle(self._consumer, batch, also=self._also(batch))
        except SERVER_ERRORS:
            self._not_counted(batch)
            self._put_back(batch)
            raise
        except Exception as error:  # noqa: BLE001 - one outcome that cannot be settled must not delay the others
            self._not_counted(batch)
            if self.breakers is not None:
                batch = self.breakers.without_report(batch)
            self._settle_by_outcome(store, batch, error)
        else:
            self._settled(batch, stale)

    def settle_and_take(
        self, store: Store, *, count: int, after_wait: bool = False
    ) -> Sequence[Delivery | Undecodable]:
        """Settle a batch and take up to `count` messages in one round trip; `after_wait`: the last fetch waited."""
        batch = self._take()
        if not batch:
            # Mostly there is nothing more to take then, and no fetch will take along what ends during this one.
            with self.no_more() if after_wait else nullcontext():
                return store.take(self._consumer, count=count)
        try:
            batch = self._judged(store, batch)
            fetched = store.settle_and_take(self._consumer, batch, count=count, also=self._also(batch))
        except BaseException:
            # It is not known whether it was settled, but settling is idempotent. The service finds the cause.
            self._not_counted(batch)
            self._put_back(batch)
            raise
        self._settled(batch, fetched.stale)
        return fetched.deliveries

    def try_refused(self, store: Store) -> None:
        """Settle the refused outcomes again."""
        refused, self._refused = self._refused, []
        if refused:
            self._settle_by_outcome(store, refused, None)

    def count_stale(self, store: Store) -> None:
        """Count the stale outcomes that no later batch counts, because the consumer ends."""
        with self._lock:
            stale, self._stale = self._stale, 0
        if not stale:
            return
        try:
            store.settle(self._consumer, (), also=Also([self._slots.add_command({("stale", "-"): stale})]))
        except BaseException:
            with self._lock:
                self._stale += stale
            raise

    def _settle_by_outcome(self, store: Store, batch: Sequence[Settlement], error: Exception | None) -> None:
        """Settle a batch by type of outcome, or one by one if that fails, so that only the failing outcomes stay."""
        if error is not None and time.monotonic() - self._logged > LOG_AGAIN:
            self._logged = time.monotonic()
            logger.error("A batch of outcomes of queue %s failed and is settled in parts: %s", self.queue, error)
        kinds: dict[type, list[Settlement]] = defaultdict(list)
        for settlement in batch:
            if error is not None:
                # The failed round trip may have settled it.
                self._repeated.add((settlement.delivery.stream, settlement.delivery.entry))
            kinds[type(settlement.outcome)].append(settlement)
        groups = list(kinds.values())
        while groups:
            group = groups.pop()
            try:
                self._settled(group, store.settle(self._consumer, group, also=self._also(group)))
            except SERVER_ERRORS:
                self._not_counted(group)
                self._put_back([*group, *chain(*groups)])
                raise
            except StoreError:
                self._not_counted(group)
                self._refused += group
            except Exception:
                self._not_counted(group)
                if len(group) > 1:
                    groups += [[settlement] for settlement in group]
                else:
                    logger.exception("Cannot write an outcome of queue %s", self.queue)
                    self._refused.append(_writable(group[0]))

    def _take(self) -> list[Settlement]:
        # The fetcher and the service take batches. Slots only append, which needs no lock.
        with self._lock:
            unsettled = self._unsettled
            batch = [unsettled.popleft() for _ in range(min(len(unsettled), BATCH))]
            self._ended = self._first_ended
            if unsettled:
                self._first_ended = clock.now()
            return batch

    def counted_failure(
        self, delivery: Delivery, handler: Handler, outcome: Outcome, raised: BaseException | None
    ) -> CountedFailure | None:
        """Return what a failure that a breaker counts is about; None for what none counts."""
        return None if self.breakers is None else self.breakers.counted_failure(delivery, handler, outcome, raised)

    def _judged(self, store: Store, batch: list[Settlement]) -> list[Settlement]:
        """Return a batch with the outcomes that its breakers decide."""
        return batch if self.breakers is None else self.breakers.judge(store, batch)

    def _not_counted(self, batch: Sequence[Settlement]) -> None:
        """Count again what the pipeline of a batch was to count, because it has failed."""
        with self._lock:
            self._stale += self._counting.pop(id(batch), 0)

    def _put_back(self, batch: Sequence[Settlement]) -> None:
        self._unsettled.extendleft(reversed(batch))
        self._repeated.update((settlement.delivery.stream, settlement.delivery.entry) for settlement in batch)
        self._due.set()

    def _also(self, batch: Sequence[Settlement]) -> Also:
        commands, fresh, streamed = list[Command](), batch, _NONE
        if self._repeated:
            fresh = [s for s in batch if (s.delivery.stream, s.delivery.entry) not in self._repeated]
        if fresh:
            self._smooth([settlement.micros for settlement in fresh if settlement.micros is not None])
        if self._stale:
            with self._lock:
                stale = self._counting[id(batch)] = self._stale
                self._stale = 0
            commands.append(self._slots.add_command({("stale", "-"): stale}))
        if self.reports.ended:
            last, streamed = self.reports.last_of(batch)
            commands += last
        return Also(commands, _latency_of(fresh, self._ended) if fresh else {}, streamed)

    def _notify_runs(self, batch: Sequence[Settlement], stale: Sequence[str]) -> None:
        """Have the notes about steps of workflows delivered."""
        assert self.steps_ended is not None
        known = [message_id(one.delivery) for one in batch if isinstance(one.outcome, STEP_ENDS)]
        if steps := [each for each in known if each.startswith(STEP_PREFIX) and each not in stale]:
            self.steps_ended(self.queue, steps)

    def _smooth(self, micros: Sequence[int]) -> None:
        """Update the smoothed duration of a handler, and the sum of all."""
        if micros:
            total = sum(micros)
            self.micros += total
            self.seconds += (total / len(micros) / 1e6 - self.seconds) * min(1.0, len(micros) / 32)

    def _settled(self, batch: Sequence[Settlement], stale: Sequence[str]) -> None:
        receipts, outcomes = [(s.delivery.stream, s.delivery.entry) for s in batch], [s.outcome for s in batch]
        self._acked.add(batch, receipts, list(map(self.in_hand.pop, receipts, repeat(None))), outcomes)
        if self.reports.ended:
            self.reports.forget(receipts)
        if self._repeated:
            # The first round trip may have settled these, so a stale reply to the repeated one has no meaning.
            repeated = {
                message_id(settlement.delivery)
                for settlement, receipt in zip(batch, receipts, strict=True)
                if receipt in self._repeated
            }
            self._repeated.difference_update(receipts)
            stale = [stale_id for stale_id in stale if stale_id not in repeated]
        with self._lock:
            self.settled += len(batch)
            if stale:
                outcomes = [s.outcome for s in batch if message_id(s.delivery) not in stale]
            self.ended.update(map(type, outcomes))
            self._stale += len(stale)
            self._counting.pop(id(batch), None)
            before, self._steps = self._steps, sum(self.ended[kind] for kind in STEP_ENDS)
        if self._steps != before and self.steps_ended is not None:
            self._notify_runs(batch, stale)
        if message_retried.receivers or message_buried.receivers or message_cancelled.receivers:
            send_signals(self._public_name, batch, stale)
        for stale_id in stale:
            logger.warning(
                "Ignored the outcome of message %s of queue %s: this consumer no longer holds it", stale_id, self.queue
            )
            send_signal(delivery_stale, Settler, queue=self._public_name, message_id=stale_id)


def _latency_of(batch: Sequence[Settlement], ended: float) -> dict[tuple[str, str], int]:
    """Return how long the first message of a batch waited, as a count for the whole batch, which ended within 10 ms.

    `ended`: when it ended, in seconds since 1970.
    """
    first = batch[0]
    delivery, micros = first.delivery, first.micros
    if micros is None or not isinstance(delivery, Delivery):
        return {}
    ready = ready_ms(delivery)
    if ready is None:
        return {}
    waited = round(ended * 1000 - micros * first.together / 1000) - ready
    return {(f"w{latency_bucket(waited)}", delivery.message.name): len(batch)} if waited >= 0 else {}


def ready_ms(delivery: Delivery) -> int | None:
    """Return when a message became ready in ms since 1970. Of RSMQ messages only the time of publication is known."""
    milliseconds, dash, _ = delivery.entry.partition(b"-")
    if dash and milliseconds.isdigit():
        return int(milliseconds)
    return delivery.message.published_ms if delivery.message.attempt == 1 else None


def _writable(settlement: Settlement) -> Settlement:
    """Return how to settle an outcome that could not be encoded: without its result, or as a burial."""
    if settlement.keeps_result:
        return settlement._replace(keeps_result=False)
    return settlement._replace(outcome=Bury("the outcome could not be written"))


#: Seconds for which an outcome may wait to be sent in a batch. With the round trip it is settled within 10 ms.
MAX_WAIT = 0.006
#: Seconds until outcomes that Redis refused are tried again.
TRY_AGAIN = 1.0


class SettleService(Service):
    """Settles outcomes that no fetch has taken along within a few milliseconds."""

    name = "settler"

    def __init__(self) -> None:
        super().__init__()
        self.due = threading.Event()
        self.full = threading.Event()
        self._settlers: list[tuple[Settler, Store]] = []
        self._tried = 0.0

    def add(self, settler: Settler, store: Store) -> None:
        """Add a queue's settler, with a store on this service's own connection."""
        self._settlers.append((settler, store))

    def run_once(self) -> float:
        """Wait for an outcome, and a moment for more, then settle them."""
        if self.due.wait(1.0):
            self.full.wait(MAX_WAIT)
            self.settle_all()
        if time.monotonic() - self._tried > TRY_AGAIN:
            self.try_refused()
        return 0.0

    def stop(self) -> None:
        """End the loop, and interrupt its wait."""
        super().stop()
        self.due.set()

    def settle_all(self) -> None:
        """Settle everything of every queue."""
        # Cleared first: outcomes that are added meanwhile set them again.
        self.due.clear()
        self.full.clear()
        for settler, store in self._settlers:
            try:
                while len(settler):
                    settler.settle(store)
            except BaseException:
                self.due.set()
                raise

    def try_refused(self) -> None:
        """Settle again the outcomes that Redis refused."""
        self._tried = time.monotonic()
        self.each(self._settlers, lambda one: one[0].try_refused(one[1]), called=lambda one: one[0].queue)

    def count_stale(self) -> None:
        """Count the stale outcomes of each queue that no later batch counts."""
        self.each(self._settlers, lambda one: one[0].count_stale(one[1]), called=lambda one: one[0].queue)
