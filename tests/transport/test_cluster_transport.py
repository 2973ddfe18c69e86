"""A pipeline goes to the node that has its slot, and what a node refuses goes to the one that does not."""

import threading

import pytest
import redis

from mq_django.conf import get_config, read
from mq_django.errors import (
    ConfigurationError,
    ConnectionLost,
    ConnectionRejected,
    NotPermitted,
    NotSupported,
    StoreError,
    WrongNode,
)
from mq_django.transport import cluster_transport, connections
from mq_django.transport.cluster_topology import Cluster, hash_slot
from mq_django.transport.cluster_transport import ClusterSession, ClusterTransport, slot_of
from mq_django.transport.connections import get_clients, get_server, node_of, open_session, open_transport
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.scripts import script
from mq_django.transport.sessions import Session, reply_or_raise
from mq_django.transport.subscription import Subscription
from tests.cluster_rig.private_cluster import PrivateCluster
from tests.waiting import wait_until

#: Keys on each of three masters.
KEYS = ["{a}", "{b}", "{c}"]


@pytest.fixture(params=["transport", "session"])
def transport(request, cluster):
    """Each way to send pipelines."""
    if request.param == "transport":
        yield open_transport("produce")
        return
    session = open_session("chores")
    yield session
    session.close()


@pytest.fixture
def key(cluster):
    """A key; its slot goes back when the test ends."""
    found = "{moves}"
    home = cluster.owner(found)
    yield found
    cluster.move_slots([hash_slot(found)], home)


def another(cluster, key):
    """Return a master that does not have a key."""
    return next(node for node in cluster.masters if node is not cluster.owner(key))


def half_moved(cluster, key):
    """Move some keys of a slot, and return an iterator that moves the others."""
    steps = cluster.moving_slots([hash_slot(key)], another(cluster, key), keys_at_once=5)
    next(step for step in steps if step.name == "keys")
    return steps


def values(cluster, keys):
    return [cluster.owner(key).client.get(key) for key in keys]


def test_a_trip_goes_to_the_node_that_has_its_slot(cluster, transport):
    assert len({cluster.owner(key).port for key in KEYS}) > 1
    for key in KEYS:
        assert transport.pipeline([("SET", key, key), ("GET", key)]) == [b"OK", key.encode()]
    assert values(cluster, KEYS) == [key.encode() for key in KEYS]


def test_several_trips_go_to_several_nodes(transport):
    pipelines = [[("SET", key, key)] for key in KEYS]
    assert transport.pipelines(pipelines) == [[b"OK"]] * 3
    assert transport.pipelines([[("GET", key)] for key in KEYS] + [[]]) == [[key.encode()] for key in KEYS] + [[]]


def test_a_trip_without_commands_has_no_replies(transport):
    assert transport.pipeline([]) == []
    assert transport.pipelines([[], []]) == [[], []]


def test_a_missing_value_is_a_reply(transport):
    assert transport.pipeline([("GET", "{a}none"), ("EXISTS", "{a}none")]) == [None, 0]


def test_an_error_reply_stays_in_its_place(transport):
    transport.pipeline([("SET", "{a}", "text")])
    refused, value = transport.pipeline([("LPUSH", "{a}", 1), ("GET", "{a}")])
    assert isinstance(refused, redis.ResponseError)
    assert value == b"text"


def test_a_command_without_a_key_goes_to_no_node(transport):
    with pytest.raises(NotSupported, match="PING has no key"):
        transport.pipeline([("PING",)])


def test_a_slot_that_has_moved_is_followed(cluster, transport, key):
    transport.pipeline([("SET", key, 1)])
    target = another(cluster, key)
    cluster.move_slots([hash_slot(key)], target)
    assert transport.pipeline([("INCR", key), ("INCR", key)]) == [2, 3]
    assert target.client.get(key) == b"3"
    wait_until(lambda: node_of("", key).endswith(str(target.port)))


def test_several_trips_follow_a_slot_that_has_moved(cluster, transport, key):
    transport.pipelines([[("SET", each, 1)] for each in (key, *KEYS)])
    cluster.move_slots([hash_slot(key)], another(cluster, key))
    assert transport.pipelines([[("INCR", each)] for each in (key, *KEYS)]) == [[2]] * 4


def test_while_a_slot_moves_each_key_is_found_where_it_is(cluster, transport, key):
    keys = [f"{key}{n}" for n in range(20)]
    transport.pipeline([("SET", each, 1) for each in keys])
    steps = half_moved(cluster, key)
    # Those that have moved already are read by ASKING, and new ones are made where the slot goes.
    assert transport.pipeline([("INCR", each) for each in [*keys, f"{key}new"]]) == [2] * 20 + [1]
    for _ in steps:
        pass
    assert transport.pipeline([("INCR", each) for each in [*keys, f"{key}new"]]) == [3] * 20 + [2]


