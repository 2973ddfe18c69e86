"""What a consumer writes, for whoever reads it: `keys/consume-*.txt`."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import call_command

from mq_django import queues, topics
from tests.compat.versions import ROOT, stop
from tests.consumers.template import start
from tests.golden import files
from tests.golden.keyspace import dump
from tests.golden.project import tasks
from tests.golden.project.settings import PERIOD, TASKS, options
from tests.golden.test_publishing import KEYS
from tests.waiting import wait_until

#: What each file is about, and the keys in it.
FEATURES = {
    "ack": ("A message was handled, and let its unique key go.", "{acked}:*"),
    "retry": ("One handler failed and is tried again in half an hour, another one asked for two hours.", "{retried}:*"),
    "bury": ("One handler failed for good, and another one gave up.", "{buried}:*", "{refused}:*"),
    "undecodable": ("An entry of another program was no message.", "{undecodable}:*"),
    "expire": ("A message of another program had expired.", "{expired}:*"),
    "redrive": ("A dead letter was put back.", "{redriven}:*"),
    "move": ("A dead letter was moved to another queue.", "{moved}:*", "{gathered}:*"),
    "job": ("All dead letters were put back in the background, and failed again.", "{worked}:*"),
    "set-aside": ("Nobody had a handler of that name.", "{unknown}:*"),
    "paused": ("The queue was paused.", "{paused}:*"),
    "schedule": ("Three ticks of a schedule were missed.", "{scheduled}:*"),
    "tasks": ("Two tasks returned, and one failed and is tried again.", "{default}:*", "{emails}:*"),
    "topic": ("A group handled one message, one is tried again, and one is buried.", "{news}:*"),
    "rsmq": ("In RSMQ's format one message was handled, one is tried again, and one is buried.", "legacy*"),
}

#: Where the messages of a queue are at the end, by the key and how many it holds.
ENDS = {
    "{acked}:ready": 0,
    "{retried}:due": 2,
    "{buried}:dead": 1,
    "{refused}:dead": 1,
    "{undecodable}:dead": 1,
    "{expired}:ready": 0,
    "{redriven}:dead": 1,
    "{moved}:dead": 1,
    "{worked}:dead": 2,
    "{unknown}:unhandled": 1,
    "{scheduled}:ready": 1,
    "{default}:ready": 0,
    "{default}:due": 1,
    "{emails}:ready": 0,
    "{emails}:front": 0,
    "{news}:g:billing:due": 1,
    "{news}:g:billing:dead": 1,
    "legacy:mq:retried": 1,
    "legacy:mq:dead": 1,
}


@contextmanager
def consumer(connection: str, namespace: str, log: Path) -> Iterator[None]:
    """Let one thread handle all queues; it ends with exit code 0."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.golden.project.settings",
        "PYTHONPATH": str(ROOT),
        "MQ_GOLDEN_CONNECTION": connection,
        "MQ_GOLDEN_NAMESPACE": namespace,
    }
    with log.open("wb") as output:
        command = [sys.executable, "-m", "django", "runconsumer", "--threads", "1"]
        process = start(command, env=environment, output=output)
    try:
        yield
    finally:
        assert stop(process) == 0, log.read_text()


@pytest.fixture
def project(mq_settings, settings, redis_url, namespace, monkeypatch):
    """The settings of the consumer, here too."""
    mq_settings(**options(redis_url, namespace))
    settings.TASKS = TASKS
    # The one who begins a job is named in it.
    monkeypatch.setenv("LOGNAME", "somebody")


