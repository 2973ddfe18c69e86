import json
import re
import threading
import time
from pathlib import Path

import pytest

from mq_django import handler, queues
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, CancelResult, HandBack, LookupState, Retry, SetAside, Undecodable
from mq_django.core.rsmq_format import MESSAGE_ID, TEXT, new_id, sent_micros
from mq_django.errors import (
    AlreadyPublished,
    ConnectionLost,
    InvalidFormat,
    InvalidValue,
    MessageTooLong,
    MissingParameter,
    NoAttributeSupplied,
    QueueNotFound,
)
from mq_django.inspector import dead_letters
from mq_django.rsmq import RSMQ
from mq_django.stores import open_members, open_store
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled, Session
from tests import on_cluster, places
from tests.commands import calls, script_calls
from tests.purging import purge
from tests.waiting import wait_until
from tests.working import run

ME, OTHER = "host-1-me", "host-2-other"


@pytest.fixture
def ns(namespace):
    return on_cluster.tag(f"{namespace}:r")


@pytest.fixture
def configure(mq_settings, ns):
    def make(**options):
        mq_settings(QUEUES={"jobs": {"STORE": "rsmq", "NAMESPACE": ns, **options}})
        return get_config().queue("jobs")

    make()
    return make


@pytest.fixture
def rsmq(configure, ns):
    """RSMQ's own calls: what any other program does."""
    return RSMQ(ns)


@pytest.fixture
def store(configure):
    opened = opened_store()
    assert opened.take(ME, count=1) == []
    return opened


def opened_store():
    return open_store(get_config().queue("jobs"), Session(get_client("consume")))


def settle(store, *deliveries, outcome=ACK, who=ME, **more):
    return store.settle(who, [Settlement(delivery, outcome, **more) for delivery in deliveries])


def own_fields(redis_client, ns):
    return {name.decode() for name in redis_client.hkeys(f"{ns}:jobs:Q")}


ATTRIBUTES = {"vt", "delay", "maxsize", "created", "modified", "totalsent", "totalrecv"}


def test_a_consumer_creates_the_queue_as_its_settings_say(configure, rsmq):
    configure(VT=7, DELAY=3, MAXSIZE=2048)
    assert opened_store().take(ME, count=1) == []
    assert rsmq.list_queues() == {"jobs"}
    assert rsmq.get_queue_attributes("jobs")[:3] == (7, 3, 2048)


def test_a_publish_creates_the_queue_and_changes_none_that_is_there(configure, rsmq):
    rsmq.create_queue("jobs", vt=99)
    queues["jobs"].publish("welcome", 1)
    assert rsmq.get_queue_attributes("jobs")[:5] == (99, 0, 65536, 0, 1)
    rsmq.delete_queue("jobs")
    queues["jobs"].publish_many([("welcome", 1), ("welcome", 2)])
    assert rsmq.get_queue_attributes("jobs").msgs == 2


def test_what_django_publishes_others_read_as_json_with_a_name(configure, rsmq):
    message_id = queues["jobs"].publish("welcome", {"user_id": 7}, key="user:7", headers={"tenant": "a"})
    assert MESSAGE_ID.fullmatch(message_id)
    found = rsmq.receive("jobs")
    assert found.id == message_id
    body = json.loads(found.message)
    assert (body["type"], body["data"], body["partitionkey"], body["tenant"]) == (
        "welcome",
        {"user_id": 7},
        "user:7",
        "a",
    )


def test_text_travels_as_it_is(configure, rsmq, store):
    queues["jobs"].publish(TEXT, "just text")
    assert rsmq.receive("jobs", vt=0).message == "just text"
    (delivery,) = store.take(ME, count=1)
    assert (delivery.message.name, delivery.message.data) == (TEXT, "just text")


def test_what_others_send_is_text(store, rsmq, subtests):
    for body in ("", "hello", "[1, 2]", '{"no": "type"}', '{"type": "t"}', '{"type": 5, "data": 1}'):
        with subtests.test(body=body):
            message_id = rsmq.send("jobs", body)
            (delivery,) = store.take(ME, count=1)
            found = delivery.message
            assert (found.id, found.name, found.data, found.attempt) == (message_id, TEXT, body, 1)
            assert found.published_ms == sent_micros(message_id) // 1000
            assert settle(store, delivery) == []