COUNT = script("count_two", "return {redis.call('INCR', KEYS[1]), redis.call('INCR', KEYS[2])}")


def test_a_script_whose_keys_are_on_both_sides_of_a_move_runs_after_it_once(cluster, transport, key, monkeypatch):
    """The node says TRYAGAIN: a script needs all its keys in one place."""
    monkeypatch.setattr(get_server("produce"), "patience", 20.0)
    monkeypatch.setattr(get_server("chores"), "patience", 20.0)
    command = ("EVALSHA", COUNT.sha, 2, f"{key}1", f"{key}none")
    transport.pipeline([("SET", f"{key}{n}", 0) for n in range(20)])
    steps = half_moved(cluster, key)
    moved = threading.Timer(0.3, lambda: [None for _ in steps])
    moved.start()
    assert transport.pipeline([command]) == [[1, 1]]
    moved.join()
    assert transport.pipeline([command]) == [[2, 2]]


def test_what_no_node_can_run_is_an_error_when_the_patience_ends(cluster, transport, key, monkeypatch):
    for role in ("produce", "chores"):
        monkeypatch.setattr(get_server(role), "patience", 0.1)
    transport.pipeline([("SET", f"{key}{n}", 0) for n in range(20)])
    steps = half_moved(cluster, key)
    (reply,) = transport.pipeline([("EVALSHA", COUNT.sha, 2, f"{key}1", f"{key}none")])
    assert isinstance(reply, ConnectionLost)
    assert "is moving the keys to another node, and has moved some of them. The command was not executed" in str(reply)
    assert not reply.was_sent
    for _ in steps:
        pass


@pytest.fixture
def own_cluster(mq_settings):
    """A cluster of its own, whose nodes may fail; one that lacks some slots serves the others."""
    with PrivateCluster(3, settings={"cluster-require-full-coverage": "no"}, node_timeout=1.0) as cluster:
        mq_settings(CONNECTION=cluster.url)
        yield cluster
        connections.close_clients()


def is_silent(cluster, monkeypatch):
    """A session waits for it once."""
    silent = cluster.owner("{a}")
    monkeypatch.setattr(cluster_transport, "LOST_FOR", 60.0)
    monkeypatch.setitem(connections.TIMEOUTS, "inspect", (0.5, 0.5))
    session = open_session("inspect")
    session.pipeline([("SET", "{a}", 1)])
    silent.suspend()
    try:
        with pytest.raises(ConnectionLost, match=str(silent.port)):
            session.pipeline([("GET", "{a}")])
        monkeypatch.setattr(cluster_transport, "Session", None)  # it does not try
        with pytest.raises(ConnectionLost, match=str(silent.port)):
            session.pipeline([("GET", "{a}")])
    finally:
        silent.resume()
    session.close()


def restarts(cluster, monkeypatch):
    """A publish waits for it."""
    node = cluster.owner("{a}")
    transport = open_transport("produce")
    transport.pipeline([("SET", "{a}", 1)])
    monkeypatch.setattr(get_server("produce"), "patience", 20.0)
    node.kill()
    back = threading.Timer(0.2, node.start)
    back.start()
    # No connection could be made, or the node said that it is not ready: nothing was executed.
    assert transport.pipeline([("INCR", "{a}new")]) == [1]
    back.join()


def has_lost_a_slot(cluster, _):
    """No node has it."""
    ask_all("SET", KEYS, 1)
    for node in cluster.nodes:
        node.command("CLUSTER", "DELSLOTS", hash_slot("{lost}"))
    for role in ("inspect", "chores"):
        get_server(role).changed()
    for replies in ask_all("GET", ["{lost}", *KEYS]):
        assert isinstance(replies[0][0], Exception)
        assert replies[1:] == [[b"1"]] * len(KEYS)


def is_down(cluster, _):
    lost = cluster.owner("{a}")
    keys = [key for key in KEYS if cluster.owner(key) is not lost]
    ask_all("SET", keys, 1)
    lost.kill()
    for replies in ask_all("GET", ["{a}", *keys]):
        assert isinstance(replies[0][0], Exception)
        assert replies[1:] == [[b"1"]] * len(keys)
    for transport in (open_transport("inspect"), open_session("chores")):
        with pytest.raises(StoreError):
            transport.pipeline([("GET", "{a}")])
        assert transport.pipeline([("GET", keys[0])]) == [b"1"]


def ask_all(name, keys, *arguments):
    """Return the replies of a pipeline for each key, for each way to send them."""
    return [
        transport.pipelines([[(name, key, *arguments)] for key in keys])
        for transport in (open_transport("inspect"), open_session("chores"))
    ]


