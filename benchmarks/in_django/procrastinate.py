# /// script
# dependencies = ["procrastinate[django]==3.10.0", "Django>=5.2,<6", "psycopg[binary,pool]>=3.2,<4", "redis>=7,<9"]
#
# [tool.bench]
# name = "procrastinate"
# one_by_one = 0
# bulk = 0
# handled = 1500
# fast = "8 jobs at a time, woken by NOTIFY; jobs stay in the database, as by default"
# ///
"""A queue that is a table of PostgreSQL: a job is a row of the transaction."""

import sys
from typing import Any

from procrastinate.contrib.django import app

from benchmarks import messages


@app.task(name="handle", queue=messages.queue_name(0))
def handle(kind: str, data: dict[str, Any]) -> None:
    messages.handle(kind, data)


def publish(kind: str, data: dict[str, Any]) -> None:
    handle.defer(kind=kind, data=data)


def consumer(processes: int, threads: int) -> list[str]:
    words = ["--queues", messages.queue_name(0), "--concurrency", str(processes * threads)]
    return [sys.executable, "-m", "django", "procrastinate", "worker", *words]
