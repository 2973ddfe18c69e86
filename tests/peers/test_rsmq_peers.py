"""RSMQ's format, held against npm's rsmq and PyRSMQ: what one writes, the other reads, both ways."""

import os
import re

import pytest

from mq_django.conf import get_config
from mq_django.core.messages import Bury
from mq_django.core.rsmq_format import sent_micros
from mq_django.errors import MessageTooLong, QueueExists, QueueNotFound
from mq_django.rsmq import RSMQ
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled, Session
from tests.peers.programs import HERE
from tests.peers.rsmq_peers import Npm, PeerError, PyRSMQ
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

BODIES = ['{"a":[1,{}]}', "héllo ☃ 😀", "line\nbreak\tand \x00 nul", "0", "x" * 5000]


@pytest.fixture
def ns(namespace):
    return f"{namespace}:r"


@pytest.fixture
def ours(mq_settings, ns):
    return RSMQ(ns)


@pytest.fixture
def start(request, redis_url):
    running = []

    def make(kind, ns, *, realtime=False):
        if kind is Npm:
            node = request.getfixturevalue("node")
            command = [node, HERE / "rsmq_peer.js", redis_url, ns, "realtime" if realtime else ""]
        else:
            command = [request.getfixturevalue("pyrsmq"), HERE / "rsmq_peer.py", redis_url, ns]
        running.append(kind(command, {**os.environ, "NODE_PATH": str(HERE / "node_modules")}))
        return running[-1]

    yield make
    for each in running:
        each.stop()


@pytest.fixture(params=[Npm, PyRSMQ], ids=["npm", "pyrsmq"])
def peer(request, start, ns):
    return start(request.param, ns)


@pytest.fixture
def npm(start, ns):
    return start(Npm, ns)


def fields(redis_client, ns, queue="q"):
    return {name.decode(): value for name, value in redis_client.hgetall(f"{ns}:{queue}:Q").items()}


def score(redis_client, ns, message_id, queue="q"):
    return redis_client.zscore(f"{ns}:{queue}", message_id)


def now_ms(redis_client):
    seconds, micros = redis_client.time()
    return seconds * 1000 + micros // 1000


def test_both_find_the_queues_of_a_namespace(ours, peer, start, redis_client):
    ours.create_queue("a")
    peer.create("b")
    assert ours.list_queues() == peer.names() == {"a", "b"}


def test_the_default_namespace_is_the_same(mq_settings, redis_client, start, request, redis_url, namespace):
    # A queue of its own: others may use the default namespace of this server, too.
    queue = namespace
    there = RSMQ()
    there.create_queue(queue)
    try:
        for kind in (Npm, PyRSMQ):
            assert start(kind, "rsmq").attributes(queue)["vt"] == 30
        assert redis_client.exists(f"rsmq:{queue}:Q")
    finally:
        there.delete_queue(queue)


def test_a_queue_can_be_created_once_by_either(ours, peer, redis_client, ns):
    peer.create("q", vt=7)
    before = fields(redis_client, ns)
    with pytest.raises(QueueExists):
        ours.create_queue("q", vt=9)
    assert fields(redis_client, ns) == before
    ours.create_queue("mine", vt=7)
    with pytest.raises(PeerError, match=peer.exists):
        peer.create("mine", vt=9)
    assert ours.get_queue_attributes("mine").vt == 7


def test_a_queue_that_only_pyrsmq_would_name_so_can_be_used(ours, start, ns):
    pyrsmq = start(PyRSMQ, ns)
    pyrsmq.create("a.b é")
    pyrsmq.send("a.b é", "hello")
    assert ours.list_queues() == {"a.b é"}
    assert ours.receive("a.b é").message == "hello"


def test_an_id_says_when_it_was_sent(ours, npm, redis_client):
    ours.create_queue("q")
    before = now_ms(redis_client)
    message_id = ours.send("q", "x")
    assert re.fullmatch(r"[0-9a-z]{10}[a-zA-Z0-9]{22}", message_id)
    assert before <= sent_micros(message_id) / 1000 <= now_ms(redis_client) + 1
    theirs = npm.send("q", "y")
    assert abs(ours.receive_many("q", 2)[1].sent - now_ms(redis_client)) < 1000
    assert abs(sent_micros(theirs) - sent_micros(message_id)) < 2_000_000


