"""Handlers of the consumers that these tests start: each writes down what it handled, where every test can read it."""

import json
import os
import time
from typing import Any

from django.conf import settings

from mq_django import Message, handler
from mq_django.transport.connections import get_client

NAMESPACE = settings.MQ_DJANGO["NAMESPACE"]


def note(message: Message, **more: Any) -> None:
    """Append a message to the list of what was handled."""
    told = {"id": message.id, "name": message.name, "data": message.data, "attempt": message.attempt}
    told |= {"headers": dict(message.headers), "at_ms": time.time() * 1000, "pid": os.getpid(), **more}
    get_client("produce").rpush(f"{NAMESPACE}:handled", json.dumps(told))


@handler("emails", "welcome")
def welcome(message: Message) -> None:
    note(message)