def test_what_others_send_in_our_form_has_its_name(store, rsmq):
    message_id = rsmq.send("jobs", '{"type": "welcome", "data": [1], "id": "other", "attempt": 9, "tenant": "a"}')
    (delivery,) = store.take(ME, count=1)
    found = delivery.message
    assert (found.id, found.name, found.data, found.attempt) == (message_id, "welcome", [1], 1)
    assert dict(found.headers) == {"tenant": "a"}


def test_bytes_that_are_no_text_can_be_read_and_are_buried_by_a_consumer(store, rsmq, redis_client, ns):
    body = b"\xff\xfe not text"
    redis_client.hset(f"{ns}:jobs:Q", "0" * 32, body)
    redis_client.zadd(f"{ns}:jobs", {"0" * 32: 1})
    assert rsmq.receive("jobs", vt=0).body == body
    (item,) = store.take(ME, count=1)
    assert isinstance(item, Undecodable)
    assert settle(store, item, outcome=Bury(item.reason, reason="undecodable")) == []
    dead = open_dead_letters(store.config, Pooled(get_client("inspect")))
    ((entry, fields),) = dead.whole(dead.find(["0" * 32]))
    assert (fields[b"id"], fields[b"deadreason"], fields[b"deadraw"]) == (b"0" * 32, b"undecodable", body)
    assert dead.redrive([entry]) == ["UNDECODABLE"]


DEEP = "[" * 1015 + "]" * 1015


def test_data_in_our_form_that_cannot_be_read_are_text(store, rsmq, subtests):
    for data in ("[1e999,10000000000000000000000]", DEEP, "9" * 5000):
        with subtests.test(data=data):
            body = '{"type":"ok","data":' + data + "}"
            rsmq.send("jobs", body)
            rsmq.send("jobs", "innocent")
            first, second = store.take(ME, count=2)
            assert second.message.data == "innocent"
            # From Python 3.13 on the deep data can be read after all.
            if data != DEEP or first.message.name == TEXT:
                assert (first.message.name, first.message.data) == (TEXT, body)
            assert settle(store, first, second, outcome=Bury("no")) == []


@pytest.mark.parametrize("body", [b"\xff\xfe", b"text", b'{"type":"ok","data":1}'])
def test_an_id_that_is_no_text_strands_nothing(store, rsmq, redis_client, ns, body):
    odd = b"\xff\n\xe2\x80\xa8id"
    redis_client.hset(f"{ns}:jobs:Q", odd, body)
    redis_client.zadd(f"{ns}:jobs", {odd: 1})
    rsmq.send("jobs", "innocent")
    taken = store.take(ME, count=2)
    assert sorted(item.entry for item in taken) == sorted(item.entry for item in store.held_by(ME, limit=9))
    outcomes = [Bury("no", reason="undecodable") for _ in taken]
    assert store.settle(ME, [Settlement(*pair) for pair in zip(taken, outcomes, strict=True)]) == []
    assert store.held_by(ME, limit=9) == []
    dead = open_dead_letters(store.config, Pooled(get_client("inspect")))
    assert dead_letters.get("jobs", *dead.find([odd])).reason == "undecodable"
    assert all(item.message.id.isprintable() for item in taken if not isinstance(item, Undecodable))


