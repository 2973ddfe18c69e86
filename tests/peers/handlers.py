"""Handlers of the consumers that these tests start: each writes down what it handled, where every test can read it."""

import json
import os
import time
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings

from mq_django import Message, handler, subscriber
from mq_django.core.rsmq_format import TEXT
from mq_django.transport.connections import get_client

NAMESPACE = settings.MQ_DJANGO["NAMESPACE"]


def note(message: Message, **more: Any) -> None:
    """Append a message to the list of what was handled."""
    told = {"id": message.id, "name": message.name, "data": message.data, "attempt": message.attempt}
    told |= {"headers": dict(message.headers), "at_ms": time.time() * 1000, "pid": os.getpid(), **more}
    key = f"{NAMESPACE}:handled"
    get_client("produce", key=key).rpush(key, json.dumps(told))


@handler("emails", "welcome")
def welcome(message: Message) -> None:
    note(message)


@subscriber("orders", group="billing")
def bill(message: Message) -> None:
    if message.data == "fails once" and message.attempt == 1:
        raise ValueError("not yet")
    note(message, group="billing")


@subscriber("orders", group="stock", name="order.paid", start="end")
async def take_from_stock(message: Message) -> None:
    await sync_to_async(note)(message, group="stock")


@handler("jobs", TEXT)
def work(message: Message) -> None:
    time.sleep(0.005)
    note(message)


@handler("jobs", "slow")
def slow(message: Message) -> None:
    time.sleep(message.data)
    note(message)


@handler("jobs", "fails")
def fails(message: Message) -> None:
    note(message)
    raise ValueError("as asked")
