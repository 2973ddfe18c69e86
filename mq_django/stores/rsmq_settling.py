"""Outcomes of deliveries of an RSMQ queue to script calls."""

from collections.abc import Callable, Sequence

from mq_django.core.configs import RsmqConfig
from mq_django.core.keys import RsmqKeys
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Ack, Bury, Expire, HandBack, Retry, SetAside
from mq_django.core.rsmq_format import sent_micros
from mq_django.stores.base import Settlement
from mq_django.stores.settling import SettleCall, bury_args, calls_of, history_of, mark_of, set_aside_args
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command


def rsmq_calls(config: RsmqConfig, consumer: str, settlements: Sequence[Settlement]) -> list[SettleCall]:
    """Return the script calls that settle a batch for a consumer."""
    return calls_of(settlements, lambda kind, some: _BUILDERS[kind](config, consumer, some))


def _ack(config: RsmqConfig, consumer: str, some: Sequence[Settlement]) -> Command:
    return _command("rsmq_ack", config.keys, [], consumer, [settlement.delivery.entry for settlement in some])


def _retry(config: RsmqConfig, consumer: str, some: Sequence[Settlement]) -> Command:
    keys = config.keys
    args: list[Argument] = [keys.wake]
    for settlement in some:
        delivery, outcome, delay_ms, *_ = settlement
        assert isinstance(outcome, Retry)
        args += (delivery.entry, delay_ms, "1" if outcome.alone else "", history_of(consumer, settlement))
    return _command("rsmq_retry", keys, [keys.retried], consumer, args)


def _hand_back(config: RsmqConfig, consumer: str, some: Sequence[Settlement]) -> Command:
    keys = config.keys
    args: list[Argument] = [keys.wake]
    for delivery, outcome, *_ in some:
        assert isinstance(delivery, Delivery)
        assert isinstance(outcome, HandBack)
        sent = sent_micros(delivery.message.id)
        place = delivery.message.published_ms or 0 if sent is None else sent // 1000
        args += (delivery.entry, place, mark_of(outcome))
    return _command("rsmq_hand_back", keys, [], consumer, args)


def _bury(config: RsmqConfig, consumer: str, some: Sequence[Settlement]) -> Command:
    keys = config.keys
    args: list[Argument] = []
    flat, at = bury_args(consumer, some), 0
    while at < len(flat):
        count = int(flat[at + 2])
        fields = _named(flat[at + 3 : at + 3 + count], flat[at])
        args += (flat[at], fields[1], count, *fields)
        at += 3 + count
    return _command("rsmq_bury", keys, [keys.dead, keys.dead_ids, keys.dead_groups], consumer, args)


def _named(fields: Sequence[Argument], receipt: Argument) -> list[Argument]:
    """Return the fields of a dead letter with RSMQ's id of the message, also when it could not be decoded."""
    assert isinstance(receipt, bytes)
    return ["id", receipt.rpartition(b":")[0], *fields[2:]]


def _set_aside(config: RsmqConfig, consumer: str, some: Sequence[Settlement]) -> Command:
    keys = config.keys
    # For as long as a peer gets that receives it.
    args: list[Argument] = [config.vt * 1000]
    flat = set_aside_args(some)
    for at in range(0, len(flat), 4):
        args += (flat[at], flat[at + 2])
    return _command("rsmq_set_aside", keys, [keys.unhandled], consumer, args)


def _command(script: str, keys: RsmqKeys, more: Sequence[str], consumer: str, args: Sequence[Argument]) -> Command:
    key_names = [keys.zset, keys.hash, keys.owners, keys.notes, *more]
    return scripts.command(script, keys=key_names, args=[consumer, *args])


_Builder = Callable[[RsmqConfig, str, Sequence[Settlement]], Command]
_BUILDERS: dict[type, _Builder] = {
    Ack: _ack,
    Expire: _ack,
    Retry: _retry,
    HandBack: _hand_back,
    Bury: _bury,
    SetAside: _set_aside,
}
