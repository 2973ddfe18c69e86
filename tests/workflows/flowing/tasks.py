"""Tasks that are steps of workflows, in the processes of consumers and in the test."""

import os
import time
from pathlib import Path

from mq_django import RetryPolicy, task
from mq_django.workflows import current_flow
from tests.consumers.project.history import note

NO_RETRY = RetryPolicy(max_attempts=1)


@task(retry=NO_RETRY)
def add(*numbers):
    note("step", name="add", args=numbers)
    return sum(numbers)


@task(retry=NO_RETRY)
def total(numbers):
    note("step", name="total", args=len(numbers))
    return sum(numbers)


@task(retry=NO_RETRY)
async def double(number):
    note("step", name="double", args=number)
    return 2 * number


@task(retry=NO_RETRY)
def fail_unless(path, value=None):
    note("step", name="fail_unless", args=path)
    if not Path(path).exists():
        raise ValueError("not yet")
    return value


@task(retry=NO_RETRY)
def grow(count):
    flow = current_flow()
    flow.add(total, flow.map(double, range(count)))
    note("step", name="grow", args=count)


@task(retry=NO_RETRY)
def wait_for(path):
    note("step", name="wait_for", args=path)
    while not os.path.exists(path):  # noqa: PTH110
        time.sleep(0.01)
    return 1


@task(retry=NO_RETRY)
def told(run_id):
    note("callback", id=run_id)


@task(retry=NO_RETRY)
def explained(run_id, failure):
    note("callback", id=run_id, failure=failure)


@task(retry=NO_RETRY)
def wait_twice(one, two):
    note("step", name="wait_twice", args=[one, two])


@task
def increase(number):
    """Return one more. It is tried again, unlike the other tasks."""
    return number + 1
