"""Queues whose handlers are in another language: no message stays where no consumer takes it."""

import json
import signal

import pytest

from mq_django import queues
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.peers.programs import NODE_PROGRAMS
from tests.waiting import becomes_true, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("node")]

#: A name that only the programs in JavaScript handle.
NAME = "partner.order"


@pytest.fixture
def start_node(tmp_path):
    """Start the example consumer of `emails`. It appends what it handles to a file, as a pipe would fill up."""

    def start(shop, number):
        path = tmp_path / f"node{number}"
        shell = f'exec node "$0" emails >> "{path}"'
        return shop.start(["sh", "-c", shell, str(NODE_PROGRAMS / "consumer.js")], shop.node_environment)

    return start


def handled(tmp_path):
    """Return the ids that the programs in JavaScript have handled, in any order."""
    lines = [line for path in tmp_path.glob("node*") for line in path.read_text().splitlines()]
    return [json.loads(line)["id"] for line in lines]


def depths():
    return open_store(queues["emails"].config, Pooled(get_client("produce"))).depths()


def publish(count, **options):
    return queues["emails"].publish_many([(NAME, n) for n in range(count)], **options)


def hold_and_kill(node, ids, redis_client):
    """Stop a consumer, publish until it holds messages, and kill it. Appends to the published ids."""
    keys = queues["emails"].config.keys
    consumer = f"-{node.process.pid}-"

    def holds():
        ids.extend(publish(1))
        held = redis_client.xpending(keys.ready, "mq")["consumers"]
        return any(consumer in each["name"].decode() and each["pending"] for each in held)

    def stops_while_it_waits():
        # Stopped between two reads it gets no message.
        node.process.send_signal(signal.SIGSTOP)
        if becomes_true(holds, within=2):
            return True
        node.process.send_signal(signal.SIGCONT)
        return False

    wait_until(stops_while_it_waits, timeout=40)
    node.stop(kill=True)


def test_no_message_of_a_queue_that_only_foreign_consumers_handle_stays(project, start_node, redis_client, tmp_path):
    shop = project(QUEUES={"emails": {"VISIBILITY_TIMEOUT": 5}})
    # Before the option is set, a consumer in Python sets everything aside.
    before = shop.runconsumer("emails")
    ids = publish(500)
    wait_until(lambda: depths().unhandled == 500)
    before.stop()

    shop = project(QUEUES={"emails": {"VISIBILITY_TIMEOUT": 5, "EXTERNAL": True}})
    shop.runconsumer("emails")
    ids += publish(500, delay=1.0)
    first, _second = start_node(shop, 1), start_node(shop, 2)
    ids += publish(1000)
    wait_until(lambda: len(handled(tmp_path)) >= 200)
    hold_and_kill(first, ids, redis_client)

    wait_until(lambda: set(handled(tmp_path)) >= set(ids), timeout=30)
    wait_until(lambda: depths().depth == 0)
    assert len(ids) >= 2000
    assert depths().dead == 0
    # Handled, and not acked when it was killed.
    assert len(handled(tmp_path)) - len(ids) <= 1


def test_foreign_consumers_share_a_queue_with_consumers_that_do_not_know_their_names(
    project, start_node, redis_client, tmp_path
):
    shop = project(QUEUES={"emails": {"VISIBILITY_TIMEOUT": 5}})
    shop.runconsumer("emails")
    first, _second = start_node(shop, 1), start_node(shop, 2)
    # All three wait for messages.
    wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 3)
    ids = publish(300) + publish(300, delay=1.0)
    ours = queues["emails"].publish_many([("welcome", n) for n in range(20)])
    wait_until(lambda: len(handled(tmp_path)) >= 50, timeout=30)
    hold_and_kill(first, ids, redis_client)

    wait_until(lambda: depths().depth == 0, timeout=120)
    theirs = handled(tmp_path)
    assert set(ids) <= set(theirs)
    assert {each["id"] for each in shop.handled()} | set(theirs) == {*ids, *ours}
