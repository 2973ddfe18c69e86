# /// script
# dependencies = ["taskiq==0.13.0", "taskiq-redis==1.2.4", "orjson==3.13.0", "uvloop", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "taskiq (streams)"
# # Its entries stay in the stream: what counts is what its group has not read, or not acked.
# remaining = '''(function()
#   if redis.call('exists', 'bench0') == 0 then return 0 end
#   local group = redis.call('xinfo', 'groups', 'bench0')[1]
#   return group and group[6] + (group[12] or 0) or redis.call('xlen', 'bench0')
# end)()'''
# one_by_one = 4000
# bulk = 0
# handled = 6000
# fast = "acked when received, reads of 100, prefetch 100, ORJSON, uvloop, no parsing of parameters"
# safe = "acked when saved, no prefetch, unacked messages are taken over after 10 s"
# ///
"""taskiq with a broker on Redis streams, and its scheduler beside it for delays."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from taskiq import TaskiqScheduler
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST
QUEUE = messages.queue_name(0)

takeover = {"idle_timeout": 10_000, "unacknowledged_lock_timeout": 5.0}
# From the beginning: what was published before the first worker came is handled, too.
broker = RedisStreamBroker(messages.URL, queue_name=QUEUE, consumer_id="0", **(takeover if IS_SAFEST else {}))
if not IS_SAFEST:
    broker = broker.with_serializer(ORJSONSerializer())
source = ListRedisScheduleSource(messages.URL)
scheduler = TaskiqScheduler(broker, [source])


@broker.task(task_name="handle")
async def handle(kind: str, data: dict[str, Any]) -> None:
    await messages.handle_async(kind, data)


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    await broker.startup()
    await source.startup()
    yield
    await source.shutdown()
    await broker.shutdown()


async def publish(kind: str, data: dict[str, Any]) -> None:
    await handle.kiq(kind, data)


async def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    await handle.schedule_by_time(source, datetime.now(UTC) + timedelta(seconds=delay), kind, data)


def consumer(processes: int, threads: int) -> list[str]:
    acks = ["--ack-type", "when_saved"] if IS_SAFEST else ["--ack-type", "when_received", "--no-parse"]
    ahead = ["--max-async-tasks", str(threads), "--max-prefetch", "0" if IS_SAFEST else "100"]
    quiet = ["--log-level", "ERROR"]
    taskiq = [sys.executable, "-m", "taskiq"]
    worker = [*taskiq, "worker", "benchmarks.peers.taskiq:broker", "--workers", str(processes), *acks, *ahead, *quiet]
    later = [*taskiq, "scheduler", "benchmarks.peers.taskiq:scheduler", "--update-interval", "1", *quiet]
    return [sys.executable, "-m", "benchmarks.several", *worker, "+", *later]