def publish(client, namespace):
    """Publish what ends in every way."""
    for name in ("paused", "scheduled"):
        call_command("mq", "pause", name)
    queues["acked"].publish("end", {"end": "return"}, key="user:7", unique="cart-1", unique_for="handled")
    queues["retried"].publish("end", {"end": "raise"}, key="user:7", headers={"tenant": "a"})
    queues["retried"].publish("end", {"end": "retry"}, priority=5)
    queues["buried"].publish("end", {"end": "raise"}, key="user:7", headers={"tenant": "a"})
    queues["refused"].publish("end", {"end": "bury"})
    client.xadd(f"{namespace}:{{undecodable}}:ready", {"data": "1"})
    client.xadd(f"{namespace}:{{expired}}:ready", {"type": "end", "data": "1", "expires": "2020-01-01T00:00:00Z"})
    queues["redriven"].publish("end", {"end": "raise"}, key="user:7", headers={"tenant": "a"})
    queues["moved"].publish("end", {"end": "raise"}, key="user:7", headers={"tenant": "a"})
    queues["worked"].publish_many([("end", {"end": "raise"}), ("end", {"end": "raise"})])
    queues["unknown"].publish("nobody", {"n": 1}, key="user:7", headers={"tenant": "a"})
    queues["paused"].publish("end", {"n": 1})
    seconds, _ = client.time()
    client.hset(f"{namespace}:{{scheduled}}:schedules", "last:rarely", (seconds - 3 * PERIOD) * 1000)
    tasks.note.enqueue(1, name="x")
    tasks.refuse.enqueue("no")
    tasks.receipt.enqueue(7, copies=2)
    topics["news"].group("billing").subscribe()
    topics["news"].publish_many([("paid", {"end": how}) for how in ("return", "raise", "bury")])
    queues["legacy"].publish_many([("end", {"end": how}) for how in ("return", "raise", "bury")])


def wait_for_the_ends(client, namespace):
    """Wait until each message is where it stays."""
    for kind, count in ENDS.items():
        wait_for(client, f"{namespace}:{kind}", count)


def wait_for(client, key, count):
    wait_until(lambda: length(client, key) == count, timeout=60, message=f"{key} holds {count}")


def length(client, key):
    return {"stream": client.xlen, "zset": client.zcard, "none": lambda _: 0}[client.type(key).decode()](key)


def work_in_the_background(client, namespace):
    """Let the consumer put dead letters back, which fail again, and wait for that."""
    call_command("mq", "redrive", "worked", "--all", "--background")
    job = f"{namespace}:{{worked}}:jobs"
    wait_until(lambda: client.hget(job, "dead:state") == b"finished", timeout=60)
    wait_for(client, f"{namespace}:{{worked}}:ready", 0)
    wait_for(client, f"{namespace}:{{worked}}:dead", 2)


def heartbeat(client, namespace):
    """Return what a queue's consumers say of themselves, once they say what was handled."""
    key = "{acked}:consumers"
    wait_until(lambda: b'"handled":1,' in b"".join(client.hvals(f"{namespace}:{key}")), timeout=60)
    found = re.sub(r"(beat:.*) -> \d+", r"\1 -> <count>", dump(client, namespace, key))
    return f"# A consumer runs, and has handled a message.\n\n{found}"


def redrive(client, namespace):
    ((_, letter),) = client.xrange(f"{namespace}:{{redriven}}:dead")
    call_command("mq", "redrive", "redriven", letter[b"id"].decode())


def move(client, namespace):
    ((_, letter),) = client.xrange(f"{namespace}:{{moved}}:dead")
    call_command("mq", "redrive", "moved", letter[b"id"].decode(), "--to", "gathered")


def test_what_a_consumer_writes(project, redis_url, redis_client, namespace, tmp_path, capsys):
    publish(redis_client, namespace)
    with consumer(redis_url, namespace, tmp_path / "log"):
        wait_for_the_ends(redis_client, namespace)
        work_in_the_background(redis_client, namespace)
        texts = {"consume-heartbeat": heartbeat(redis_client, namespace)}
    redrive(redis_client, namespace)
    move(redis_client, namespace)
    for feature, (told, *keys) in FEATURES.items():
        texts[f"consume-{feature}"] = f"# {told}\n\n{dump(redis_client, namespace, *keys)}"
    files.check(KEYS, texts)
