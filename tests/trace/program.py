"""Publish, fail and redrive with the package of one tree, and write down what was recorded.

Only what every version has is used: the public API, the commands, and the keys of docs/protocol.md.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import django
import redis
from django.conf import settings
from django.core.management import call_command

from mq_django import queues
from tests.trace.recorder import Recorder
from tests.waiting import wait_until

#: Written when all is recorded.
ROUNDS = "rounds.json"
#: What the consumer recorded.
CONSUMER = "consumer.json"


def main(rounds: int) -> None:
    """Let a consumer handle a message of each kind, some rounds."""
    django.setup()
    folder = Path(os.environ["MQ_TRACE_FOLDER"])
    with redis.Redis.from_url(settings.MQ_DJANGO["CONNECTION"], socket_timeout=10) as client:
        with _consumer():
            # The first of each round makes connections and reads settings.
            published = [event for _ in range(rounds + 1) for event in _publish(client)]
            queues["plain"].publish("save", CONSUMER)
            wait_until((folder / CONSUMER).exists, timeout=30)
        redriven = [_redrive(fields[b"id"].decode()) for _, fields in client.xrange("mq:{once}:dead")]
        if client.xlen("mq:{once}:dead"):
            raise RuntimeError("redrive left dead letters")
    (folder / ROUNDS).write_text(json.dumps({"published": published[3:], "redriven": redriven[1:]}))


@contextmanager
def _consumer() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "django", "runconsumer"], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def _publish(client: redis.Redis) -> Iterator[Mapping[str, object]]:
    """Publish a message for each outcome, and wait for that."""
    for kind, queue, name in (("ack", "plain", "nothing"), ("retry", "plain", "fail"), ("bury", "once", "fail")):
        recorder = Recorder()
        with recorder:
            message_id = queues[queue].publish(name, 1)
        wait_until(partial(_is_over, client, queue), timeout=30, message=kind)
        yield {"kind": kind, "id": message_id, "events": recorder.events}


def _is_over(client: redis.Redis, queue: str) -> bool:
    """Tell whether nothing is ready or held: each outcome deletes the entry."""
    return not client.xlen(f"mq:{{{queue}}}:ready")


def _redrive(message_id: str) -> Mapping[str, object]:
    recorder = Recorder()
    with recorder:
        call_command("mq", "redrive", "once", message_id, stdout=io.StringIO())
    return {"kind": "redrive", "id": message_id, "events": recorder.events}


if __name__ == "__main__":
    main(int(sys.argv[1]))
