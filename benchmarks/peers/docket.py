# /// script
# dependencies = ["pydocket==0.27.0", "hiredis==3.5.0", "uvloop"]
#
# [tool.bench]
# name = "Docket"
# # An entry is deleted when it is acked.
# remaining = "redis.call('xlen', 'bench0:stream') + redis.call('zcard', 'bench0:queue')"
# one_by_one = 5000
# bulk = 10000
# handled = 12000
# fast = "concurrency 16, uvloop, nothing kept of a task that is done, free slots looked for every 1 ms"
# safe = "as before, but concurrency 8, state of tasks kept, 3 retries, messages of the dead are taken over after 5 s"
# ///
"""Docket. It acks after handling, in both settings. Each task that runs takes a connection, of which it has 100."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import uvloop
from docket import Docket, Retry, Worker

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
kept: dict[str, Any] = {} if IS_SAFEST else {"execution_ttl": timedelta(0)}
docket = Docket(messages.queue_name(0), messages.URL, **kept)


async def handle(kind: str, data: dict[str, Any]) -> None:
    await messages.handle_async(kind, data)


docket.register(handle)


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    async with docket:
        yield


def _due(delay: float) -> datetime | None:
    return datetime.now(UTC) + timedelta(seconds=delay) if delay else None


async def publish(kind: str, data: dict[str, Any]) -> None:
    await docket.add(handle)(kind, data)


async def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    await docket.add(handle, when=_due(delay))(kind, data)


async def publish_many(kind: str, many: list[dict[str, Any]], delay: float) -> None:
    await docket.add_many([docket.call(handle, when=_due(delay))(kind, data) for data in many])


async def work() -> None:
    """Be one worker."""
    # When all slots are taken it sleeps so long before it looks again, and by default that is a quarter of a second.
    options: dict[str, Any] = {"concurrency": 16, "minimum_check_interval": timedelta(milliseconds=1)}
    if IS_SAFEST:
        takeover = timedelta(seconds=5)
        options |= {
            "concurrency": messages.THREADS,
            "redelivery_timeout": takeover,
            "dependencies": [Retry(attempts=4)],
        }
    async with docket, Worker(docket, **options) as worker:
        await worker.run_forever()


def consumer(processes: int, _threads: int) -> list[str]:
    one = [sys.executable, "-c", f"import asyncio; from {__name__} import work; asyncio.run(work())"]
    return [sys.executable, "-m", "benchmarks.several", *([*one, "+"] * processes)]