def test_a_node_that_fails_hides_no_reply_of_the_others(own_cluster, monkeypatch, subtests):
    for what in (is_silent, restarts, has_lost_a_slot, is_down):
        with subtests.test(what.__name__), monkeypatch.context() as patches:
            what(own_cluster, patches)
        connections.close_clients()


def test_what_a_restarted_node_has_forgotten_is_no_reason_to_send_a_command_twice(cluster, monkeypatch):
    """A reply that is missing may be that of a command that has run."""
    transport, sent = ClusterTransport(get_server("produce")), []

    def lost(node, commands):
        sent.append(commands)
        raise ConnectionLost("no reply")

    monkeypatch.setattr(cluster_transport, "_pooled", lost)
    with pytest.raises(ConnectionLost):
        transport.pipeline([("INCR", "{a}")])
    assert sent == [[("INCR", "{a}")]]


def test_no_node_that_answers_is_an_error_that_names_them(mq_settings):
    mq_settings(CONNECTION="redis+cluster://127.0.0.1:1,127.0.0.1:2")
    for transport in (open_transport("inspect"), open_session("chores")):
        with pytest.raises(ConnectionLost, match=r"any node of the Redis Cluster of 127\.0\.0\.1:1, 127\.0\.0\.1:2"):
            transport.pipeline([("GET", "a")])


def test_one_node_that_answers_is_enough(cluster, mq_settings):
    mq_settings(CONNECTION=f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.masters[0].port}")
    assert open_transport("produce").pipelines([[("SET", key, 1)] for key in KEYS]) == [[b"OK"]] * 3
    assert {client.connection_pool.connection_kwargs["port"] for client in get_clients("produce")} == {
        node.port for node in cluster.masters
    }


def test_a_session_that_another_thread_closes_is_lost(cluster, monkeypatch):
    session = open_session("chores")

    def closed(_, commands):
        session.close()
        raise ConnectionLost("closed")

    monkeypatch.setattr(Session, "pipeline", closed)
    with pytest.raises(ConnectionLost, match="closed"):
        session.pipeline([("GET", "a")])


@pytest.fixture
def shut_out(cluster):
    """The URL of a user who may not ask for the nodes."""
    for node in cluster.masters:
        node.command("ACL", "SETUSER", "shut-out", "on", ">secret", "~*", "+@all", "-cluster")
    yield cluster.url.replace("://", "://shut-out:secret@")
    connections.close_clients()
    for node in cluster.masters:
        node.command("ACL", "DELUSER", "shut-out")


def test_a_user_who_may_not_ask_for_the_nodes_is_told_so(mq_settings, shut_out):
    mq_settings(CONNECTION=shut_out)
    with pytest.raises(NotPermitted, match=r"cluster.*docs/settings\.md lists the rights"):
        open_transport("produce").pipeline([("GET", "a")])


def test_a_server_that_is_no_cluster_is_refused_with_the_url_to_write(mq_settings):
    with PrivateServer(tcp=True) as server:
        mq_settings(CONNECTION=server.url.replace("redis://", "redis+cluster://"))
        with pytest.raises(ConnectionRejected, match=r"Write redis:// instead of redis\+cluster://"):
            open_transport("produce").pipeline([("GET", "a")])
        connections.close_clients()


def test_a_plain_url_that_meets_a_cluster_is_refused_with_the_url_to_write(cluster, mq_settings):
    mq_settings(CONNECTION=f"redis://127.0.0.1:{another(cluster, '{a}').port}")
    (reply,) = open_transport("produce").pipeline([("GET", "{a}")])
    with pytest.raises(WrongNode, match=r"Write redis\+cluster:// instead of redis://"):
        reply_or_raise(reply)


def test_a_url_that_is_none_of_a_cluster_is_refused(mq_settings, subtests):
    for url, says in [
        ("redis+cluster://", "names its nodes"),
        ("redis+cluster://n1:6379/3", "only database 0"),
        ("redis+cluster://n1:6379,n2:x", "port from 1 to 65535"),
        ("redis+cluster://n1:6379,", "names its nodes"),
        ("redis+cluster://n1:6379?socket_keepalive=perhaps&ssl_nonsense=1", "does not take"),
    ]:
        with subtests.test(url=url, says=says):
            mq_settings(CONNECTION=url)
            with pytest.raises(ConfigurationError, match=says) as refused:
                open_transport("produce")
            assert "n1" not in str(refused.value)


def test_user_password_and_options_count_for_each_node(mq_settings):
    mq_settings(CONNECTION="rediss+cluster://ann:p%40ss@n1:7000,n2/0?ssl_ca_certs=/ca.pem&socket_timeout=99")
    server = get_server("produce")
    assert isinstance(server, Cluster)
    assert server.nodes == (("n1", 7000), ("n2", 6379))
    options = server._pool(("n3", 1), server._ours).connection_kwargs
    assert (options["username"], options["password"], options["ssl_ca_certs"]) == ("ann", "p@ss", "/ca.pem")
    assert options["socket_timeout"] == connections.TIMEOUTS["produce"][1]
    assert "p@ss" not in str(server)


