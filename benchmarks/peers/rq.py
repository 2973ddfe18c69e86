# /// script
# dependencies = ["rq==3.0.0", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "RQ"
# remaining = "redis.call('llen', 'rq:queue:bench0') + redis.call('zcard', 'rq:wip:bench0')"
# one_by_one = 3000
# bulk = 10000
# handled = 1500
# processes_for_eight = 8
# skips = ["threads"]
# fast = "SimpleWorker, which does not fork a process a job; results not kept; no log line a job"
# safe = "the usual worker, which forks a process a job; heartbeats and a look for abandoned jobs every 5 s, 3 retries"
# ///
"""RQ. Its workers handle one job at a time; the scheduler for delays is a process of the first worker."""

import sys
from datetime import timedelta
from typing import Any

import redis
from rq import Queue, Retry

from benchmarks import messages

IS_SAFEST = messages.IS_SAFEST
NAME = messages.queue_name(0)

queue = Queue(NAME, connection=redis.Redis.from_url(messages.URL))
OPTIONS: dict[str, Any] = {"result_ttl": 0, "description": "handle"}
if IS_SAFEST:
    # What died with its worker is failed, and tried again, when the maintenance finds it.
    OPTIONS |= {"retry": Retry(max=3), "job_timeout": 30}


def handle(kind: str, data: dict[str, Any]) -> None:
    messages.handle(kind, data)


def publish(kind: str, data: dict[str, Any]) -> None:
    queue.enqueue(handle, kind, data, **OPTIONS)


def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    queue.enqueue_in(timedelta(seconds=delay), handle, kind, data, **OPTIONS)


def publish_many(kind: str, many: list[dict[str, Any]], _delay: float) -> None:
    options = {"timeout" if name == "job_timeout" else name: value for name, value in OPTIONS.items()}
    queue.enqueue_many([Queue.prepare_data(handle, (kind, data), **options) for data in many])


def consumer(processes: int, _threads: int) -> list[str]:
    words = ["--url", messages.URL, "--quiet", "--disable-job-desc-logging", "--with-scheduler", NAME]
    words += (
        ["--maintenance-interval", "5", "--job-monitoring-interval", "5"]
        if IS_SAFEST
        else ["--worker-class", "rq.SimpleWorker"]
    )
    one = [sys.executable, "-m", "rq.cli", "worker", *words]
    return [sys.executable, "-m", "benchmarks.several", *([*one, "+"] * processes)]
