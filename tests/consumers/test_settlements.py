"""What follows when deliveries were settled: counts and signals, the same for a settler and for a dead consumer."""

import threading
from collections import Counter
from datetime import timedelta

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.consumers.decisions import settle_for
from mq_django.consumers.worker.settler import Settler
from mq_django.core.messages import ACK, Bury, Cancel, HandBack, Retry, Undecodable
from mq_django.errors import ConnectionLost, WrongKeyType
from mq_django.signals import message_buried, message_cancelled, message_retried
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.transport import scripts
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled, Transport
from tests.hearing import hears
from tests.purging import purge
from tests.signal_docs import arguments_of

pytestmark = pytest.mark.cluster

SIGNALS = {"retried": message_retried, "buried": message_buried, "cancelled": message_cancelled}


@pytest.fixture
def store(mq_settings):
    return open_store(get_config().queue("default"), Pooled(get_client("chores")))


def hold(store, client):
    """Return five messages, and an entry that is none, which the consumer "me" holds."""
    queues["default"].publish_many([("welcome", n) for n in range(5)])
    client.xadd(store.keys.ready, {"data": "no message"})
    store.create_groups()
    return store.take("me", count=10)


@pytest.fixture
def held(store, redis_client):
    return hold(store, redis_client)


@pytest.fixture
def told():
    """What the receivers of the signals were given: (which, arguments)."""
    found, names = [], {signal: which for which, signal in SIGNALS.items()}
    with hears(*names, to=lambda **given: found.append((names[given["signal"]], given))):
        yield found


def outcomes(held):
    """One of each kind for what is held."""
    assert isinstance(held[5], Undecodable)
    return [
        Settlement(held[0], ACK),
        Settlement(held[1], Retry(error="no answer"), 1500),
        Settlement(held[2], Bury("no such user", reason="attempts")),
        Settlement(held[3], HandBack()),
        Settlement(held[4], Retry(error="no answer"), 0),
        Settlement(held[5], Bury("no name", reason="undecodable")),
    ]


#: What is then counted, by (what, name).
COUNTED = {("handled", "welcome"): 1, ("retried", "welcome"): 2, ("buried", "welcome"): 1, ("buried", "-"): 1}


def counted(client, store):
    """What was counted in the last minutes, by (what, name)."""
    found = Counter()
    for key in client.scan_iter(match=store.keys.ready.replace(":ready", ":counters:m:*")):
        for field, count in client.hgetall(key).items():
            what, _, name = field.decode().partition("|")[2].partition("|")
            if what in ("handled", "retried", "buried", "expired") and name:
                found[what, name] += int(count)
    return found


def by_settler(store, settlements):
    settler = Settler(store, "default", "me", threading.Event(), threading.Event())
    for settlement in settlements:
        settler.add(settlement)
    settler.settle(store)


def by_recovery(store, settlements):
    settle_for(store, "me", settlements)


EITHER = pytest.mark.parametrize("settle", [by_settler, by_recovery])


@EITHER
def test_what_is_settled_is_counted_and_what_is_tried_again_or_buried_is_signalled(
    store, held, redis_client, told, settle
):
    settle(store, outcomes(held))
    assert counted(redis_client, store) == COUNTED
    assert all(given["queue"] == "default" for _, given in told)
    assert [set(given) for which, given in told] == [arguments_of(SIGNALS[which]) for which, _ in told]
    found = {(which, given["message_id"]): given for which, given in told}
    assert len(found) == len(told) == 4
    retried = found["retried", held[1].message.id]
    assert (retried["message"], retried["error"]) == (held[1].message, "no answer")
    assert retried["delay"] == timedelta(seconds=1.5)
    buried = found["buried", held[2].message.id]
    assert (buried["message"], buried["error"], buried["reason"]) == (held[2].message, "no such user", "attempts")
    (undecodable,) = (given for given in found.values() if given["message"] is None)
    assert undecodable["reason"] == "undecodable"


@EITHER
def test_what_is_cancelled_while_it_is_held_is_signalled(store, held, told, settle):
    settle(store, [Settlement(held[0], Cancel())])
    ((which, given),) = told
    assert (which, set(given)) == ("cancelled", arguments_of(message_cancelled))
    assert (given["message_id"], given["error"]) == (held[0].message.id, "Cancelled while it ran")


