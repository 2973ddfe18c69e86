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

VT = 1


def test_what_was_received_or_not_while_a_consumer_was_stopped(
    trees, publish, history, redis_client, namespace, tmp_path
):
    tree = trees(
        *("--processes", "1", "--threads", "1"),
        QUEUES={"default": {"STORE": "rsmq", "NAMESPACE": f"{namespace}r", "VT": VT}},
    )
    # What others received is not started.
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

    # What nobody received is handled once.
    ids = [publish(["wait", str(tmp_path / "again")]), *(publish() for _ in range(5))]
    wait_until(lambda: history.counts("start")[ids[0]])
    stop_while_it_holds(len(ids), [tree.pid, *children], redis_client)
    keys = get_config().queue("default").keys
    wait_until(lambda: redis_client.zcount(keys.zset, "-inf", now_ms(redis_client)) == len(ids))
    for pid in (tree.pid, *children):
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "again").touch()
    wait_until(lambda: history.counts().keys() >= set(ids))
    assert [history.counts("start")[message_id] for message_id in ids] == [1] * len(ids)
    assert "was taken for dead" not in tree.logged()


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
