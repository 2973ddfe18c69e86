"""Streams of handlers in real consumers: while they run, after a kill, at a stop, and while Redis is away."""

import pytest

from mq_django.conf import get_config
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.consumers.trees import kill
from tests.streamed import chunks_of
from tests.waiting import wait_until

QUEUES = {"default": {"STREAM": True, "RETRY": {"delay": 0.05}}}


@pytest.fixture
def chunks(mq_settings):
    def read(message_id):
        config = get_config().queue("default")
        found = chunks_of(Pooled(get_client("consume")), config, message_id)
        return [(each.kind, each.attempt, each.number) for each in found]

    return read


def numbered(attempt, count):
    return [("json", attempt, number) for number in range(1, count + 1)]


def test_chunks_are_there_while_a_handler_runs_after_a_kill_and_at_a_stop(trees, publish, chunks, history, tmp_path):
    go = tmp_path / "go"
    tree = trees("--processes", "1", QUEUES=QUEUES)
    sent = [publish(["stream", [3, 0]], ["wait", str(go)], ["stream", [2, 0]], name=name) for name in ("act", "aact")]
    wait_until(lambda: [chunks(each) for each in sent] == [numbered(1, 3)] * 2, timeout=20)
    go.touch()
    wait_until(lambda: [chunks(each) for each in sent] == [[*numbered(1, 5), ("end", 1, 6)]] * 2)

    # A killed handler begins anew behind a mark.
    killed = publish(["once", ["stream", [100_000, 0.01]]], ["stream", [3, 0]])
    wait_until(lambda: len(chunks(killed)) > 5, timeout=20)
    (child,) = tree.children()
    kill(child)
    history.wait_for("effect", 3)
    found = wait_until(lambda: (read := chunks(killed)) and read[-1][0] == "end" and read)
    before = found.index(("restart", 2, 0))
    assert found[:before] == numbered(1, before)
    assert found[before + 1 :] == [*numbered(2, 3), ("end", 2, 4)]

    # A stop loses no chunk of what ends in its grace period.
    last = publish(["stream", [100, 0.01]])
    wait_until(lambda: chunks(last), timeout=20)
    assert tree.stop() == 0
    assert chunks(last) == [*numbered(1, 100), ("end", 1, 101)]
