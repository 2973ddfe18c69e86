"""Take over the deliveries of consumers that died."""

import logging

from mq_django.consumers.board import HANDLED, Board, Receipt
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import ACK, Bury, HandBack, Outcome, Retry
from mq_django.registry import find
from mq_django.stores.base import Settlement, Store
from mq_django.stores.members import Members, Roll
from mq_django.stores.results import settled_commands

logger = logging.getLogger(__name__)

#: Deliveries settled in one trip.
BATCH = 500


def reclaim_child(number: int, store: Store, members: Members, consumer: str, board: Board) -> int:
    """Settle what a dead child held in one queue, as its board tells, and return how many messages go on elsewhere.

    What was handled is acked; what was running is charged an attempt, and runs alone next time, because it may be what
    killed the process; the rest is handed back.
    """
    results = board.results()
    running = {item.receipt for item in board.running()}
    moved = 0
    while held := store.held_by(consumer, limit=BATCH):
        settlements = [_judged(store, number, item, results, running) for item in held]
        store.settle(consumer, settlements, also=settled_commands(store.config, consumer, settlements))
        moved += sum(not isinstance(settlement.outcome, type(ACK)) for settlement in settlements)
    members.leave([consumer])
    return moved


def _judged(
    store: Store,
    number: int,
    item: Delivery | Undecodable,
    results: dict[Receipt, int],
    running: set[Receipt],
) -> Settlement:
    if isinstance(item, Undecodable):
        return Settlement(item, Bury(item.reason, reason="undecodable"))
    receipt = Receipt(number, item.home, item.entry)
    if receipt in results:
        if results[receipt] == HANDLED:
            return Settlement(item, ACK, keeps_result=_keeps_result(item))
        return _charged(store, item, Retry(error="failed, and its process died before that was settled"), "attempts")
    if receipt in running:
        return _charged(store, item, Retry(error="running when its process died", alone=True), "crashed")
    return Settlement(item, HandBack())


def _charged(store: Store, item: Delivery, outcome: Retry, reason: str) -> Settlement:
    attempt, policy = item.message.attempt, store.config.retry
    if policy.exhausted(attempt, default_max=store.config.max_attempts):
        buried: Outcome = Bury(outcome.error, reason=reason)
        return Settlement(item, buried, keeps_result=_keeps_result(item))
    delay_ms = 0 if outcome.alone else policy.delay_ms(attempt)
    return Settlement(item, outcome, delay_ms, keeps_result=_keeps_result(item))


def _keeps_result(item: Delivery) -> bool:
    handler = find(item.message.queue, item.message.name)
    return handler is not None and handler.keeps_result


def reclaim_supervisor(store: Store, members: Members, supervisor: str, roll: Roll) -> None:
    """Hand back everything that the consumers of a silent supervisor hold, uncharged, and strike them off the roll."""
    consumers = [name for name, told in roll.consumers.items() if told.get("supervisor") == supervisor]
    moved = sum(_hand_back_all(store, consumer) for consumer in consumers)
    members.leave(consumers, supervisor=supervisor)
    logger.warning(
        "Supervisor %s of queue %s is silent: %d messages of its %d consumers go to others",
        *(supervisor, store.config.name, moved, len(consumers)),
    )


def _hand_back_all(store: Store, consumer: str) -> int:
    moved = 0
    while held := store.held_by(consumer, limit=BATCH):
        settlements = [_handed_back(item) for item in held]
        store.settle(consumer, settlements)
        moved += len(held)
    return moved


def _handed_back(item: Delivery | Undecodable) -> Settlement:
    if isinstance(item, Undecodable):
        return Settlement(item, Bury(item.reason, reason="undecodable"))
    return Settlement(item, HandBack())