def test_our_data_stays_out_of_rsmqs_keys(store, rsmq, redis_client, ns):
    publish = queues["jobs"].publish
    ids = [publish("welcome", n) for n in range(6)]
    done, retried, back, dead, aside, held = store.take(ME, count=6)
    settle(store, done)
    settle(store, retried, outcome=Retry(), delay_ms=60_000, alone=True)
    settle(store, back, outcome=HandBack(lost=True))
    settle(store, dead, outcome=Bury("no"))
    settle(store, aside, outcome=SetAside())
    left = [ids[n] for n in (1, 2, 4, 5)]
    expected = {f"{message_id}{part}" for message_id in left for part in ("", ":rc", ":fr")}
    assert own_fields(redis_client, ns) == expected | ATTRIBUTES
    assert {member.decode() for member in redis_client.zrange(f"{ns}:jobs", 0, -1)} == set(left)
    keys = {key.decode() for key in redis_client.scan_iter(match=f"{ns}:*")}
    assert {key for key in keys if not key.startswith(f"{ns}:jobs:mq:")} == {
        f"{ns}:QUEUES",
        f"{ns}:jobs",
        f"{ns}:jobs:Q",
    }
    assert settle(store, held) == []


@pytest.fixture
def show(redis_client, ns):
    """Let a message be seen again, as when its visibility timeout is over."""
    return lambda message_id: redis_client.zadd(f"{ns}:jobs", {message_id: 1}, xx=True)


def test_who_received_a_message_later_holds_it(store, rsmq, show):
    message_id = queues["jobs"].publish("welcome", 1)
    (first,) = store.take(ME, count=1)
    show(message_id)
    found = rsmq.receive("jobs", vt=30)
    assert (found.id, found.rc) == (message_id, 2)
    for outcome in (ACK, Retry(), HandBack(), Bury("no"), SetAside()):
        assert settle(store, first, outcome=outcome) == [message_id]
    assert list(store.held_by(ME, limit=10)) == []
    assert rsmq.delete("jobs", message_id)


def test_the_same_consumer_tells_its_two_deliveries_apart(store, show):
    message_id = queues["jobs"].publish("welcome", 1)
    (first,) = store.take(ME, count=1)
    show(message_id)
    (second,) = store.take(ME, count=1)
    assert first.entry != second.entry
    assert settle(store, first) == [message_id]
    assert settle(store, second) == []


class TestAReceiveWithoutAnOutcome:
    """The machine of the consumer was lost for longer than VT, and nobody decided about its message."""

    @pytest.fixture
    def lost(self, store, show):
        """Receive the message as a consumer whose machine is lost then, and return the delivery."""

        def receive(holder=ME):
            (delivery,) = store.take(ME, count=1)
            store.reassign(ME, holder, [(delivery.stream, delivery.entry)])
            show(delivery.message.id)
            return delivery

        return receive

    @pytest.fixture
    def quarantine(self, configure):
        members = open_members(get_config().queue("jobs"), Session(get_client("consume")))
        members.beat("s1", {}, {OTHER: {"quarantine": True}, f"{OTHER}-line": {"quarantine": False}})
        return OTHER

    def test_is_no_attempt_and_after_two_the_message_runs_alone(self, lost):
        queues["jobs"].publish("welcome", 1)
        found = [lost() for _ in range(4)]
        assert [each.message.attempt for each in found] == [1, 1, 1, 1]
        assert [each.alone for each in found] == [False, False, True, True]

    def test_is_no_attempt_where_another_program_received_the_message_since(self, lost, rsmq):
        queues["jobs"].publish("welcome", 1)
        lost()
        rsmq.receive("jobs", vt=0)
        assert lost().message.attempt == 2

    def test_is_an_attempt_where_the_message_ran_alone(self, lost, quarantine):
        queues["jobs"].publish("welcome", 1)
        found = [lost(), lost(), lost(f"{quarantine}-line"), lost(quarantine), lost(quarantine), lost()]
        assert [each.message.attempt for each in found] == [1, 1, 1, 1, 2, 3]
        assert [each.alone for each in found] == [False, False, True, True, True, True]

    def test_of_a_suspect_that_ran_alone_stands_for_two(self, lost, store, quarantine):
        message_id = queues["jobs"].publish("welcome", 1)
        (together,) = store.take(ME, count=1)
        settle(store, together, outcome=HandBack(suspect=True))
        suspect, again = lost(quarantine), lost()
        assert (message_id, suspect.suspect, suspect.message.attempt) == (message_id, True, 1)
        assert (again.suspect, again.alone, again.message.attempt) == (False, True, 3)

    def test_buries_the_message_when_its_attempts_are_used_up(self, configure, handlers, lost, quarantine):
        configure(MAX_ATTEMPTS=2)
        ran = []
        handler("jobs", "welcome")(ran.append)
        message_id = queues["jobs"].publish("welcome", 1)
        for holder in (ME, ME, quarantine, quarantine):
            lost(holder)
        run("jobs")
        (entry,) = open_dead_letters(get_config().queue("jobs"), Pooled(get_client("inspect"))).find([message_id])
        assert (dead_letters.get("jobs", entry).reason, ran) == ("crashed", [])


