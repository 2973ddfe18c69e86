"""Peers that exist in these tests only."""

from benchmarks.contenders import Contender


def peer(name, *, is_safest=False, skips=()):
    return Contender(
        name=name,
        module=f"benchmarks.peers.{name}",
        remaining=lambda client: 0,
        environment=name,
        one_by_one=1,
        bulk=1,
        handled=1,
        is_safest=is_safest,
        skips=frozenset(skips),
    )


A, B, SAFE = peer("queue-a"), peer("queue-b"), peer("queue-a, safest", is_safest=True)
