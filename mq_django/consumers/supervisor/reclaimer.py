"""Take over the deliveries of consumers that are gone."""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import Evidence, settlement
from mq_django.consumers.service import Service
from mq_django.consumers.settlements import settle_for
from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.core.ids import token
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Ack
from mq_django.stores import open_members, open_store
from mq_django.stores.base import Store
from mq_django.stores.members import Members, Membership
from mq_django.transport.connections import BLOCK_MS, open_session

logger = get_logger(__name__)

#: Deliveries settled in one trip.
BATCH = 500
#: Seconds until what one queue refused is tried again.
TRY_AGAIN = 1.0
#: Seconds between two looks at a dead consumer to which more may come, and until the last: a blocked read of it ends by
#: then, as does the trip of a consumer that passes something on to it.
LOOK_AGAIN, LAST_LOOK = 0.5, BLOCK_MS / 1000 + 1.5


@dataclass(slots=True)
class DeadWorker:
    """A process that is gone, and the queues in which it may still hold something."""

    consumer: str
    evidence: Evidence
    #: Those of its queues that are still to be looked into.
    queues: set[int] = field(default_factory=set)
    again: frozenset[int] = frozenset()
    #: When to look into all of `again`, and for the last time, in seconds on the monotonic clock.
    due: float = math.inf
    last: float = 0.0

    def look_again(self, now: float) -> None:
        """Set it up for another look when that is due."""
        if now >= self.due:
            self.queues = set(self.again)
            self.due = now + LOOK_AGAIN if now < self.last else math.inf

    def linger(self, queues: Iterable[int]) -> "DeadWorker":
        """Set it up for looks until nothing more can come to it."""
        self.again = frozenset(queues)
        self.due, self.last = time.monotonic() + LOOK_AGAIN, time.monotonic() + LAST_LOOK
        return self


def evidence_of(shared_state: SharedState, *, late: bool, now: float, lingers: bool = False) -> Evidence:
    """Return what a dead child's shared state tells; with `late` it had to go because of a handler past its timeout."""
    results = shared_state.results()
    running = {item.receipt for item in shared_state.running()} - results.keys()
    return Evidence(results=results, running=running, late=shared_state.late(now) if late else (), lingers=lingers)


def reclaim(store: Store, number: int, consumer: str, evidence: Evidence) -> int:
    """Settle everything that a consumer holds in one queue; return how many messages go on elsewhere."""
    moved = 0
    while held := store.held_by(consumer, limit=BATCH):
        batch = [settlement(store.config, number, item, evidence) for item in held]
        stale = settle_for(store, consumer, batch)
        if len(stale) >= len(batch):
            # What is held and cannot be settled would be found again and again: others are to have their turn.
            break
        moved += sum(not isinstance(done.outcome, Ack) for done in batch)
    return moved


def hand_back_unbegun(store: Store, number: int, consumer: str, spared: Collection[Receipt]) -> int:
    """Hand back what a consumer that does not respond holds and has not begun; return how many messages."""
    held = store.held_by(consumer, limit=BATCH + len(spared))
    batch = [
        settlement(store.config, number, item, Evidence())
        for item in held
        if Receipt.of(number, item.home, item.entry) not in spared
    ]
    return len(batch) - len(settle_for(store, consumer, batch)) if batch else 0


def reclaim_supervisor(
    store: Store, members: Members, number: int, supervisor: str, membership: Membership, gone: list[str]
) -> int:
    """Take a supervisor for dead and hand back what its consumers hold, uncharged; return how many messages.

    Adds its consumers to `gone`, unless it turns out to live.

    Nobody knows what was running. A message that is lost like this twice runs alone from then on, in a quarantine. What
    a quarantine held is charged. So a message that brings machines down is buried, too, and its neighbours are not
    charged.
    """
    if not members.evict(supervisor, membership.beats.get(supervisor, -1)):
        return 0
    consumers = membership.consumers_of(supervisor)
    gone += consumers
    moved = 0
    for consumer in consumers:
        moved += reclaim(
            store, number, consumer, Evidence(lost=True, alone=bool(membership.consumers[consumer].get("ward")))
        )
    members.leave(consumers, supervisor=supervisor)
    logger.log(
        logging.WARNING if moved else logging.INFO,
        "Supervisor %s of queue %s is gone: %d messages of its %d consumers go to others",
        *(supervisor, store.config.name, moved, len(consumers)),
    )
    return moved


