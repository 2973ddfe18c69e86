# /// script
# dependencies = ["celery[redis]==5.7.0", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "Celery"
# remaining = "redis.call('llen', 'bench0') + redis.call('hlen', 'unacked')"
# one_by_one = 2500
# bulk = 0
# handled = 3000
# processes_for_eight = 8
# skips = ["threads"]
# fast = "prefork, acked when taken, prefetch 128, results ignored, no events, gossip, mingle, heartbeat or rate limits"
# safe = "prefork, acks_late, reject_on_worker_lost, prefetch 1, visibility timeout of 10 s"
# ///
"""Celery with its usual pool: a process a concurrent task, fed by a process that reads from Redis."""

import sys
from typing import Any

from celery import Celery

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST
QUEUE = messages.queue_name(0)

app = Celery("bench", broker=messages.URL)
app.conf.update(
    task_default_queue=QUEUE,
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    worker_send_task_events=False,
    worker_disable_rate_limits=True,
    worker_hijack_root_logger=False,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    task_acks_late=IS_SAFEST,
    task_reject_on_worker_lost=IS_SAFEST,
    worker_prefetch_multiplier=1 if IS_SAFEST else 128,
    broker_transport_options={"visibility_timeout": 10} if IS_SAFEST else {},
)


@app.task(name="handle")
def handle(kind: str, data: dict[str, Any]) -> None:
    messages.handle(kind, data)


def publish(kind: str, data: dict[str, Any]) -> None:
    handle.delay(kind, data)


def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    handle.apply_async((kind, data), countdown=delay)


def consumer(processes: int, _threads: int) -> list[str]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    pool = ["--pool", "prefork", "--concurrency", str(processes)]
    return [sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery", "worker", *pool, *quiet]
