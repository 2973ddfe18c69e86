# /// script
# dependencies = ["chasquimq==1.3.0", "uvloop", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "ChasquiMQ"
# # It publishes by XADD IDMP, reads by XREADGROUP CLAIM and acks by XACKDEL.
# oldest_redis = "8.6"
# # An entry is deleted when it is acked.
# remaining = "redis.call('xlen', '{chasqui:bench0}:stream') + redis.call('zcard', '{chasqui:bench0}:delayed')"
# one_by_one = 10000
# bulk = 100000
# handled = 50000
# fast = "concurrency 100, uvloop, no events, no results"
# safe = "concurrency 8, uvloop, events, results kept, 25 attempts, messages of the dead are taken over after 5 s"
# ///
"""ChasquiMQ: an engine in Rust that calls handlers in Python. It acks after handling, in both settings."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import uvloop
from chasquimq import Job, Queue, Worker

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST
NAME = messages.queue_name(0)

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
queue = Queue(NAME, redis_url=messages.URL)


async def handle(job: Job) -> bool:
    await messages.handle_async(job.name, job.data)
    return IS_SAFEST  # only what is not None would be kept


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    async with queue:
        yield


async def publish(kind: str, data: dict[str, Any]) -> None:
    await queue.add(kind, data)


async def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    await queue.add(kind, data, delay=timedelta(seconds=delay))


async def publish_many(kind: str, many: list[dict[str, Any]], _delay: float) -> None:
    await queue.add_bulk([{"name": kind, "data": data} for data in many])


async def work() -> None:
    """Be one worker."""
    options: dict[str, Any] = (
        {"concurrency": messages.THREADS, "store_results": True, "claim_min_idle_ms": 5000}
        if IS_SAFEST
        else {"concurrency": 100, "events_enabled": False}
    )
    async with Worker(NAME, handle, redis_url=messages.URL, **options) as worker:
        await worker.run()


def consumer(processes: int, _threads: int) -> list[str]:
    one = [sys.executable, "-c", f"import asyncio; from {__name__} import work; asyncio.run(work())"]
    return [sys.executable, "-m", "benchmarks.several", *([*one, "+"] * processes)]
