"""Settle the deliveries of dead consumers."""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from mq_django.consumers.decisions import Evidence, settle_for, settlement
from mq_django.consumers.processes import is_reloaded
from mq_django.consumers.service import RoundShares, ServerQueues, Service, open_session_to
from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.core.ids import token
from mq_django.core.logs import get_logger
from mq_django.core.messages import Ack, Cancel, Delivery
from mq_django.stores import open_members, open_store
from mq_django.stores.base import Store
from mq_django.stores.counters import RECOVERED, Slots
from mq_django.stores.members import Members, Membership
from mq_django.stores.settling import message_id
from mq_django.transport.connections import BLOCK_MS
from mq_django.transport.sessions import reply_or_raise

logger = get_logger(__name__)

#: Deliveries settled in one round trip.
BATCH = 500
#: Seconds until a queue that failed is tried again.
TRY_AGAIN = 1.0
#: Redis may still assign messages to a dead consumer: by its blocked read, or by a consumer that passes a message on to
#: it. Seconds between two checks for such messages, and until the last check, by which both have ended.
CHECK_EVERY, LAST_CHECK = 0.5, BLOCK_MS / 1000 + 1.5


@dataclass(slots=True)
class DeadWorker:
    """A process that has ended, and the queues in which it may still hold messages."""

    consumer: str
    evidence: Evidence
    #: The queues that are still to be checked.
    queues: set[int] = field(default_factory=set)
    #: The queues that are checked repeatedly, and the times of the next and the last check on the monotonic clock.
    repeated: frozenset[int] = frozenset()
    next_check: float = math.inf
    last_check: float = 0.0
    #: The queues in which its own messages are settled. Redis has assigned it more since, which it has never seen.
    settled: set[int] = field(default_factory=set)

    def repeat_check(self, now: float) -> None:
        """Add the queues that are checked repeatedly when their next check is due."""
        if now >= self.next_check:
            self.queues = set(self.repeated)
            self.next_check = now + CHECK_EVERY if now < self.last_check else math.inf

    def check_repeatedly(self, queues: Iterable[int]) -> "DeadWorker":
        """Have these queues checked until Redis can assign nothing more to the process."""
        self.repeated = frozenset(queues)
        self.next_check, self.last_check = time.monotonic() + CHECK_EVERY, time.monotonic() + LAST_CHECK
        return self


def evidence_of(shared_state: SharedState, *, late: bool, now: float, may_receive: bool = False) -> Evidence:
    """Return the evidence in a dead consumer's shared state; `late`: it was killed for a handler past its timeout."""
    results = shared_state.results()
    running = {item.receipt for item in shared_state.running()} - results.keys()
    return Evidence(
        results=results,
        running=running,
        late=shared_state.late(now) if late else (),
        together=shared_state.together() if late else (),
        may_receive=may_receive,
    )


def _ignore() -> None:
    """Do nothing at a step."""


def reclaim(store: Store, number: int, consumer: str, evidence: Evidence, *, step: Callable[[], None] = _ignore) -> int:
    """Settle everything that a dead consumer holds in a queue, and return how many messages others get.

    Calls `step` before each round trip with deliveries: there may be any number of them.
    """
    # By their ids: Redis may give a message that goes back to a read of the consumer that still waits.
    moved: set[str] = set()
    if evidence.running:
        # What it ran may have been cancelled, with the replacement of its process.
        evidence = replace(evidence, cancelled=store.cancel_requests())
    while held := store.held_by(consumer, limit=BATCH):
        step()
        batch = [settlement(store.config, number, item, evidence) for item in held]
        stale = settle_for(store, consumer, batch)
        if len(stale) >= len(batch):
            # A message that cannot be settled would be found again in each round, and no other consumer would be
            # served.
            break
        gone = {*stale}
        moved |= {message_id(done.delivery) for done in batch if not isinstance(done.outcome, Ack | Cancel)} - gone
    return len(moved)


def hand_back_unstarted(store: Store, number: int, consumer: str, started: Collection[Receipt]) -> int:
    """Hand back the messages that an unresponsive consumer holds and has not started, and return how many."""
    held = store.held_by(consumer, limit=BATCH + len(started))
    batch = [
        settlement(store.config, number, item, Evidence())
        for item in held
        if Receipt.of(number, item.stream, item.entry) not in started
    ]
    return len(batch) - len(settle_for(store, consumer, batch)) if batch else 0