def test_a_score_is_the_time_and_the_delay(ours, peer, redis_client, ns):
    ours.create_queue("q", delay=3)
    for send in (ours.send, peer.send):
        for delay, seconds in ((None, 3), (0, 0), (50, 50)):
            # PyRSMQ drops a delay of 0 from its arguments.
            if send == peer.send and peer.name == "pyrsmq" and delay == 0:
                continue
            before = now_ms(redis_client)
            message_id = send("q", "x", **({} if delay is None else {"delay": delay}))
            after = now_ms(redis_client)
            # Ours counts the millisecond that has begun as over, so as never to be early.
            assert before + seconds * 1000 <= score(redis_client, ns, message_id) <= after + seconds * 1000 + 1


def test_bodies_survive_both_ways(ours, peer):
    ours.create_queue("q")
    for body in BODIES:
        ours.send("q", body)
        assert peer.pop("q").body == body
        # JSON text is decoded by PyRSMQ when it is sent so, not by us.
        peer.send("q", body)
        found = ours.pop("q")
        assert found.message == body


def test_an_empty_body_survives(ours, npm):
    ours.create_queue("q")
    ours.send("q", "")
    assert npm.pop("q").body == ""
    npm.send("q", "")
    assert ours.pop("q").message == ""


def test_a_message_over_the_maxsize_is_refused_as_npm_refuses_it(ours, npm, redis_client, ns):
    ours.create_queue("q", maxsize=1024)
    before = fields(redis_client, ns)
    for body in ("é" * 1025, "😀" * 513):
        with pytest.raises(MessageTooLong):
            ours.send("q", body)
        with pytest.raises(PeerError, match="messageTooLong"):
            npm.send("q", body)
    assert (fields(redis_client, ns), redis_client.zcard(f"{ns}:q")) == (before, 0)
    for body in ("é" * 1024, "😀" * 512):
        ours.send("q", body)
        npm.send("q", body)
    ours.set_queue_attributes("q", maxsize=-1)
    ours.send("q", "x" * 100_000)


def test_messages_come_in_the_order_of_their_scores(ours, peer):
    ours.create_queue("q")
    bodies = [f"m{n}" for n in range(6)]
    for n, body in enumerate(bodies):
        (ours.send if n % 2 else peer.send)("q", body)
    assert [ours.pop("q").message, peer.pop("q").body] == ["m0", "m1"]
    assert [received.message for received in ours.receive_many("q", 10)] == bodies[2:]


def test_receiving_hides_counts_and_remembers_the_first_time(ours, peer, redis_client, ns):
    ours.create_queue("q")
    message_id = ours.send("q", "x")
    before = now_ms(redis_client)
    first = peer.receive("q", vt=1)
    assert (first.id, first.rc) == (message_id, 1)
    assert before <= first.fr <= now_ms(redis_client)
    assert ours.receive("q") is None
    second = wait_until(lambda: ours.receive("q", vt=1))
    assert (second.id, second.rc, second.fr) == (message_id, 2, first.fr)
    third = wait_until(lambda: peer.receive("q", vt=30))
    assert (third.rc, third.fr) == (3, first.fr)
    assert fields(redis_client, ns)[f"{message_id}:fr"] == str(first.fr).encode()
    assert fields(redis_client, ns)[f"{message_id}:rc"] == b"3"
    assert fields(redis_client, ns)["totalrecv"] == b"3"


def test_the_vt_of_a_call_beats_that_of_the_queue(ours, peer, redis_client, ns):
    ours.create_queue("q", vt=1000)
    for receive, queue_vt in ((ours.receive, 1000), (peer.receive, 1000)):
        ours.send("q", "x")
        before = now_ms(redis_client)
        found = receive("q", vt=100)
        assert before + 100_000 <= score(redis_client, ns, found.id) <= now_ms(redis_client) + 100_000
        ours.send("q", "x")
        found = receive("q")
        assert score(redis_client, ns, found.id) >= before + queue_vt * 1000


