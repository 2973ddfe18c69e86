"""Enqueue tasks one by one and wait for the result of each: `benchmarks.awaited_results` runs it."""

import json
import os
import random
import sys
import time

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")
django.setup()

from benchmarks.ours import tasks  # noqa: E402 - needs the project to be set up
from mq_django import wait_result  # noqa: E402

#: The longest seconds between two tasks: the consumer is at rest again.
PAUSE = 0.02
#: Seconds for a result, the first of which has to wait for the consumer's start.
TIMEOUT = 60


def measure(count: int) -> dict[str, list[int]]:
    """Return the ns from each call of enqueue() to the start of its task, and to the return of wait_result()."""
    found: dict[str, list[int]] = {"started": [], "waited": []}
    moments = random.Random(7)
    for _ in range(count):
        # Not at even steps: they could fall in step with somebody's poll.
        time.sleep(moments.uniform(0.2, 1.0) * PAUSE)
        began = time.monotonic_ns()
        result = wait_result(tasks.moment.enqueue(), timeout=TIMEOUT)
        found["waited"].append(time.monotonic_ns() - began)
        found["started"].append(result.return_value - began)
    return found


if __name__ == "__main__":
    count, warm_up = map(int, sys.argv[1:])
    measure(warm_up)
    json.dump(measure(count), sys.stdout)
