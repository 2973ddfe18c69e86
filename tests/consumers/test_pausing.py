"""A pause, with real consumers, in every store."""

import time

import pytest

from mq_django import queues, topics
from mq_django.inspector import actions
from tests.waiting import wait_until

#: By the queue's name, of those whose messages the project's handler takes.
QUEUES = {
    "stream": ("a", {"a": {}}),
    "limited": ("b", {"b": {"CONCURRENCY": {"queue": 50, "key": 50}}}),
    "rsmq": ("c", {"c": {"STORE": "rsmq", "NAMESPACE": "paused"}}),
    "topic": ("news:readers", {"default": {}}),
}

#: From when `pause` has returned on, in seconds.
PROMISE = 0.1


def flood(name, count=3000):
    """Publish more than is handled while the test runs: handlers take 10 ms, and there are four of them."""
    work = [("act", {"do": [["sleep", 0.01]]})] * count
    if name == "news:readers":
        topics["news"].publish_many(work)
    else:
        queues[name].publish_many(work)


def starts(history):
    return [line["t"] for line in history.lines("start")]


@pytest.mark.retried(why="a busy machine may keep a process waiting for longer than 100 ms")
@pytest.mark.parametrize("store", list(QUEUES))
def test_no_handler_starts_later_than_100_ms_after_a_pause(trees, mq_settings, history, namespace, store):
    name, configured = QUEUES[store]
    for options in configured.values():
        if options.get("STORE") == "rsmq":
            options["NAMESPACE"] = f"{namespace}:r"
    mq_settings(QUEUES=configured, TOPICS={"news": {}} if store == "topic" else {})
    tree = trees(name, "--processes", "2", "--threads", "2")
    flood(name)
    for _ in range(3):
        seen = len(starts(history))
        wait_until(lambda seen=seen: len(starts(history)) > seen + 30, timeout=30)
        assert actions.pause(name)
        paused = time.monotonic()
        wait_until(lambda paused=paused: time.monotonic() > paused + 0.6)
        assert max(starts(history)) <= paused + PROMISE
        assert actions.resume(name)
    seen = len(starts(history))
    wait_until(lambda: len(starts(history)) > seen + 30, timeout=30)
    assert tree.stop() == 0
