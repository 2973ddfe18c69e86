"""How deliveries of an RSMQ queue are settled: the messages stay in RSMQ's keys, and are hidden, shown or removed."""

from collections.abc import Mapping, Sequence

from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Ack, Bury, Expire, HandBack, Retry, SetAside
from mq_django.core.rsmq_config import RsmqConfig
from mq_django.core.rsmq_format import sent_micros
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letter_fields import history_of
from mq_django.stores.settling import DEAD, Receipts, Transition, buried, entries, mark_of
from mq_django.stores.waiting_room import name_score
from mq_django.transport.scripts import Argument


def rsmq_receipts(config: RsmqConfig) -> Receipts:
    """Return how deliveries of an RSMQ queue are settled."""
    keys, vt_ms = config.keys, config.vt * 1000
    return Receipts(keys, (keys.zset, keys.hash, keys.owners), (), _RSMQ, "rsmq_reassign", (vt_ms,), id_of=_id_of)


def _id_of(delivery: Delivery | Undecodable) -> bytes:
    """Return RSMQ's id of a message, which is a part of the receipt."""
    return delivery.entry.rpartition(b":")[0]


def _retried(batch: Sequence[Settlement], consumer: str, receipts: Receipts) -> list[Argument]:
    """Return a channel, and for each delivery: its receipt, ms from now, "1" or "free", its history.

    "1": it must run alone; "free": this receive is no attempt.
    """
    args: list[Argument] = [receipts.queue.wake]
    for settlement in batch:
        delivery, outcome, delay_ms, *_ = settlement
        assert isinstance(outcome, Retry)
        mark = "1" if settlement.alone else "free" if settlement.uncharged else ""
        args += (delivery.entry, delay_ms, mark, history_of(consumer, settlement))
    return args


def _handed_back(batch: Sequence[Settlement], _consumer: str, receipts: Receipts) -> list[Argument]:
    """Return a channel, and for each delivery: its receipt, when it was sent, its mark."""
    args: list[Argument] = [receipts.queue.wake]
    for delivery, outcome, *_ in batch:
        assert isinstance(delivery, Delivery)
        assert isinstance(outcome, HandBack)
        sent = sent_micros(delivery.message.id)
        place = delivery.message.published_ms or 0 if sent is None else sent // 1000
        args += (delivery.entry, place, mark_of(outcome))
    return args


def _set_aside(batch: Sequence[Settlement], _consumer: str, receipts: Receipts) -> list[Argument]:
    """Return the ms to hide deliveries, and for each delivery: its receipt, the score of its name."""
    args: list[Argument] = [*receipts.hidden_ms]
    for delivery, *_ in batch:
        assert isinstance(delivery, Delivery)
        args += (delivery.entry, name_score(delivery.message.name))
    return args


_RSMQ: Mapping[type, Transition] = {
    Ack: Transition("rsmq_ack", ("notes",), entries),
    Expire: Transition("rsmq_ack", ("notes",), entries),
    Retry: Transition("rsmq_retry", ("notes", "retried"), _retried),
    HandBack: Transition("rsmq_hand_back", ("notes",), _handed_back),
    Bury: Transition("rsmq_bury", ("notes", *DEAD), buried),
    SetAside: Transition("rsmq_set_aside", ("notes", "unhandled"), _set_aside),
}
