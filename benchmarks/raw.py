"""The raw limit: what bare redis-py does with a stream, in the fewest commands and with no promise but the ack.

BENCH_MODE=json, the reference, writes and reads the data's JSON with the standard library, as everybody's messages are
written and read. BENCH_MODE=bytes sends the same bytes unread: nothing is left but Redis and its client.
"""

import json
import multiprocessing
import os
import sys
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks import messages

STREAM, GROUP = "raw", "group"
BATCH = 100
IS_JSON = messages.MODE == "json"

client = redis.Redis.from_url(messages.URL, retry=Retry(NoBackoff(), 0), protocol=2)
BODY = messages.encode(messages.make(123456))
#: The field of messages that are noted.
NOTED = b"noted"


def text(data: dict[str, Any]) -> bytes:
    """Return what is sent of a no-op message."""
    return messages.encode(data) if IS_JSON else BODY


def publish(kind: str, data: dict[str, Any]) -> None:
    """Add one message."""
    client.xadd(STREAM, {"data": text(data)} if kind == messages.NOOP else {NOTED: messages.encode(data)})


def publish_many(kind: str, many: list[dict[str, Any]], delay: float) -> None:
    """Add messages in one pipeline."""
    assert kind == messages.NOOP
    assert not delay
    pipeline = client.pipeline(transaction=False)
    for data in many:
        pipeline.xadd(STREAM, {"data": text(data)})
    pipeline.execute()


def consumer(processes: int, _threads: int) -> list[str]:
    """Return the command of the consumers; they have no threads."""
    return [sys.executable, "-m", "benchmarks.raw", str(processes)]


def handle(data: object) -> None:
    """Do nothing."""


def drain() -> None:
    """Read, and ack with the next read: one round trip a batch."""
    done: list[bytes] = []
    who = str(os.getpid())
    while True:
        pipeline = client.pipeline(transaction=False)
        if done:
            pipeline.xack(STREAM, GROUP, *done)
            pipeline.xdel(STREAM, *done)
        # One that has work does not block: its acks would wait too.
        pipeline.xreadgroup(GROUP, who, {STREAM: ">"}, count=BATCH, block=None if done else 2000)
        reply = pipeline.execute()[-1]
        entries = reply[0][1] if reply else []
        done = [entry for entry, _ in entries]
        for _, fields in entries:
            if NOTED in fields:
                messages.note(json.loads(fields[NOTED]))
            else:
                handle(json.loads(fields[b"data"]) if IS_JSON else fields[b"data"])


def main(processes: int) -> None:
    """Run consumers."""
    try:
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise
    client.connection_pool.disconnect()
    for _ in range(processes - 1):
        multiprocessing.Process(target=drain, daemon=True).start()
    drain()


if __name__ == "__main__":
    main(int(sys.argv[1]))
