# /// script
# dependencies = ["huey==3.5.4", "redis", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "Huey"
# remaining = "redis.call('llen', 'huey.redis.bench0')"
# one_by_one = 10000
# bulk = 0
# handled = 8000
# fast = "8 threads, blocking pops, no results, no periodic tasks, no health checks, no logging of tasks"
# safe = "8 threads, results kept, health checks each second, retries; it has no acks: what was taken dies with it"
# ///
"""Huey."""

import logging
import sys
from typing import Any

from huey import RedisHuey

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST

huey = RedisHuey(messages.queue_name(0), url=messages.URL, blocking=True, results=IS_SAFEST)
logging.getLogger("huey").setLevel(logging.ERROR)


@huey.task(retries=3 if IS_SAFEST else 0)
def handle(kind: str, data: dict[str, Any]) -> None:
    messages.handle(kind, data)


def publish(kind: str, data: dict[str, Any]) -> None:
    handle(kind, data)


def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    handle.schedule((kind, data), delay=delay)


def consumer(processes: int, threads: int) -> list[str]:
    checks = ["--health-check-interval", "1"] if IS_SAFEST else ["--disable-health-check"]
    words = ["--worker-type", "thread", "--workers", str(threads), "--no-periodic", "--quiet", *checks]
    one = [sys.executable, "-m", "huey.bin.huey_consumer", "benchmarks.peers.huey.huey", *words]
    return [sys.executable, "-m", "benchmarks.several", *([*one, "+"] * processes)]
