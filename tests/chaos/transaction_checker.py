"""Decide whether each committed order was published once and had its effects once. Pure, like checker.py.

T1  each committed order is once in the log of its topic, and each queue has as many publishes as it should have
T2  nothing is published, and has effects, of an order that was not committed
T3  each committed order is booked once, and what was booked is entered once
T4  the orders of a key are booked in the order in which they were committed: their queue has ORDERED, and a topic none
T5  no transaction of a writer fails
T6  in the end no row and no claim is left in the outbox, no message in a queue, no dead letter; and no process gives up
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.checker import Verdict, Violation
from tests.chaos.history import Event
from tests.chaos.settings import LEDGER, ORDERS

#: Sentences of one kind that are written out.
SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class TransactionEnding:
    """What is there when everything has stopped."""

    #: The committed orders: id -> key and number.
    orders: Mapping[str, tuple[str, int]]
    #: Their ids in the log of the topic, in its order.
    log: Sequence[str]
    #: How many messages Redis has counted as published, by queue.
    published: Mapping[str, int]
    #: The ids of the orders with effects of either handler, in the order of the effects.
    booked: Sequence[str]
    entered: Sequence[str]
    #: Rows of the outbox, and claims that are open or stopped.
    rows: int = 0
    claims: int = 0
    #: Messages in the queues.
    queued: int = 0
    #: The queues of the dead letters.
    dead: Sequence[str] = ()
    is_drained: bool = True
    #: Sentences about processes that ended by themselves.
    given_up: Sequence[str] = field(default_factory=list)


def check_transactions(events: Iterable[Event], ending: TransactionEnding) -> Verdict:
    """Return the verdict on one run, from its events and its end."""
    events = list(events)
    orders, verdict = ending.orders, Verdict(faults=sum(event.what == "fault" for event in events))
    # Rows of the outbox: an order has one for the queue and one for the topic, and its booking one.
    verdict.messages = 3 * len(orders)
    verdict.keys = len({key for key, _ in orders.values()})
    verdict.violations += _once(verdict, "T1", "in the log", ending.log, orders)
    verdict.violations += _counts(verdict, ending)
    verdict.violations += _once(verdict, "T3", "booked", ending.booked, orders)
    verdict.violations += _once(verdict, "T3", "entered", ending.entered, orders)
    late = list(_late(ending.booked, orders))
    verdict.inversions = len(late)
    verdict.violations += [Violation("T4", f"order {order} is booked late", [order]) for order in late[:SHOWN]]
    refused = [event.told["error"] for event in events if event.what == "refused"]
    verdict.violations += [Violation("T5", f"{count} writers got {error}") for error, count in Counter(refused).items()]
    verdict.violations += [Violation("T6", sentence) for sentence in _rest(ending)]
    return verdict


def _once(
    verdict: Verdict, invariant: str, what: str, found: Sequence[str], orders: Mapping[str, tuple[str, int]]
) -> Iterator[Violation]:
    times = Counter(found)
    lost = [order for order in orders if not times[order]]
    doubled = [order for order, number in times.items() if number > 1]
    foreign = [order for order in times if order not in orders]
    verdict.lost += len(lost)
    verdict.duplicates += sum(times[order] - 1 for order in doubled)
    verdict.duplicates_without_fault += sum(times[order] - 1 for order in doubled)
    for kind, some, word in ((invariant, lost, "is not"), (invariant, doubled, "is several times")):
        if some:
            yield Violation(kind, f"{len(some)} orders: each {word} {what}: {', '.join(some[:SHOWN])}", some[:SHOWN])
    if foreign:
        yield Violation("T2", f"{len(foreign)} orders are {what}, and were not committed: {', '.join(foreign[:SHOWN])}")


def _counts(verdict: Verdict, ending: TransactionEnding) -> Iterator[Violation]:
    """Compare what Redis has counted with what there should be: another delivery is not counted."""
    for queue, number in ((ORDERS, len(ending.orders)), (LEDGER, len(ending.booked))):
        found = ending.published.get(queue, 0)
        if found != number:
            verdict.duplicates += max(0, found - number)
            yield Violation("T1", f"Redis has counted {found} publishes to {queue}, and there should be {number}")


def _late(found: Sequence[str], orders: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """Yield the orders that come after a later one of their key."""
    latest: dict[str, int] = {}
    for order in found:
        if order in orders:
            key, number = orders[order]
            if number < latest.get(key, 0):
                yield order
            latest[key] = max(number, latest.get(key, 0))


def _rest(ending: TransactionEnding) -> Iterator[str]:
    yield from ending.given_up
    if not ending.is_drained:
        yield "not everything was worked off"
    for number, what in ((ending.rows, "rows of the outbox"), (ending.claims, "claims"), (ending.queued, "messages")):
        if number:
            yield f"{number} {what} are left"
    for queue, number in Counter(ending.dead).items():
        yield f"{number} messages of {queue} are dead letters"
