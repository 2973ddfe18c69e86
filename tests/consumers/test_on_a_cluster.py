"""Consumers of a Redis Cluster. What they do while nodes fail and slots move: `make chaos`."""

import pytest

from mq_django import registry, schedules
from mq_django.conf import get_config
from mq_django.consumers.service import by_server
from mq_django.errors import QueueFull
from mq_django.producers import queues
from mq_django.transport.connections import node_of
from tests.waiting import wait_until

#: Those that the test project has handlers for; on three masters each has some.
NAMES = ["default", "emails", "a", "b", "c"]


def publish(name, **options):
    return queues[name].publish("act", {"do": []}, **options)


@pytest.mark.cluster
def test_queues_are_grouped_by_the_master_that_has_them(cluster, mq_settings):
    mq_settings(CONNECTION=cluster.url, QUEUES={name: {} for name in NAMES})
    configs = [get_config().queue(name) for name in NAMES]
    for server, share in by_server(configs).items():
        assert {node_of("", config.keys.ready) for config in share.values()} == {server}
    assert len(by_server(configs)) == 3
    assert sorted(number for share in by_server(configs).values() for number in share) == list(range(len(NAMES)))


@pytest.mark.cluster
def test_every_kind_of_queue_works_on_a_cluster_and_so_do_schedules(cluster, mq_settings, trees, history, monkeypatch):
    monkeypatch.setattr(registry, "_schedules", {})
    config = {
        "default": {"ORDERED": True, "PARTITIONS": 8},
        "emails": {"RATE_LIMIT": "1000/s"},
        "a": {"STORE": "rsmq", "NAMESPACE": "{rsmq-a}"},
        "b": {"FAIR": True},
        "c": {"MAX_DEPTH": 5},
    }
    in_settings = {f"s{number}": {"message": "act", "data": {}, "every": 1} for number in range(12)}
    options = {"CONNECTION": cluster.url, "QUEUES": config, "SCHEDULES": in_settings}
    tree = trees("--processes", "2", **options)
    nodes = [node_of("", part.keys.ready) for part in get_config().queue("default").parts]
    assert sorted(map(nodes.count, set(nodes))) == [2, 3, 3]
    ids = [publish(name) for name in NAMES] + [publish(name, delay=1) for name in NAMES]
    ids += [publish("default", key=f"k{n}") for n in range(60)] + [publish("c", unique="one", unique_for=60)]
    wait_until(lambda: set(history.counts()) >= set(ids), timeout=20)
    assert set(history.counts().values()) == {1}
    # Each schedule is in its partition, on some node.
    schedules.create("later", every=1, message="act", data={})
    wait_until(lambda: len(history.lines("effect")) >= len(ids) + len(in_settings) + 1, timeout=20)
    assert len(schedules.get_all("default")) == len(in_settings) + 1
    assert tree.stop() == 0
    for _ in range(5):
        publish("c")
    with pytest.raises(QueueFull):
        publish("c")
