# /// script
# dependencies = ["streaq==7.2.0", "orjson==3.13.0", "uvloop", "redis", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "streaQ"
# remaining = "redis.call('xlen', 'streaq:bench0:queues:normal')"
# one_by_one = 4000
# bulk = 12000
# handled = 3000
# fast = "concurrency 8, prefetch 200, ORJSON, uvloop, no results kept"
# safe = "concurrency 8, prefetch 1, results kept, messages of the dead are taken over after 5 s"
# ///
"""streaQ."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
from streaq import Worker

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST

fastest: dict[str, Any] = {
    "prefetch": 200,
    "serializer": lambda data: orjson.dumps(data).decode(),
    "deserializer": orjson.loads,
}
safest: dict[str, Any] = {"prefetch": 1, "idle_timeout": 5}
worker: Worker[None] = Worker(
    redis_url=messages.URL,
    queue_name=messages.queue_name(0),
    concurrency=messages.THREADS,
    anyio_kwargs={"use_uvloop": True},
    **(safest if IS_SAFEST else fastest),
)


@worker.task(name="handle", ttl=timedelta(minutes=5) if IS_SAFEST else 0)
async def handle(kind: str, data: dict[str, Any]) -> None:
    await messages.handle_async(kind, data)


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    async with worker:
        yield


async def publish(kind: str, data: dict[str, Any]) -> None:
    await handle.enqueue(kind, data)


async def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    await handle.enqueue(kind, data).start(delay=timedelta(seconds=delay))


async def publish_many(kind: str, many: list[dict[str, Any]], delay: float) -> None:
    tasks = [handle.enqueue(kind, data) for data in many]
    if delay:
        tasks = [task.start(delay=timedelta(seconds=delay)) for task in tasks]
    await worker.enqueue_many(tasks)


def consumer(processes: int, _threads: int) -> list[str]:
    return [sys.executable, "-m", "streaq", "run", "benchmarks.peers.streaq:worker", "--workers", str(processes)]