def test_a_delayed_message_is_seen_by_neither_until_it_is_due(ours, peer, redis_client, ns):
    ours.create_queue("q")
    message_id = peer.send("q", "x", delay=1)
    assert (ours.receive("q"), ours.pop("q"), peer.receive("q"), peer.pop("q")) == (None, None, None, None)
    due = score(redis_client, ns, message_id)
    assert wait_until(lambda: ours.receive("q")).id == message_id
    assert now_ms(redis_client) >= due


def test_pop_leaves_nothing(ours, peer, redis_client, ns):
    ours.create_queue("q")
    for pop in (ours.pop, peer.pop):
        peer.send("q", "x")
        assert pop("q").rc == 1
        assert redis_client.zcard(f"{ns}:q") == 0
    assert set(fields(redis_client, ns)) == {"vt", "delay", "maxsize", "created", "modified", "totalsent", "totalrecv"}
    assert fields(redis_client, ns)["totalrecv"] == b"2"


def test_visibility_can_be_changed_by_either(ours, peer, redis_client, ns):
    ours.create_queue("q")
    message_id = ours.send("q", "x")
    for change in (ours.change_visibility, peer.show):
        before = now_ms(redis_client)
        assert change("q", message_id, 60)
        assert before + 60_000 <= score(redis_client, ns, message_id) <= now_ms(redis_client) + 60_000
        assert not change("q", "0" * 32, 60)
    assert ours.change_visibility("q", message_id, 0)
    assert peer.receive("q").id == message_id


def test_a_message_is_deleted_once_by_either(ours, peer, redis_client, ns):
    ours.create_queue("q")
    for delete in (ours.delete, peer.delete):
        received, fresh = ours.send("q", "x"), ours.send("q", "y")
        assert ours.receive("q").id == received
        assert delete("q", received)
        # PyRSMQ wants three fields to be gone, and says False of what nobody has received.
        assert delete("q", fresh) or peer.name == "pyrsmq"
        assert not delete("q", received)
        assert redis_client.zcard(f"{ns}:q") == 0
        assert not [name for name in fields(redis_client, ns) if name.startswith((received, fresh))]


def test_a_deleted_queue_is_gone_for_both(ours, peer, redis_client, ns):
    for delete, missing in ((ours.delete_queue, ours), (peer.delete_queue, peer)):
        ours.create_queue("q")
        ours.send("q", "x")
        delete("q")
        assert redis_client.keys(f"{ns}:q*") == []
        assert ours.list_queues() == peer.names() == set()
        with pytest.raises(QueueNotFound if missing is ours else PeerError):
            delete("q")
    for call in (ours.receive, ours.pop, ours.get_queue_attributes, ours.delete_queue):
        with pytest.raises(QueueNotFound):
            call("q")
    with pytest.raises(QueueNotFound):
        ours.send("q", "x")


def test_attributes_that_are_set_are_set_for_both(ours, npm, redis_client, ns):
    ours.create_queue("q")
    redis_client.hset(f"{ns}:q:Q", "modified", "5")
    changed = ours.set_queue_attributes("q", vt=7)
    assert (changed.vt, changed.delay, changed.maxsize) == (7, 0, 65536)
    assert abs(changed.modified - redis_client.time()[0]) <= 1
    assert npm.attributes("q")["vt"] == 7
    npm.set("q", delay=9)
    assert ours.get_queue_attributes("q")[:3] == (7, 9, 65536)


def test_attributes_agree(ours, peer):
    ours.create_queue("q", vt=60)
    for n in range(5):
        ours.send("q", f"m{n}", delay=0 if n < 4 else 100)
    ours.receive("q")
    # npm counts as hidden what became visible within the running second.
    wait_until(lambda: peer.attributes("q")["hiddenmsgs"] == 2)
    mine, theirs = ours.get_queue_attributes("q")._asdict(), peer.attributes("q")
    assert mine == {name: theirs[name] for name in mine}
    assert (mine["msgs"], mine["hiddenmsgs"], mine["totalrecv"], mine["totalsent"]) == (5, 2, 1, 5)


