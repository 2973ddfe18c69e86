"""Outcomes of deliveries of a topic's log to script calls."""

from collections.abc import Callable, Sequence

from mq_django.core.keys import GroupKeys
from mq_django.core.outcomes import Ack, Bury, Expire, HandBack, Retry, SetAside
from mq_django.stores.base import Settlement
from mq_django.stores.settling import SettleCall, bury_args, calls_of, hand_back_args, retry_args, set_aside_args
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command


def log_calls(keys: GroupKeys, consumer: str, settlements: Sequence[Settlement]) -> list[SettleCall]:
    """Return the script calls that settle deliveries of the log for a consumer."""
    return calls_of(settlements, lambda kind, some: _BUILDERS[kind](keys, consumer, some))


def _ack(keys: GroupKeys, consumer: str, some: Sequence[Settlement]) -> Command:
    return _command("topic_ack", keys, [], consumer, [settlement.delivery.entry for settlement in some])


def _hand_back(keys: GroupKeys, consumer: str, some: Sequence[Settlement]) -> Command:
    return _command("topic_hand_back", keys, [keys.ready], consumer, hand_back_args(some))


def _retry(keys: GroupKeys, consumer: str, some: Sequence[Settlement]) -> Command:
    return _command("topic_retry", keys, [keys.due, keys.waiting], consumer, [keys.wake, *retry_args(consumer, some)])


def _set_aside(keys: GroupKeys, consumer: str, some: Sequence[Settlement]) -> Command:
    return _command("topic_set_aside", keys, [keys.unhandled, keys.waiting], consumer, set_aside_args(some))


def _bury(keys: GroupKeys, consumer: str, some: Sequence[Settlement]) -> Command:
    key_names = [keys.dead, keys.dead_ids, keys.dead_groups]
    return _command("topic_bury", keys, key_names, consumer, bury_args(consumer, some))


def _command(script: str, keys: GroupKeys, own: Sequence[str], consumer: str, args: Sequence[Argument]) -> Command:
    return scripts.command(script, keys=[keys.topic.log, keys.control, *own], args=[keys.group, consumer, *args])


_Builder = Callable[[GroupKeys, str, Sequence[Settlement]], Command]
_BUILDERS: dict[type, _Builder] = {
    Ack: _ack,
    Expire: _ack,
    Retry: _retry,
    HandBack: _hand_back,
    Bury: _bury,
    SetAside: _set_aside,
}
