# /// script
# dependencies = ["dramatiq[redis]==2.2.1", "hiredis==3.5.0", "orjson==3.13.0"]
#
# [tool.bench]
# name = "Dramatiq"
# # A hash of everything that is ready or taken and not acked.
# remaining = "redis.call('hlen', 'dramatiq:bench0.msgs')"
# one_by_one = 8000
# bulk = 0
# handled = 12000
# fast = "8 threads, prefetch 200, no middleware but Retries, orjson, maintenance one command in a million"
# safe = "8 threads, prefetch 8, maintenance every tenth command, a worker is gone after 5 s without heartbeat"
# ///
"""Dramatiq. It acks after handling, in both settings."""

import os
import sys
from typing import Any

import dramatiq
import orjson
from dramatiq.brokers.redis import RedisBroker
from dramatiq.encoder import Encoder
from dramatiq.middleware import Retries

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST
QUEUE = messages.queue_name(0)


class FastEncoder(Encoder):
    """The documented way to use another JSON library."""

    def encode(self, data: dict[str, Any]) -> bytes:
        return orjson.dumps(data)

    def decode(self, data: bytes) -> dict[str, Any]:
        return orjson.loads(data)


safest = {"heartbeat_timeout": 5000, "maintenance_chance": 100_000}
broker = RedisBroker(
    url=messages.URL,
    middleware=None if IS_SAFEST else [Retries()],
    **(safest if IS_SAFEST else {"maintenance_chance": 1}),
)
dramatiq.set_broker(broker)
if not IS_SAFEST:
    dramatiq.set_encoder(FastEncoder())


@dramatiq.actor(queue_name=QUEUE)
def handle(kind: str, data: dict[str, Any]) -> None:
    messages.handle(kind, data)


def publish(kind: str, data: dict[str, Any]) -> None:
    handle.send(kind, data)


def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    handle.send_with_options(args=(kind, data), delay=int(delay * 1000))


def consumer(processes: int, threads: int) -> list[str]:
    os.environ["dramatiq_queue_prefetch"] = str(threads) if IS_SAFEST else "200"  # noqa: SIM112 - so it is called
    words = ["--processes", str(processes), "--threads", str(threads)]
    return [sys.executable, "-m", "dramatiq", "benchmarks.peers.dramatiq", *words]
