"""Why limits hold one message up: how it stands with them. Nothing here changes anything."""

import hashlib
from typing import NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.limits import Rate
from mq_django.core.numbers import score_ms, whole
from mq_django.transport.sessions import Wire, reply_or_raise


class KeyStanding(NamedTuple):
    """How a parked message stands with the limits of its key."""

    #: Others of its key that stand before it.
    before: int
    #: Deliveries of its key that hold a permit.
    at_once: int
    #: Milliseconds until its key is looked at again; None when nobody looks.
    next_ms: int | None


class QueueStanding(NamedTuple):
    """How a queue stands with its own limits."""

    #: As many are handled as may be.
    is_full: bool
    #: Milliseconds until the rate allows another; 0: now.
    next_ms: int


class Standings:
    """How what waits in one queue stands with its limits."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._keys = config.keys
        self._limits = config.limits
        self._wire = wire

    def of_key(self, key: str, member: bytes) -> KeyStanding:
        """Return how the message that is parked under `member` stands with the limits of its key."""
        keys, score = self._keys, _score(key)
        replies = self._wire.trip(
            [
                ("ZRANK", keys.parked, member),
                ("ZCOUNT", keys.parked, "-inf", f"({score}"),
                ("ZCOUNT", keys.permits, score, score),
                ("ZSCORE", keys.turns, key),
                ("TIME",),
            ]
        )
        rank, others, at_once, turn, (seconds, micros) = (reply_or_raise(reply) for reply in replies)
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        turn_ms = score_ms(turn)
        next_ms = None if turn_ms is None else max(0, turn_ms - now_ms)
        return KeyStanding(max(0, (rank or 0) - others), at_once, next_ms)

    def of_queue(self, pending: int) -> QueueStanding:
        """Return how the queue stands with its own limits, while `pending` messages are held."""
        most, rate = self._limits.concurrency, self._limits.rate
        is_full = most is not None and pending >= most
        return QueueStanding(is_full, 0 if rate is None else self._until_free(rate))

    def _until_free(self, rate: Rate) -> int:
        log, time = self._wire.trip([("HGET", self._keys.limits, "r"), ("TIME",)])
        seconds, micros = reply_or_raise(time)
        now = int(seconds) * 1_000_000 + int(micros)
        grants = [word.partition(b":") for word in (reply_or_raise(log) or b"").split()]
        counted = [(whole(at) or 0, whole(count) or 0) for at, _, count in grants]
        used = [(at, count) for at, count in counted if at >= now - rate.micros]
        if sum(count for _, count in used) < rate.count:
            return 0
        return max(1, (used[0][0] + rate.micros + 1 - now) // 1000)


def _score(key: str) -> int:
    """Return the score under which what belongs to a key stands, as `lua/parts/limits.lua` makes it."""
    return int(hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:13], 16)
