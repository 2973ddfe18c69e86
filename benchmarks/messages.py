"""What every contender publishes and handles: the same data, and the same notes of what was handled when."""

import asyncio
import json
import os
import time
from functools import cache
from typing import Any

import redis

URL = os.environ.get("BENCH_REDIS_URL", "")
MODE = os.environ.get("BENCH_MODE", "fast")
IS_SAFEST = MODE == "safe"
#: Queues that a consumer serves; messages go to all of them in turn.
QUEUES = int(os.environ.get("BENCH_QUEUES", "1"))
#: Messages that a process of a consumer handles at a time.
THREADS = int(os.environ.get("BENCH_THREADS", "8"))
#: Keys that messages published one by one get in turn; 0: they have none.
KEYS = int(os.environ.get("BENCH_KEYS", "0"))
#: LIST of `n sent_ns due_ns handled_ns pid`, for the workloads that look at single messages.
NOTES = "bench:notes"

#: Kinds of work: nothing, a note, a note after 50 ms, a note after 1 s, 10 ms without a note.
NOOP, NOTE, WORK, SLOW, NAP = KINDS = ("noop", "note", "work", "slow", "nap")
SLEEPS = {NOTE: 0.0, WORK: 0.05, SLOW: 1.0, NAP: 0.01}


def queue_name(number: int) -> str:
    """Return the name of the queue of the n-th message."""
    return f"bench{number % QUEUES}"


def key_of(number: int) -> str | None:
    """Return the key of the n-th message, or None."""
    return f"key-{number % KEYS}" if KEYS else None


def make(number: int, *, delay: float = 0.0) -> dict[str, Any]:
    """Return data of 200 bytes of JSON, sent now and due `delay` seconds later, on the clock of all processes."""
    sent = time.monotonic_ns()
    return {
        "n": number,
        "sent_ns": sent,
        "due_ns": sent + int(delay * 1e9),
        "customer": "ada@example.com",
        "total": "129.90",
        "paid": True,
        "note": "A parcel for the neighbour, who is at home from five in the afternoon",
    }


def encode(data: dict[str, Any]) -> bytes:
    """Return data as JSON text without spaces."""
    return json.dumps(data, separators=(",", ":")).encode()


SIZE = len(encode(make(123456)))


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(URL)


def note(data: dict[str, Any]) -> None:
    """Note that a message is handled."""
    line = f"{data['n']} {data['sent_ns']} {data['due_ns']} {time.monotonic_ns()} {os.getpid()}"
    _client().rpush(NOTES, line)


def handle(kind: str, data: dict[str, Any]) -> None:
    """Do a kind's work, in a thread or process that may sleep."""
    if kind != NOOP:
        time.sleep(SLEEPS[kind])
        note(data)


async def handle_async(kind: str, data: dict[str, Any]) -> None:
    """Do a kind's work on an event loop."""
    if kind != NOOP:
        await asyncio.sleep(SLEEPS[kind])
        note(data)