def test_receives_by_others_count_as_attempts_and_hand_backs_do_not(store, rsmq):
    queues["jobs"].publish("welcome", 1)
    rsmq.receive("jobs", vt=0)
    (delivery,) = store.take(ME, count=1)
    assert delivery.message.attempt == 2
    settle(store, delivery, outcome=HandBack())
    (again,) = store.take(ME, count=1)
    assert again.message.attempt == 2
    settle(store, again, outcome=Retry())
    (third,) = wait_until(lambda: store.take(ME, count=1))
    assert third.message.attempt == 3
    assert rsmq.get_queue_attributes("jobs").totalrecv == 4


def test_a_heartbeat_keeps_hidden_all_that_is_held(configure, rsmq, redis_client, ns):
    configure(VT=2)
    store = opened_store()
    members = open_members(get_config().queue("jobs"), Session(get_client("consume")))
    ids = [queues["jobs"].publish("welcome", n) for n in range(3)]
    held = store.take(ME, count=2)
    redis_client.zadd(f"{ns}:jobs", {ids[0]: 5, ids[1]: 6})
    members.beat("s1", {}, {ME: {}})
    assert rsmq.receive("jobs").id == ids[2]
    assert rsmq.receive("jobs") is None
    assert settle(store, *held) == []


def test_a_message_held_by_another_program_is_left_alone(store, rsmq):
    message_id = queues["jobs"].publish("welcome", 1)
    rsmq.receive("jobs", vt=60)
    assert store.cancel(message_id) is CancelResult.NOT_WAITING
    assert store.reschedule(message_id, delay_ms=5) is CancelResult.NOT_WAITING
    assert store.find(message_id).state is LookupState.NOT_WAITING
    assert purge(store.config) == []
    assert rsmq.delete("jobs", message_id)


def test_what_is_unhandled_stays_where_others_can_have_it(store, rsmq, show):
    message_id = queues["jobs"].publish("new", 1)
    settle(store, *store.take(ME, count=1), outcome=SetAside())
    assert (store.depths().unhandled, store.depths().ready) == (1, 0)
    assert store.find(message_id).state is LookupState.UNHANDLED
    show(message_id)
    assert rsmq.receive("jobs").id == message_id
    assert store.release_unhandled(["new"], limit=10) == 1


def test_a_purge_leaves_what_somebody_has(store, rsmq, redis_client, ns):
    jobs = queues["jobs"]
    for n in range(3):
        jobs.publish("welcome", n)
    held = store.take(ME, count=1)
    theirs = rsmq.receive("jobs")
    jobs.publish("welcome", 9, delay=60)
    assert len(purge(store.config, "delayed", limit=2)) == 1
    assert purge(store.config, "unhandled", limit=2) == []
    assert len(purge(store.config)) == 1
    assert purge(store.config) == []
    assert {member.decode() for member in redis_client.zrange(f"{ns}:jobs", 0, -1)} == {
        held[0].message.id,
        theirs.id,
    }