def reclaim_supervisor(
    store: Store,
    members: Members,
    number: int,
    supervisor: str,
    membership: Membership,
    evicted: list[str],
    *,
    step: Callable[[], None] = _ignore,
) -> int:
    """Evict a dead supervisor, hand back the messages of its consumers, and return their number.

    Appends its consumers to `evicted`, unless it has sent a heartbeat meanwhile. For `step` see reclaim().

    It is unknown which messages were running, so no attempt is charged. A message whose supervisor has died twice runs
    alone in a quarantine from then on. Messages of a quarantine are charged. So a message that crashes machines is
    eventually buried, and the messages beside it are not charged.
    """
    if not members.evict(supervisor, membership.beats.get(supervisor, -1)):
        return 0
    consumers = membership.consumers_of(supervisor)
    evicted += consumers
    moved = 0
    for consumer in consumers:
        evidence = Evidence(lost=True, alone=bool(membership.consumers[consumer].get("quarantine")))
        moved += reclaim(store, number, consumer, evidence, step=step)
    members.leave(consumers, supervisor=supervisor)
    logger.log(
        # Without consumers, all of them have left in order, as with --autoreload at each change; it also ends some that
        # were about to start.
        logging.WARNING if moved else logging.INFO if consumers and not is_reloaded() else logging.DEBUG,
        "Supervisor %s of queue %s is dead: reassigned %d messages of its %d consumers",
        *(supervisor, store.config.name, moved, len(consumers)),
    )
    return moved


