# /// script
# dependencies = ["saq[redis,hiredis]==0.26.4", "orjson==3.13.0", "uvloop", "typing_extensions"]
#
# [tool.bench]
# name = "SAQ"
# remaining = "redis.call('zcard', 'saq:bench0:incomplete')"
# one_by_one = 7000
# bulk = 0
# handled = 4500
# fast = "concurrency 8, ORJSON, uvloop, nothing kept of a job that is done, a timer of 1 s for delays"
# safe = "concurrency 8, results kept, stuck jobs looked for each second, heartbeat of 5 s, 3 retries"
# ///
"""SAQ."""

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import uvloop
from saq.queue.redis import RedisQueue

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
json: dict[str, Any] = {} if IS_SAFEST else {"dump": orjson.dumps, "load": orjson.loads}
queue = RedisQueue.from_url(messages.URL, name=messages.queue_name(0), **json)
OPTIONS = {"heartbeat": 5, "retries": 3, "ttl": 600} if IS_SAFEST else {"ttl": -1}


async def handle(_context: Any, *, kind: str, data: dict[str, Any]) -> None:
    await messages.handle_async(kind, data)


settings = {
    "queue": queue,
    "functions": [handle],
    "concurrency": messages.THREADS,
    "timers": {"schedule": 1, "sweep": 1 if IS_SAFEST else 60},
}


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    await queue.connect()
    yield
    await queue.disconnect()


async def publish(kind: str, data: dict[str, Any]) -> None:
    await queue.enqueue("handle", kind=kind, data=data, **OPTIONS)


async def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    # Its due times are whole seconds: rounded up, so that none is early.
    due = math.ceil(time.time() + delay)
    await queue.enqueue("handle", kind=kind, data=data, scheduled=due, **OPTIONS)


def consumer(processes: int, _threads: int) -> list[str]:
    return [sys.executable, "-m", "saq", "benchmarks.peers.saq.settings", "--workers", str(processes), "--quiet"]