def test_a_dead_letter_goes_back_as_it_was(store, rsmq, redis_client, ns):
    for body in ("just text", '{"type":"welcome",  "data":[1]}'):
        message_id = rsmq.send("jobs", body)
        (delivery,) = store.take(ME, count=1)
        assert settle(store, delivery, outcome=Bury("no", reason="attempts")) == []
        attributes = rsmq.get_queue_attributes("jobs")
        assert (attributes.msgs, attributes.hiddenmsgs) == (0, 0)
        assert own_fields(redis_client, ns) == ATTRIBUTES
        dead = open_dead_letters(store.config, Pooled(get_client("inspect")))
        (entry,) = dead.find([message_id])
        assert dead_letters.get("jobs", entry).data == delivery.message.data
        assert dead.redrive([entry]) == ["REDRIVEN"]
        assert dead.redrive([entry]) == ["MISSING"]
        found = rsmq.receive("jobs")
        assert (found.id, found.message, found.rc) == (message_id, body, 1)
        rsmq.delete("jobs", message_id)


def test_what_is_kept_of_messages_that_others_deleted_is_forgotten(store, rsmq, redis_client, ns):
    ids = [queues["jobs"].publish("new", n) for n in range(50)]
    held = store.take(ME, count=50)
    settle(store, *held[:20], outcome=SetAside())
    settle(store, *held[20:30], outcome=Retry(), delay_ms=60_000, alone=True)
    for message_id in ids:
        rsmq.delete("jobs", message_id)
    queue = f"{ns}:jobs"
    redis_client.hset(f"{queue}:mq:owners", ids[0], "x 1")
    redis_client.hset(f"{queue}:mq:notes", f"{ids[0]}:free", 1)
    redis_client.zadd(f"{queue}:mq:unhandled", {ids[0]: 1})
    for _ in range(3):
        store.promote(limit=10)
    assert not redis_client.exists(f"{queue}:mq:owners", f"{queue}:mq:notes", f"{queue}:mq:unhandled")


@pytest.fixture
def seldom(monkeypatch):
    """Whoever waits and is not woken looks again after a minute."""
    monkeypatch.setattr("mq_django.stores.rsmq_store.POLL", 60.0)


@pytest.mark.usefixtures("seldom")
def test_a_waiting_consumer_is_woken_by_a_publish_of_ours(store):
    publish = queues["jobs"].publish
    assert list(store.fetch(ME, count=1, block_ms=10)) == []
    timer = threading.Timer(0.1, lambda: publish("welcome", 1))
    timer.start()
    began = time.monotonic()
    assert len(store.fetch(ME, count=1, block_ms=60_000)) == 1
    assert time.monotonic() - began < 30
    timer.join()


def test_a_waiting_consumer_is_woken_by_others_where_realtime_is_on(configure, ns, monkeypatch):
    monkeypatch.setattr("mq_django.stores.rsmq_store.POLL_WITH_REALTIME", 60.0)
    configure(REALTIME=True)
    store, npm = opened_store(), RSMQ(ns, realtime=True)
    assert store.take(ME, count=1) == []
    assert list(store.fetch(ME, count=1, block_ms=10)) == []
    timer = threading.Timer(0.1, lambda: npm.send("jobs", "x"))
    timer.start()
    began = time.monotonic()
    assert len(wait_until(lambda: store.fetch(ME, count=1, block_ms=60_000))) == 1
    assert time.monotonic() - began < 30
    timer.join()


@pytest.mark.usefixtures("seldom")
def test_a_waiting_consumer_looks_when_the_next_is_due(store):
    queues["jobs"].publish("welcome", 1, delay=0.3)
    began = time.monotonic()
    (delivery,) = wait_until(lambda: store.fetch(ME, count=1, block_ms=60_000))
    assert time.monotonic() - began < 30
    assert settle(store, delivery) == []


def test_an_idle_consumer_asks_redis_seldom(store, redis_client, monkeypatch):
    monkeypatch.setattr("mq_django.stores.rsmq_store.POLL", 0.1)
    store.fetch(ME, count=1, block_ms=10)
    before = script_calls(redis_client)
    for _ in range(2):
        assert list(store.fetch(ME, count=1, block_ms=5000)) == []
    assert script_calls(redis_client) - before == 2