class Reclaimer(Service):
    """Settles for dead consumers in a thread of its own, because Redis may be slow or unreachable."""

    name = "reclaimer"

    def __init__(self, queues: ServerQueues, *, settled: Callable[[int, str], None]) -> None:
        super().__init__()
        session = open_session_to(queues)
        self._queues = queues
        self._stores = {number: open_store(config, session) for number, config in queues.items()}
        self._members = {number: open_members(config, session) for number, config in queues.items()}
        self._session = session
        self._slots = {number: Slots(config.keys) for number, config in queues.items()}
        #: Called with a queue and a consumer that holds nothing in it any more.
        self._settled = settled
        self._dead_workers: list[DeadWorker] = []
        #: By queue: messages that are not counted yet.
        self._uncounted: Counter[int] = Counter()
        self._dead_supervisors: dict[tuple[int, str], Membership] = {}
        self._unknown: set[tuple[int, str, bool]] = set()
        self._unresponsive: dict[str, Collection[Receipt]] = {}
        #: Consumer -> when its messages were handed back last, on the monotonic clock; infinity: they are to be.
        self._handed_back: dict[str, float] = {}
        self._late: dict[str, Collection[Receipt]] = {}
        self._lock = threading.Lock()

    def consumer_exited(self, consumer: str, evidence: Evidence) -> None:
        """Settle for a consumer of this supervisor that has ended. Failures are retried until it is done."""
        queues = [number for number, config in self._queues.items() if not config.external]
        dead_worker = DeadWorker(consumer, evidence, set(queues))
        if evidence.may_receive:
            dead_worker.check_repeatedly(queues)
        with self._lock:
            self._dead_workers.append(dead_worker)
            self._handed_back.pop(consumer, None)
        self.wake()

    def consumer_unresponsive(self, consumer: str, started: Collection[Receipt]) -> None:
        """Hand back the messages that an unresponsive consumer holds and has not started."""
        with self._lock:
            self._unresponsive[consumer] = started
            self._handed_back[consumer] = math.inf
        self.wake()

    def handed_back_at(self, consumer: str) -> float:
        """Return since when a consumer may hold what it reads, on the monotonic clock.

        What it had read before its messages were handed back is not its own any more. Infinity: they are being handed
        back, and some of what it reads meanwhile may be, too.
        """
        with self._lock:
            return self._handed_back.get(consumer, 0.0)

    def consumer_late(self, consumer: str, late: Collection[Receipt]) -> None:
        """Log the handlers and messages that a consumer runs past their timeout."""
        with self._lock:
            self._late[consumer] = late
        self.wake()

    def supervisor_died(self, number: int, supervisor: str, membership: Membership) -> None:
        """Reclaim from a dead supervisor's consumers. The heartbeat calls this until the supervisor is removed."""
        with self._lock:
            self._dead_supervisors[number, supervisor] = membership
        self.wake()

    def consumer_unknown(self, number: int, consumer: str, has_ended: bool = False) -> None:
        """Hand back the messages of a consumer that no supervisor announces, and remove it.

        `has_ended`: it is one of ours, and Redis has assigned it messages after its own were settled.
        """
        with self._lock:
            self._unknown.add((number, consumer, has_ended))
        self.wake()

    def is_done(self) -> bool:
        """Return whether everything known to be held by exited consumers of this supervisor is settled."""
        return not any(dead_worker.queues for dead_worker in self._dead_workers)

    def run_once(self) -> float:
        """Settle for all consumers that were reported."""
        with self._lock:
            overdue, self._late = self._late, {}
        late = [
            (n, *found)
            for found in overdue.items()
            for n in {receipt.queue for receipt in found[1]}
            if n in self._queues
        ]
        self._each_case(self._log_late, late)
        now = time.monotonic()
        for dead_worker in list(self._dead_workers):
            dead_worker.repeat_check(now)
        self._each_case(
            self._settle,
            [(n, dead_worker) for dead_worker in list(self._dead_workers) for n in sorted(dead_worker.queues)],
        )
        with self._lock:
            self._dead_workers = [
                dead_worker
                for dead_worker in self._dead_workers
                if dead_worker.queues or dead_worker.next_check < math.inf
            ]
            dead, self._dead_supervisors = self._dead_supervisors, {}
            unknown, self._unknown = self._unknown, set()
            unresponsive, self._unresponsive = self._unresponsive, {}
        self._hand_back(unresponsive)
        # One that was not reached is reported again by the next heartbeat.
        self._each_case(
            self._evict, RoundShares([(*found, membership) for found, membership in dead.items()], itemgetter(0))
        )
        self._each_case(self._remove_unknown, cases := RoundShares(unknown, itemgetter(0)))
        with self._lock:
            self._unknown.update(cases.left)
        self._each_case(self._count, [(number, 0) for number in +self._uncounted])
        next_check = (
            min((dead_worker.next_check for dead_worker in self._dead_workers), default=math.inf) - time.monotonic()
        )
        return max(0.0, min(60.0 if self.is_done() else TRY_AGAIN, next_check))

    def _each_case(self, do: Callable[..., None], cases: Iterable[tuple[Any, ...]]) -> None:
        """Call `do` with each case. Its first item is the number of its queue."""
        self.each(cases, lambda case: do(*case), called=lambda case: self._queues[case[0]].name)

    def _step(self) -> None:
        """Note for the watchdog that it is not stuck, but has much to do."""
        self.progressed = time.monotonic()

    def _reclaim(self, number: int, consumer: str, evidence: Evidence) -> int:
        return reclaim(self._stores[number], number, consumer, evidence, step=self._step)

    def _settle(self, number: int, dead_worker: DeadWorker) -> None:
        moved = self._reclaim(number, dead_worker.consumer, dead_worker.evidence)
        dead_worker.queues.discard(number)
        self._settled(number, dead_worker.consumer)
        if moved:
            logger.warning("Reassigned %d messages of consumer %s", moved, dead_worker.consumer)
        is_first = number not in dead_worker.settled
        dead_worker.settled.add(number)
        self._count(number, moved if is_first else 0)

    def _hand_back(self, unresponsive: Mapping[str, Collection[Receipt]]) -> None:
        """Hand back what unresponsive consumers hold and have not started. One that is still so is reported again."""
        try:
            self._each_case(
                self._hand_back_unstarted, [(n, *found) for found in unresponsive.items() for n in self._queues]
            )
        finally:
            with self._lock:
                done = unresponsive.keys() & self._handed_back.keys() - self._unresponsive.keys()
                self._handed_back |= dict.fromkeys(done, time.monotonic())

    def _log_late(self, number: int, consumer: str, late: Collection[Receipt]) -> None:
        held, cancelled = self._stores[number].held_by(consumer, limit=BATCH), self._stores[number].cancel_requests()
        for item in held:
            if isinstance(item, Delivery) and Receipt.of(number, item.stream, item.entry) in late:
                about = (item.message.name, item.message.id, self._queues[number].name, consumer)
                request = cancelled.get(item.message.id)
                if request is not None and request.is_for(item):
                    logger.warning("Handler %s of message %r of queue %s was cancelled by force in consumer %s", *about)
                else:
                    logger.error("Handler %s of message %r of queue %s has exceeded its timeout in consumer %s", *about)

    def _hand_back_unstarted(self, number: int, consumer: str, started: Collection[Receipt]) -> None:
        if moved := hand_back_unstarted(self._stores[number], number, consumer, started):
            logger.warning("Reassigned %d messages of unresponsive consumer %s", moved, consumer)

    def _evict(self, number: int, supervisor: str, membership: Membership) -> None:
        evicted: list[str] = []
        store, members = self._stores[number], self._members[number]
        moved = reclaim_supervisor(store, members, number, supervisor, membership, evicted, step=self._step)
        with self._lock:
            self._dead_workers += [
                DeadWorker(consumer, Evidence(), settled={number}).check_repeatedly([number]) for consumer in evicted
            ]
        self._count(number, moved)

    def _remove_unknown(self, number: int, consumer: str, has_ended: bool) -> None:
        members = self._members[number]
        names, moved, evidence = [consumer], 0, Evidence(lost=not has_ended)
        if consumer.isprintable():
            moved = self._reclaim(number, consumer, evidence)
        else:
            # A crash in between leaves an unknown consumer with a printable name.
            names.append(new_owner := f"owner-{token()}")
            while members.claim(consumer, new_owner):
                moved += self._reclaim(number, new_owner, evidence)
        if moved:
            logger.warning("Handed back %d messages of consumer %a, which no supervisor announces", moved, consumer)
        members.leave(names)
        self._count(number, 0 if has_ended else moved)

    def _count(self, number: int, moved: int) -> None:
        """Count messages of dead consumers that others get. It comes last: without counters nothing else may fail.

        What Redis has assigned to a consumer that was stopped or dead already is handed back, and not counted again.
        """
        self._uncounted[number] += moved
        if count := self._uncounted[number]:
            for reply in self._session.pipeline([self._slots[number].add_total(RECOVERED, count)]):
                reply_or_raise(reply)
            self._uncounted[number] -= count