@EITHER
def test_what_another_consumer_holds_is_neither_signalled_nor_counted(store, held, redis_client, told, settle):
    store.reassign("me", "other", [(item.stream, item.entry) for item in held[:3]])
    settle(store, outcomes(held))
    assert {given["message"] and given["message"].data for _, given in told} == {4, None}
    assert counted(redis_client, store) == {("retried", "welcome"): 1, ("buried", "-"): 1}


class Cut(Transport):
    """Its process is killed while it sends: the server gets the first commands of a pipeline, and no more."""

    def __init__(self, transport, commands):
        self.transport, self.commands = transport, commands

    def pipeline(self, commands):
        self.transport.pipeline(commands[: self.commands])
        raise ConnectionLost("killed")


def test_a_process_that_dies_while_it_sends_outcomes_is_counted_once(store, redis_client):
    """Its supervisor settles what Redis has not got, and dies in the same way, and another one goes on."""
    session = Pooled(get_client("chores"))
    found = {}
    for sent in range(6):
        # What the last ones have tried again.
        purge(store.config)
        settlements = [settlement._replace(micros=100) for settlement in outcomes(hold(store, redis_client))]
        before = counted(redis_client, store)
        with pytest.raises(ConnectionLost):
            by_settler(open_store(store.config, Cut(session, sent)), settlements)
        with pytest.raises(ConnectionLost):
            by_recovery(open_store(store.config, Cut(session, 1)), settlements)
        by_recovery(store, settlements)
        if (after := counted(redis_client, store) - before) != COUNTED:
            found[sent] = after
    assert found == {}


def test_an_entry_that_was_deleted_is_not_counted_as_handled(store, held, redis_client):
    redis_client.xdel(store.keys.ready, held[5].entry)
    by_recovery(store, [Settlement(held[5]._replace(fields=[]), ACK)])
    assert store.depths().pending == 5
    assert counted(redis_client, store) == {}


def test_what_cannot_be_settled_is_not_counted_however_often_it_is_tried(store, held, redis_client, told):
    redis_client.set(store.keys.due, "no sorted set")
    for _ in range(3):
        with pytest.raises(WrongKeyType):
            by_recovery(store, [Settlement(held[1], Retry(error="no answer"), 1500)])
    assert counted(redis_client, store) == {}
    assert told == []
    redis_client.delete(store.keys.due)
    by_recovery(store, [Settlement(held[1], Retry(error="no answer"), 1500)])
    assert counted(redis_client, store) == {("retried", "welcome"): 1}
    assert len(told) == 1


@EITHER
def test_a_receiver_that_raises_harms_nobody(store, held, settle):
    with (
        hears(message_buried, raises=RuntimeError("not our problem")) as told,
        hears(message_buried, raises=SystemExit("not our problem")) as others_told,
    ):
        settle(store, outcomes(held))
    assert (len(told), len(others_told)) == (2, 2)
    assert (store.depths().pending, store.depths().dead) == (0, 2)


class Listening(Transport):
    """A transport that notes the scripts that are run over it."""

    def __init__(self, transport):
        self._transport = transport
        self.scripts = []

    def pipeline(self, commands):
        self.scripts += [scripts._by_sha[command[1]].name for command in commands if command[0] == "EVALSHA"]
        return self._transport.pipeline(commands)


@EITHER
def test_a_history_is_no_command_more_and_without_one_there_is_none(mq_settings, redis_client, settle):
    sent = {}
    for kept in (False, True):
        mq_settings(QUEUES={"default": {"HISTORY": timedelta(days=1)} if kept else {}})
        queues["default"].publish_many([("welcome", n) for n in range(5)])
        transport = Listening(Pooled(get_client("chores")))
        store = open_store(get_config().queue("default"), transport)
        store.create_groups()
        deliveries = store.take("me", count=10)
        transport.scripts.clear()
        settle(store, [Settlement(one, ACK, micros=1) for one in deliveries])
        sent[kept] = [*transport.scripts]
        assert redis_client.exists(store.keys.handled, store.keys.handled_ids) == (2 if kept else 0)
    assert sent[True] == sent[False]