@pytest.mark.usefixtures("seldom")
def test_a_wait_can_be_ended(configure):
    session = Session(get_client("consume"))
    store = open_store(get_config().queue("jobs"), session)
    store.take(ME, count=1)
    store.fetch(ME, count=1, block_ms=10)
    ended = threading.Event()

    def interrupt():
        # Again and again: the first may come before the wait has begun.
        while not ended.wait(0.1):
            session.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()
    try:
        with pytest.raises(ConnectionLost):
            store.fetch(ME, count=1, block_ms=60_000)
    finally:
        ended.set()
        thread.join()
    assert time.monotonic() - began < 30


def test_a_heartbeat_reads_what_is_held_once_for_all_its_consumers(configure, store, redis_client):
    names = [f"host-1-{n}" for n in range(5)]
    for name in [*names, OTHER]:
        queues["jobs"].publish("welcome", name)
        assert len(store.take(name, count=1)) == 1
    hidden = dict(redis_client.zrange(store.keys.zset, 0, -1, withscores=True))
    members = open_members(store.config, Session(get_client("consume")))
    before = calls(redis_client, "hgetall")
    wait_until(lambda: places.now_ms(redis_client) > max(hidden.values()) - store.config.vt * 1000)
    members.beat("s1", {}, {name: {} for name in names})
    # Of the consumers, and of what is held.
    assert calls(redis_client, "hgetall") - before == 2
    later = [score > hidden[key] for key, score in redis_client.zrange(store.keys.zset, 0, -1, withscores=True)]
    assert sorted(later) == [False] + [True] * 5


def test_an_id_of_rsmqs_form_can_be_given(configure, rsmq):
    message_id = new_id()
    assert queues["jobs"].publish("welcome", 1, message_id=message_id) == message_id
    assert rsmq.receive("jobs").id == message_id


def test_an_id_that_another_message_has_is_refused(configure, rsmq, store):
    message_id = new_id()
    queues["jobs"].publish("welcome", 1, message_id=message_id)
    with pytest.raises(AlreadyPublished, match=message_id):
        queues["jobs"].publish("welcome", 2, message_id=message_id)
    (item,) = store.take(ME, count=2)
    assert item.message.data == 1
    assert store.settle(ME, [Settlement(item, Bury("no"))]) == []
    # Nor does a dead letter take the place of a newer message with its id.
    queues["jobs"].publish("welcome", 3, message_id=message_id)
    letters = open_dead_letters(store.config, Pooled(get_client("inspect")))
    (entry,) = letters.find([message_id])
    assert letters.redrive([entry]) == ["UNDECODABLE"]
    (item,) = store.take(ME, count=2)
    assert item.message.data == 3
    assert store.settle(ME, [Settlement(item, ACK)]) == []
    assert letters.redrive([entry]) == ["REDRIVEN"]


def test_calls_of_rsmq_check_what_they_get(rsmq):
    """What that is, see tests/core/test_rsmq_format.py."""
    rsmq.create_queue("jobs", vt="5", delay="0", maxsize="1024")
    for error, said, call in (
        (InvalidValue, "delay must be between", lambda: rsmq.send("jobs", "x", delay=-1)),
        (TypeError, None, lambda: rsmq.send("jobs", b"x")),
        (NoAttributeSupplied, None, lambda: rsmq.set_queue_attributes("jobs")),
        (InvalidValue, None, lambda: rsmq.send_many("jobs", ["x"] * 1001)),
        (InvalidValue, None, lambda: rsmq.receive_many("jobs", 501)),
        (InvalidValue, None, lambda: rsmq.receive_many("jobs", 0)),
        # An attribute is no message, and is not deleted.
        (InvalidFormat, "^Invalid id format", lambda: rsmq.delete("jobs", "vt")),
        (InvalidFormat, "^Invalid id format", lambda: rsmq.change_visibility("jobs", "vt", 5)),
        (MissingParameter, "^No id supplied$", lambda: rsmq.delete("jobs", None)),
        (InvalidFormat, "^Invalid qname format", lambda: rsmq.receive("a:b")),
        (InvalidFormat, "^Invalid qname format", lambda: rsmq.delete_queue("a:b")),
        (MissingParameter, "^No qname supplied$", lambda: rsmq.send("", "x")),
        (QueueNotFound, "^Queue not found", lambda: rsmq.pop("nope")),
        (MessageTooLong, "^Message too long", lambda: rsmq.send("jobs", "\ud83d\ude00" * 513)),
    ):
        with pytest.raises(error, match=said):
            call()
    assert rsmq.send_many("jobs", []) == []
    assert not rsmq.delete("jobs", "0" * 32)
    assert rsmq.get_queue_attributes("jobs")[:5] == (5, 0, 1024, 0, 0)
    rsmq.send("jobs", "\ud800" * 1024, delay="0.9")
    assert rsmq.receive("jobs", vt="0").message == "\ufffd" * 1024
    assert rsmq.set_queue_attributes("jobs", vt="7")[:3] == (7, 0, 1024)


