"""What is said about servers: each with one thing wrong."""

import os
import signal
import socket

import redis

from mq_django.core import clock
from mq_django.transport.cluster_topology import hash_slot
from mq_django.transport.connections import close_clients
from tests.inspector.doctor.conftest import levels
from tests.sentinel_rig import running_sentinel
from tests.transport.impostor import Impostor
from tests.waiting import wait_until


def client_of(server):
    return redis.Redis.from_url(server.url)


def test_a_setting_of_the_server_is_a_finding(server_with, found, subtests):
    server = server_with()
    with client_of(server) as client:
        for settings, expected in [
            ({}, None),
            ({"maxmemory-policy": "allkeys-lru", "maxmemory": "100mb"}, ("D102", "error")),
            ({"maxmemory-policy": "allkeys-lru"}, ("D102", "warning")),
            ({"maxmemory-policy": "volatile-ttl", "maxmemory": "100mb"}, ("D102", "warning")),
            ({"tcp-keepalive": "0"}, ("D113", "warning")),
            ({"appendonly": "no", "save": ""}, ("D103", "warning")),
            ({"appendonly": "no", "save": "60 1"}, ("D103", "warning")),
        ]:
            before = {name: client.config_get(name)[name] for name in settings}
            for name, value in settings.items():
                client.config_set(name, value)
            with subtests.test(**settings):
                findings = found("D1")
                assert levels(findings) == ([expected] if expected else [])
                assert all(server.url.removeprefix("redis://") in each.where for each in findings)
            # The append-only file stays off: writing it anew takes time.
            for name, value in before.items():
                client.config_set(name, value if name != "appendonly" else "no")


def cluster_node(server_with):
    # By default the port of the bus is 10,000 above the other, and there may be none.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bus = listener.getsockname()[1]
    return server_with(cluster_enabled="yes", cluster_port=str(bus)), bus


def test_a_cluster_that_is_down(server_with, found):
    cluster_node(server_with)
    (finding,) = (each for each in found("D1") if each.level == "error")
    assert finding.code == "D112"
    assert "whose state is fail" in finding.seen


def test_a_cluster_with_queues_on_another_node(server_with, found, mq_settings):
    (first, _), (second, bus) = (cluster_node(server_with) for _ in range(2))
    slot = hash_slot("{default}")
    with client_of(first) as one, client_of(second) as two:
        one.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, slot)
        two.execute_command("CLUSTER", "ADDSLOTSRANGE", slot + 1, 16383)
        two.execute_command("CLUSTER", "SET-CONFIG-EPOCH", 2)
        one.execute_command("CLUSTER", "MEET", "127.0.0.1", second.port, bus)
        for client in (one, two):
            wait_until(lambda client=client: b"cluster_state:ok" in state_of(client), timeout=30)
    mq_settings(CONNECTION=first.url, QUEUES={"default": {}}, TOPICS={"a": {}, "orders": {}})
    moved = [name for name in ("a", "orders") if hash_slot(f"{{{name}}}") > slot]
    assert moved
    (finding,) = found("D112")
    assert f"other nodes have the keys of {', '.join(moved)}." in finding.seen
    mq_settings(CONNECTION=first.url, QUEUES={"default": {}})
    assert found("D112") == []


def state_of(client):
    client.set_response_callback("CLUSTER INFO", bytes)
    return client.execute_command("CLUSTER INFO")


def test_a_server_that_is_too_old_or_has_a_known_bug(server_with, found, mq_settings):
    server = server_with()
    for looks, expected in (
        ({"version": "6.2.14", "lacks": ["EXPIRETIME"]}, ("D101", "error")),
        ({"version": "8.10.1"}, ("D104", "warning")),
    ):
        impostor = Impostor(server.port, **looks)
        mq_settings(CONNECTION=impostor.url)
        assert levels(found("D1")) == [expected]
        close_clients()
        impostor.close()


def test_a_server_that_cannot_be_reached(mq_settings, found):
    mq_settings(CONNECTION="redis://:s3cret@127.0.0.1:1")
    (finding,) = found("D1")
    assert (finding.code, finding.level) == ("D100", "error")
    assert "Cannot reach Redis at 127.0.0.1:1" in finding.seen
    assert "s3cret" not in str(finding)


def test_a_sentinel_in_the_place_of_a_server(mq_settings, found):
    with running_sentinel(1) as sentinel:
        mq_settings(CONNECTION=f"redis://127.0.0.1:{sentinel.port}/0")
        (finding,) = found("D1")
        close_clients()
    assert (finding.code, finding.level) == ("D100", "error")
    assert "is a Sentinel" in finding.seen
    assert "write redis+sentinel://" in finding.seen


def test_a_server_that_does_not_answer(server_with, found):
    server = server_with()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert levels(found("D1")) == [("D100", "error")]
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_other_servers_are_looked_at_when_one_is_away(server_with, found, mq_settings):
    server = server_with(tcp_keepalive="0")
    mq_settings(CONNECTION=server.url, QUEUES={"default": {}, "far": {"CONNECTION": "redis://127.0.0.1:1"}})
    assert sorted(levels(found("D1"))) == [("D100", "error"), ("D113", "warning"), ("D199", "note")]


def test_clocks_that_differ(server_with, found):
    server_with()
    for shift, word in ((90, "behind"), (-90, "ahead of")):
        clock.set_shift(shift)
        try:
            (finding,) = found("D1")
        finally:
            clock.set_shift(0)
        assert finding.code == "D109"
        assert f"The clock of Redis is 90.0 s {word} the clock of this machine" in finding.seen


def test_what_a_managed_server_refuses_is_a_note_with_the_right_that_is_needed(server_with, found):
    server = server_with(tcp_keepalive="0")
    with client_of(server) as client:
        client.execute_command("ACL", "SETUSER", "default", "-config", "-info", "-time")
    notes = found("D1")
    assert {finding.code for finding in notes} == {"D199", "D115"}
    assert {
        finding.advice.split("the right ")[1].split(",")[0] for finding in notes if "the right" in finding.advice
    } == {
        "+info",
        "+time",
        "+config|get",
    }
