"""A queue in RSMQ's format gives a message to another program once its time is up, whoever received it before."""

import os
import signal
from collections import Counter

from mq_django.conf import get_config
from mq_django.rsmq import RSMQ
from mq_django.stores.members import read_membership
from tests import on_cluster
from tests.consumers.trees import stop
from tests.waiting import wait_until

VT = 2


def test_what_others_received_while_a_consumer_was_stopped_is_not_started(
    trees, publish, history, redis_client, namespace, tmp_path
):
    tree = trees("--threads", "1", QUEUES={"default": {"STORE": "rsmq", "NAMESPACE": f"{namespace}r", "VT": VT}})
    ids = {publish(["wait", str(tmp_path / "go")]), *(publish() for _ in range(20))}
    history.wait_for("start")
    children = tree.children()
    stop_while_it_holds(len(ids), [tree.pid, *children], redis_client)
    (tmp_path / "go").touch()
    received = receive_all(redis_client, f"{namespace}r", len(ids))
    started, before = history.counts("start"), beats(redis_client)
    os.kill(tree.pid, signal.SIGCONT)
    # The supervisor's heartbeat is sent, and its consumer holds again what nobody else has received.
    wait_until(lambda: beats(redis_client) > before)
    for pid in children:
        os.kill(pid, signal.SIGCONT)
    after = publish()
    wait_until(lambda: after in history.counts())
    assert received == ids
    assert history.counts("start") == started + Counter([after])
    assert "was taken for dead" not in tree.logged()


def test_what_nobody_received_while_a_consumer_was_stopped_is_handled_once(
    trees, publish, history, redis_client, namespace, tmp_path
):
    tree = trees("--threads", "1", QUEUES={"default": {"STORE": "rsmq", "NAMESPACE": f"{namespace}r", "VT": VT}})
    ids = [publish(["wait", str(tmp_path / "go")]), *(publish() for _ in range(5))]
    history.wait_for("start")
    pids = [tree.pid, *tree.children()]
    stop_while_it_holds(6, pids, redis_client)
    keys = get_config().queue("default").keys
    wait_until(lambda: redis_client.zcount(keys.zset, "-inf", now_ms(redis_client)) == 6)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    wait_until(lambda: redis_client.zcard(keys.zset) == 0)
    assert history.counts("start") == dict.fromkeys(ids, 1)


def stop_while_it_holds(count, pids, client):
    """Stop processes that hold so many messages. What waits behind a handler is handed back, and fetched again."""

    def stopped():
        if held(client) != count:
            return False
        for pid in pids:
            stop(pid)
        if held(client) == count:
            return True
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        return False

    wait_until(stopped)


def held(client):
    return client.hlen(get_config().queue("default").keys.owners)


def beats(client):
    return max(read_membership(client.hgetall(get_config().queue("default").keys.consumers)).beats.values())


def receive_all(client, namespace, count):
    queue, received = RSMQ(on_cluster.tag(namespace)), set()

    def receive():
        received.update(found.id for found in queue.receive_many("default", 10, vt=60))
        return len(received) == count

    wait_until(receive, timeout=VT + 10)
    return received


def now_ms(client):
    seconds, micros = client.time()
    return seconds * 1000 + micros // 1000
