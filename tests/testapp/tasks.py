"""Tasks of every kind. What they did, they note in `ran`."""

import asyncio
import time
from functools import reduce

from mq_django import Bury, Retry, RetryPolicy, task

ran = []


class Refused(Exception):
    pass


@task
def noop():
    ran.append("noop")


@task
def note(*args, **kwargs):
    ran.append((args, kwargs) if kwargs else args)


@task(queue_name="emails", priority=5, retry=RetryPolicy(max_attempts=2), timeout=30)
def send_receipt(order_id, *, copies=1):
    ran.append((order_id, copies))
    return {"order": order_id, "copies": copies}


@task
async def shout(text):
    await asyncio.sleep(0)
    ran.append(text.upper())
    return text.upper()


@task(takes_context=True)
def context_of(context, word):
    ran.append((context.attempt, word, context.task_result.status))
    return [context.attempt, word]


@task(retry=RetryPolicy(max_attempts=2))
def fail(text):
    raise Refused(text)


@task(retry=RetryPolicy(bury_on=(Refused,)))
def refuse():
    raise Refused("never again")


@task(retry=RetryPolicy(max_attempts=3), takes_context=True)
def third_time_lucky(context):
    if context.attempt < 3:
        raise ValueError(f"attempt {context.attempt}")
    return "lucky"


@task
def give_back(kind):
    values = {
        "none": lambda: None,
        "set": lambda: {1, 2},
        "nan": lambda: float("nan"),
        "tuple": lambda: (1, (2, 3)),
        "long": lambda: "x" * 300_000,
        "deep": lambda: reduce(lambda inner, _: [inner], range(5000), []),
        "retry": lambda: Retry(error="not yet"),
        "bury": lambda: Bury("no use"),
        "retry without an error": lambda: Retry(delay=0),
        "bury without an error": lambda: Bury(None),
    }
    return values[kind]()


@task(timeout=0.2)
def sleep_long():
    for _ in range(1000):
        time.sleep(0.01)