@pytest.mark.parametrize("whose", ["ours", "npm"])
def test_realtime_tells_the_number_of_messages_after_a_send(mq_settings, start, redis_client, ns, whose):
    sender = RSMQ(ns, realtime=True) if whose == "ours" else start(Npm, ns, realtime=True)
    silent = RSMQ(ns)
    silent.create_queue("q")
    with redis_client.pubsub() as channel:
        channel.subscribe(f"{ns}:rt:q")
        assert channel.get_message(timeout=2)["type"] == "subscribe"
        silent.send("q", "not told")
        sender.send("q", "x")
        sender.send("q", "y", delay=10)
        silent.receive("q")
        told = [wait_until(lambda: channel.get_message(timeout=0.1))["data"] for _ in range(2)]
        assert told == [b"2", b"3"]
        assert channel.get_message(timeout=0.1) is None


def test_half_a_message_is_passed_over(ours, redis_client, ns):
    ours.create_queue("q")
    redis_client.zadd(f"{ns}:q", {"0" * 32: 1, "1" * 32: 2})
    whole = ours.send("q", "x")
    assert [received.id for received in ours.receive_many("q", 10)] == [whole]
    redis_client.zadd(f"{ns}:q", {"0" * 32: 1})
    assert ours.pop("q") is None
    assert redis_client.zrange(f"{ns}:q", 0, -1) == [whole.encode()]


def test_a_message_with_an_id_of_another_kind_can_be_used(ours, npm, redis_client, ns):
    ours.create_queue("q")
    uuid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    redis_client.hset(f"{ns}:q:Q", uuid, "foreign")
    redis_client.zadd(f"{ns}:q", {uuid: 1})
    found = ours.receive("q")
    assert (found.id, found.message, found.sent) == (uuid, "foreign", None)
    assert ours.change_visibility("q", uuid, 0)
    with pytest.raises(PeerError, match="invalidFormat"):
        npm.delete("q", uuid)
    assert ours.delete("q", uuid)


def test_a_vt_with_a_fraction_is_read_as_npm_reads_it(ours, npm, redis_client, ns):
    ours.create_queue("q")
    redis_client.hset(f"{ns}:q:Q", "vt", "1.5")
    assert ours.get_queue_attributes("q").vt == npm.attributes("q")["vt"] == 1
    ours.send("q", "x")
    before = now_ms(redis_client)
    assert score(redis_client, ns, ours.receive("q").id) <= before + 1500


def test_what_pyrsmq_leaves_of_a_missing_queue_is_no_queue(ours, start, npm, redis_client, ns):
    with pytest.raises(PeerError):
        start(PyRSMQ, ns).set("q", vt=5)
    assert set(fields(redis_client, ns)) <= {"vt", "modified"}
    redis_client.hset(f"{ns}:q:Q", "vt", "5")
    with pytest.raises(QueueNotFound):
        ours.send("q", "x")
    with pytest.raises(QueueNotFound):
        ours.set_queue_attributes("q", vt=6)
    ours.create_queue("q")
    npm.send("q", "x")
    assert ours.receive("q").message == "x"


def test_setting_attributes_of_a_missing_queue_creates_nothing(ours, npm, redis_client, ns):
    with pytest.raises(QueueNotFound):
        ours.set_queue_attributes("q", vt=5)
    with pytest.raises(PeerError, match="queueNotFound"):
        npm.set("q", vt=5)
    assert redis_client.keys(f"{ns}:*") == []


@pytest.fixture
def store(mq_settings, ns):
    mq_settings(QUEUES={"q": {"STORE": "rsmq", "NAMESPACE": ns, "REALTIME": True}})
    opened = open_store(get_config().queue("q"), Session(get_client("consume")))
    assert opened.take("me", count=1) == []
    return opened


def test_npm_sees_a_burial_and_a_redrive_whole(store, npm, redis_client, ns):
    message_id = npm.send("q", "poison")
    (delivery,) = store.take("me", count=1)
    assert store.settle("me", [Settlement(delivery, Bury("no"))]) == []
    after = npm.attributes("q")
    assert (after["msgs"], after["hiddenmsgs"], after["totalsent"], after["totalrecv"]) == (0, 0, 1, 1)
    assert npm.receive("q") is None
    assert not [name for name in fields(redis_client, ns) if name.startswith(message_id)]
    dead = open_dead_letters(store.config, Pooled(get_client("inspect")))
    assert dead.redrive(dead.find([message_id])) == ["REDRIVEN"]
    again = npm.receive("q")
    assert (again.id, again.body, again.rc) == (message_id, "poison", 1)