class Reclaimer(Service):
    """Settles for the dead, beside the supervisor's other work: Redis may be slow or away just then."""

    name = "reclaimer"

    def __init__(self, queues: Sequence[QueueConfig], *, settled: Callable[[int, str], None]) -> None:
        super().__init__()
        session = open_session("chores")
        self._queues = queues
        self._stores = [open_store(config, session) for config in queues]
        self._members = [open_members(config, session) for config in queues]
        #: Told a queue and a consumer that holds nothing there any more.
        self._settled = settled
        self._dead_workers: list[DeadWorker] = []
        self._dead: dict[tuple[int, str], Membership] = {}
        self._unknown: set[tuple[int, str]] = set()
        self._stopped: dict[str, Collection[Receipt]] = {}
        self._late: dict[str, Collection[Receipt]] = {}
        self._posting = threading.Lock()

    def child(self, consumer: str, evidence: Evidence) -> None:
        """Settle for a child that is gone; until that is done, however often Redis refuses."""
        queues = range(len(self._queues))
        dead_worker = DeadWorker(consumer, evidence, set(queues))
        if evidence.lingers:
            dead_worker.linger(queues)
        with self._posting:
            self._dead_workers.append(dead_worker)
        self.wake()

    def stopped(self, consumer: str, spared: Collection[Receipt]) -> None:
        """Hand back what a consumer holds that does not respond, but for what it has begun."""
        with self._posting:
            self._stopped[consumer] = spared
        self.wake()

    def late(self, consumer: str, late: Collection[Receipt]) -> None:
        """Log the handlers and the messages of what a consumer has run past its timeout."""
        with self._posting:
            self._late[consumer] = late
        self.wake()

    def supervisor(self, number: int, supervisor: str, membership: Membership) -> None:
        """Reclaim from a dead supervisor's consumers; who finds it dead says so every round."""
        with self._posting:
            self._dead[number, supervisor] = membership
        self.wake()

    def unknown(self, number: int, consumer: str) -> None:
        """Hand back what an unknown consumer holds, which no supervisor announces, and remove it."""
        with self._posting:
            self._unknown.add((number, consumer))
        self.wake()

    def is_done(self) -> bool:
        """Tell whether nothing of our own children is left to settle, as far as is known."""
        return not any(dead_worker.queues for dead_worker in self._dead_workers)

    def run_once(self) -> float:
        """Settle for everybody who was reported."""
        with self._posting:
            overdue, self._late = self._late, {}
        named = [(n, *found) for found in overdue.items() for n in {receipt.queue for receipt in found[1]}]
        self._apart(self._name, named)
        now = time.monotonic()
        for dead_worker in list(self._dead_workers):
            dead_worker.look_again(now)
        self._apart(
            self._settle,
            [(n, dead_worker) for dead_worker in list(self._dead_workers) for n in sorted(dead_worker.queues)],
        )
        with self._posting:
            self._dead_workers = [
                dead_worker for dead_worker in self._dead_workers if dead_worker.queues or dead_worker.due < math.inf
            ]
            dead, self._dead = self._dead, {}
            unknown, self._unknown = self._unknown, set()
            stopped, self._stopped = self._stopped, {}
        self._apart(
            self._hand_back_unbegun, [(n, *found) for found in stopped.items() for n in range(len(self._queues))]
        )
        self._apart(self._evict, [(*found, membership) for found, membership in dead.items()])
        self._apart(self._strike, unknown)
        due = min((dead_worker.due for dead_worker in self._dead_workers), default=math.inf) - time.monotonic()
        return max(0.0, min(60.0 if self.is_done() else TRY_AGAIN, due))

    def _apart(self, do: Callable[..., None], cases: Iterable[tuple[Any, ...]]) -> None:
        """Call `do` with each case, whose first part is the number of its queue."""
        self.each(cases, lambda case: do(*case), called=lambda case: self._queues[case[0]].name)

    def _settle(self, number: int, dead_worker: DeadWorker) -> None:
        moved = reclaim(self._stores[number], number, dead_worker.consumer, dead_worker.evidence)
        dead_worker.queues.discard(number)
        self._settled(number, dead_worker.consumer)
        if moved:
            logger.warning("%d messages of consumer %s go to others", moved, dead_worker.consumer)

    def _name(self, number: int, consumer: str, late: Collection[Receipt]) -> None:
        held = self._stores[number].held_by(consumer, limit=BATCH)
        for item in held:
            if isinstance(item, Delivery) and Receipt.of(number, item.home, item.entry) in late:
                about = (item.message.name, item.message.id, self._queues[number].name, consumer)
                logger.error("Handler %s of message %r of queue %s runs past its timeout in consumer %s", *about)

    def _hand_back_unbegun(self, number: int, consumer: str, spared: Collection[Receipt]) -> None:
        if moved := hand_back_unbegun(self._stores[number], number, consumer, spared):
            logger.warning("%d messages of consumer %s, which does not respond, go to others", moved, consumer)

    def _evict(self, number: int, supervisor: str, membership: Membership) -> None:
        gone: list[str] = []
        reclaim_supervisor(self._stores[number], self._members[number], number, supervisor, membership, gone)
        with self._posting:
            self._dead_workers += [DeadWorker(consumer, Evidence()).linger([number]) for consumer in gone]

    def _strike(self, number: int, consumer: str) -> None:
        members, store = self._members[number], self._stores[number]
        names, moved = [consumer], 0
        if consumer.isprintable():
            moved = reclaim(store, number, consumer, Evidence(lost=True))
        else:
            # A process that dies in between leaves an unknown consumer whose name is text.
            names.append(new_owner := f"owner-{token()}")
            while members.claim(consumer, new_owner):
                moved += reclaim(store, number, new_owner, Evidence(lost=True))
        if moved:
            logger.warning("Handed back %d messages of consumer %a, which no supervisor announces", moved, consumer)
        members.leave(names)
