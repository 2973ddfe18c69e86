"""Handlers that note what they did, and run side by side in both versions."""

import time

import mq_django
from mq_django import Message, handler, subscriber, task
from tests.compat.history import LABEL, note


@handler("plain", "job")
@handler("limited", "job")
@handler("legacy", "job")
def job(message: Message) -> None:
    """Note the effect; fail before it in as many attempts as the message says."""
    data = message.data
    if message.attempt <= data.get("fails", 0):
        raise ValueError("on purpose")
    time.sleep(data.get("ms", 0) / 1000)
    note("effect", data["kind"], id=data["id"], version=mq_django.__file__)


@handler("plain", f"only-{LABEL}")
def only_here(message: Message) -> None:
    """Handle what the other version has no handler for."""
    job(message)


@handler("plain", "tick")
def tick(message: Message) -> None:
    """Note a tick of the schedule."""
    note("tick", "tick", id=message.id)


@task(queue_name="plain")
def add(number: int, name: str) -> int:
    """Return a number that the producer can check."""
    note("effect", "task", id=name)
    return number + 1


@subscriber("log", group="first")
def first(message: Message) -> None:
    """Note what the first group has read."""
    note("effect", "topic-first", id=message.data["id"])


@subscriber("log", group="second")
async def second(message: Message) -> None:
    """Note what the second group has read; fail at its first attempt where the message says so."""
    if message.attempt <= message.data.get("fails", 0):
        raise ValueError("on purpose")
    note("effect", "topic-second", id=message.data["id"])
