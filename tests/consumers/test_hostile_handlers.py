"""What a handler does to its own process costs nobody else more than a moment."""

import json
import signal

from mq_django.conf import get_config
from mq_django.stores.members import Members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.consumers.trees import kill
from tests.seeding import opened
from tests.waiting import wait_until


def test_what_a_handler_does_to_its_descriptors_ends_no_supervisor(trees, publish, history):
    tree = trees("--processes", "2", "--threads", "1")
    for step in ("truncate_descriptors", "close_descriptors"):
        publish(["once", [step, 0]])
    history.wait_for("start", 2)
    published = publish()
    wait_until(lambda: history.counts()[published])
    assert tree.stop() == 0


def test_what_comes_to_a_dead_process_that_a_forked_one_keeps_connected_goes_on_soon(
    trees, publish, history, mq_settings
):
    """Redis hands messages to the reads of the dead, until it learns of their end."""
    trees("--processes", "2", "--threads", "1", QUEUES={"default": {}})
    members = Members(get_config().queue("default"), Pooled(get_client("chores")))
    publish(["fork", 60])
    dead = history.wait_for("effect")[0]["pid"]
    wait_until(lambda: len(blocked()) >= 2)
    kill(dead)
    # Settled for and struck off.
    wait_until(lambda: dead not in {told.get("pid") for told in members.beat("watcher", {}, {}).consumers.values()})
    ids = [publish() for _ in range(4)]
    # The other works on at once; what the dead was handed, after a look.
    history.wait_for("effect", 5)
    assert history.counts() == dict.fromkeys([*history.counts()], 1)
    assert set(ids) <= set(history.counts())


def blocked():
    return [client for client in get_client("inspect").client_list() if client["cmd"] == "xreadgroup"]


def test_a_killer_under_a_long_id_of_rsmq_is_charged(trees, mq_settings, redis_client, history, namespace):
    config = mq_settings(QUEUES={"default": {"STORE": "rsmq", "NAMESPACE": f"{namespace}r", "MAX_ATTEMPTS": 3}})
    store = opened("default")
    body = json.dumps({"type": "act", "data": {"do": [["kill", signal.SIGKILL]]}})
    redis_client.hset(store.keys.hash, "k" * 100, body)
    redis_client.zadd(store.keys.zset, {"k" * 100: 1})
    trees(QUEUES=config["QUEUES"])
    wait_until(lambda: store.depths().dead, timeout=30)
    assert [line["attempt"] for line in history.lines("start")] == [1, 2, 3]