def test_rsmq_needs_a_hash_tag_on_a_cluster():
    queues = {"jobs": {"STORE": "rsmq"}, "tagged": {"STORE": "rsmq", "NAMESPACE": "{rsmq}"}}
    _, problems = read({"CONNECTION": "redis+cluster://n1", "QUEUES": queues})
    assert [problem.setting for problem in problems] == ["MQ_DJANGO[\"QUEUES\"]['jobs']"]
    assert "{rsmq}" in problems[0].hint


def test_a_trip_s_slot_is_that_of_its_first_key():
    assert slot_of([("PUBLISH", "{a}:wake", ""), ("GET", "{a}")]) == hash_slot("{a}")
    with pytest.raises(NotSupported):
        slot_of([("TIME",)])


def test_a_subscription_hears_what_is_published_on_any_node(cluster):
    subscription = Subscription(open_session("consume"), ["{a}:wake"])
    assert subscription.open()
    for node in cluster.masters:
        node.client.publish("{a}:wake", str(node.port))
    heard = []
    wait_until(lambda: heard.extend(subscription.messages(0.1)) or len(heard) == len(cluster.masters))
    assert {channel for channel, _ in heard} == {"{a}:wake"}
    subscription.close()


def test_a_subscription_ends_when_its_slot_has_moved(cluster, key):
    session = open_session("consume")
    subscription = Subscription(session, [f"{key}:wake"])
    subscription.open()
    cluster.move_slots([hash_slot(key)], another(cluster, key))
    ClusterSession(session._cluster).pipeline([("GET", key)])
    with pytest.raises(ConnectionLost, match="Another node"):
        list(subscription.messages(0.01))
    subscription.close()
    assert subscription.open()
    subscription.close()


def test_a_session_counts_how_often_another_node_has_its_slots(cluster, key):
    session = open_session("consume")
    session.pipeline([("SET", key, 1)])
    session.pipeline([("GET", key)])
    assert session.moves == 0
    cluster.move_slots([hash_slot(key)], another(cluster, key))
    session.pipeline([("GET", key)])
    session.pipeline([("GET", key)])
    assert session.moves == 1
    session.close()


def test_a_node_that_answers_late_that_it_has_moved_is_followed_all_the_same(cluster, key, monkeypatch):
    """A blocked read, and a node that was frozen, reply after the patience has ended."""
    monkeypatch.setattr(get_server("consume"), "patience", 0.1)
    session = open_session("consume")
    session.pipeline([("DEL", f"{key}list")])
    mover = threading.Timer(0.2, lambda: cluster.move_slots([hash_slot(key)], another(cluster, key)))
    mover.start()
    # Redis ends the read when the slot moves; the next one finds the new node.
    replies = session.pipeline([("SET", f"{key}before", 1), ("BLPOP", f"{key}list", 1)])
    mover.join()
    assert replies[0] == b"OK"
    assert not isinstance(replies[1], WrongNode)
    assert session.pipeline([("GET", f"{key}before")]) == [b"1"]
    session.close()


def test_a_node_that_lost_its_slots_ends_the_reads_of_its_connections(cluster):
    server = get_server("consume")
    node = server.owner(hash_slot("{a}"))
    session = Session(node)
    session.send([("SUBSCRIBE", "{a}:wake")])
    session.receive()
    failures = []

    def listen():
        try:
            session.can_receive(20)
            session.receive()
        except ConnectionLost as error:
            failures.append(error)

    reader = threading.Thread(target=listen)
    reader.start()
    owners = dict(server._owners)
    server._owners = {slot: address for slot, address in owners.items() if server._clients.get(address) is not node}
    server._forget_others()
    reader.join(10)
    assert len(failures) == 1
    session.close()
    server.changed()


def test_a_wait_for_a_node_can_be_interrupted(cluster):
    session = open_session("consume")
    caught = []

    def wait():
        with pytest.raises(ConnectionLost) as found:
            session.pipeline([("BLPOP", "{a}list", 30)])
        caught.append(found.value)

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        # Again and again: one that comes before the wait ends nothing.
        session.interrupt()
        thread.join(0.01)
    session.close()
    assert len(caught) == 1


def test_the_config_says_which_node_has_a_queue(cluster, mq_settings):
    mq_settings(CONNECTION=cluster.url, QUEUES={name: {} for name in "abcdefgh"})
    for name in "abcdefgh":
        key = get_config().queue(name).keys.ready
        assert node_of("", key) == f"127.0.0.1:{cluster.owner(key).port}"
