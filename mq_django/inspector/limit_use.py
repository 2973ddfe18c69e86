"""The usage of a queue's limits, and the keys with parked messages. Read-only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.numbers import whole
from mq_django.inspector.noisy_keys import KeyShare, noisy_command, noisy_keys
from mq_django.stores.line_store import LineStore
from mq_django.transport.fan_out import fan_out
from mq_django.transport.sessions import Wire, reply_or_raise


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """A key that has parked messages."""

    key: str
    parked: int
    #: Deliveries granted in the window that ends now; 0 when keys have no rate.
    granted: int
    #: Permits in use; 0 when keys have no rate and no concurrency.
    concurrent: int
    #: When its parked messages are checked next at the latest, in ms since 1970.
    next_check_ms: int
    #: The name of its line: see `mq_django.inspector.key_lines.line_of()`.
    hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """The usage of the limits in `QueueConfig.limits`, by the clock of Redis."""

    now_ms: int
    #: Deliveries granted in the window that ends now; 0 when the queue has no rate.
    granted: int
    #: Pending deliveries.
    concurrent: int
    #: Parked messages, and the number of their keys.
    parked: int
    keys: int
    #: A page of these keys, in the order of their next checks.
    page: Sequence[KeyUse]
    #: The keys with the most messages of those that were fetched in this hour.
    noisiest: Sequence[KeyShare] = ()


def limit_use(config: QueueConfig, wire: Wire, *, start: int = 0, count: int = 50) -> LimitUse:
    """Return the usage of a queue's limits, and `count` of the keys with parked messages from `start` on."""
    return limit_uses([config], [wire], start=start, count=count)[0]


def limit_uses(
    configs: Sequence[QueueConfig], wires: Sequence[Wire], *, start: int = 0, count: int = 50
) -> list[LimitUse]:
    """Return the same of several queues, each of which has its wire: one round trip per server."""
    trips = [
        [LineStore(config, wire).look_command(start, count), noisy_command(config)]
        for config, wire in zip(configs, wires, strict=True)
    ]
    return [_use(config, *replies) for config, replies in zip(configs, fan_out(wires, trips), strict=True)]


def _use(config: QueueConfig, reply: Any, sketch: Any) -> LimitUse:
    now_ms, granted, concurrent, parked, keys, *rows = reply_or_raise(reply)
    page = [
        KeyUse(
            key=key.decode(errors="replace"),
            parked=waits,
            granted=used,
            concurrent=held,
            next_check_ms=next_check,
            hash=whole(key_hash) or 0,
        )
        for key, waits, used, held, next_check, key_hash in zip(*[iter(rows)] * 6, strict=True)
    ]
    return LimitUse(
        now_ms=now_ms,
        granted=granted,
        concurrent=concurrent,
        parked=parked,
        keys=keys,
        page=page,
        noisiest=noisy_keys(sketch) if config.limits.of_keys else (),
    )


def summed_use(found: Sequence[LimitUse], of_whole: LimitUse, *, count: int) -> LimitUse:
    """Return the usage of the limits of a queue with partitions, without the most frequent keys.

    The share of a key is that of its partition.
    """
    page = sorted((key for each in found for key in each.page), key=lambda key: key.next_check_ms)
    return LimitUse(
        now_ms=max(each.now_ms for each in found),
        granted=of_whole.granted,
        concurrent=sum(each.concurrent for each in found),
        parked=sum(each.parked for each in found),
        keys=sum(each.keys for each in found),
        page=page[:count],
    )
