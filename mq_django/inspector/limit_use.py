"""How far the limits of a queue are used, and which messages wait for them. Nothing here changes anything."""

from collections.abc import Sequence
from dataclasses import dataclass

from mq_django.conf import QueueConfig
from mq_django.stores.limited_store import LimitedStore
from mq_django.transport.sessions import Wire, reply_or_raise


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """A key that has parked messages."""

    key: str
    parked: int
    #: Deliveries granted in the window that ends now; 0 when keys have no rate.
    granted: int
    #: Permits in use; 0 when keys have no rate and no concurrency.
    at_once: int
    #: When its next message may be ready, in ms since 1970: at the latest, for a settled delivery makes it sooner.
    turn_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """A queue's limits, which `QueueConfig.limits` says, and how far they are used. By Redis's clock."""

    now_ms: int
    #: Deliveries granted in the window that ends now; 0 when the queue has no rate.
    granted: int
    #: Deliveries being handled.
    at_once: int
    #: Messages that wait for a permit of their key, and keys that have some.
    parked: int
    keys: int
    #: Some of these keys, those whose turn is next coming first.
    page: Sequence[KeyUse]


def limit_use(config: QueueConfig, wire: Wire, *, start: int = 0, count: int = 50) -> LimitUse:
    """Look at a queue's limits, and at `count` of the keys that wait, from the `start`th on."""
    (reply,) = wire.trip([LimitedStore(config, wire).look_command(start, count)])
    now_ms, granted, at_once, parked, keys, *rows = reply_or_raise(reply)
    page = [
        KeyUse(key=key.decode(errors="replace"), parked=waits, granted=used, at_once=held, turn_ms=turn)
        for key, waits, used, held, turn in zip(*[iter(rows)] * 5, strict=True)
    ]
    return LimitUse(now_ms=now_ms, granted=granted, at_once=at_once, parked=parked, keys=keys, page=page)