#: What the packages left in Redis after the calls that are named in it, recorded once.
DUMPS = json.loads((Path(__file__).parent / "rsmq_dumps.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("dump", DUMPS.values(), ids=list(DUMPS))
def test_a_recorded_queue_is_read(configure, ns, redis_client, dump):
    redis_client.sadd(f"{ns}:QUEUES", *dump["QUEUES"])
    redis_client.hset(f"{ns}:jobs:Q", mapping=dump["hash"])
    # Long ago, so that all can be seen whatever the clock says.
    redis_client.zadd(f"{ns}:jobs", {member: score - 1e12 for member, score in dump["zset"]})
    assert RSMQ(ns).get_queue_attributes("jobs")[:7] == tuple(
        int(dump["hash"][name]) for name in ("vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified")
    )
    store = opened_store()
    taken = store.take(ME, count=5)
    assert [item.message.id for item in taken] == [member for member, _ in dump["zset"]]
    assert [(item.message.name, item.message.data, item.message.attempt) for item in taken] == [
        ("welcome", [1], 1),
        (TEXT, "héllo ☃", 1),
        (TEXT, "hello", 2),
    ]
    received = taken[2].message.id
    assert redis_client.hget(f"{ns}:jobs:Q", f"{received}:fr").decode() == dump["hash"][f"{received}:fr"]
    assert settle(store, *taken) == []
    assert own_fields(redis_client, ns) == ATTRIBUTES


@pytest.mark.parametrize("dump", DUMPS.values(), ids=list(DUMPS))
def test_the_same_calls_leave_the_same(rsmq, ns, redis_client, dump):
    rsmq.create_queue("jobs", vt=40, delay=0)
    rsmq.send("jobs", "hello")
    rsmq.send("jobs", "héllo ☃", delay=5)
    rsmq.send("jobs", '{"type":"welcome","data":[1]}')
    rsmq.receive("jobs", vt=30)
    left = {name.decode(): value.decode() for name, value in redis_client.hgetall(f"{ns}:jobs:Q").items()}
    order = redis_client.zrange(f"{ns}:jobs", 0, -1, withscores=True)
    assert _shape(left, [(member.decode(), score) for member, score in order]) == _shape(dump["hash"], dump["zset"])
    found = {key.decode().removeprefix(f"{ns}:") for key in redis_client.scan_iter(match=f"{ns}:*")}
    assert {key for key in found if ":mq:" not in key} == set(dump["keys"])
    assert found == set(dump["keys"])


def _shape(fields, zset):
    """Return what a queue holds, without what differs from run to run: ids, moments, and PyRSMQ's maxsize."""
    bodies = {member: fields[member] for member, _ in zset}
    named = {
        re.sub(r"^\w{32}", lambda found: bodies[found[0]], name): value
        for name, value in fields.items()
        if name not in ("created", "modified", "maxsize")
    }
    times = {name: len(value) for name, value in named.items() if name.endswith(":fr")}
    # An id begins with the microsecond in which it was sent.
    since = {member: int(fields.get(f"{member}:fr", int(member[:10], 36) // 1000)) for member, _ in zset}
    # The delay of 5 s and the visibility timeout of 30 s, to the second.
    return {**named, **times}, {bodies[member]: round((score - since[member]) / 1000) for member, score in zset}
