"""What people see of queues in RSMQ's format and of groups of topics."""

from collections import defaultdict

import pytest

from mq_django import inspector, queues, topics
from mq_django.core.messages import ACK, Bury, HandBack, Retry, SetAside
from mq_django.inspector import message_lists
from mq_django.inspector.dead_letters import resubmit
from mq_django.rsmq import RSMQ
from mq_django.stores.base import Settlement
from tests import on_cluster
from tests.seeding import opened

ME = "host-1-me"


@pytest.fixture
def ns(namespace):
    return on_cluster.tag(f"{namespace}:r")


@pytest.fixture
def jobs(mq_settings, ns):
    mq_settings(QUEUES={"jobs": {"STORE": "rsmq", "NAMESPACE": ns}}, TOPICS={"orders": {}})
    return queues["jobs"]


def settle(store, delivery, outcome):
    assert store.settle(ME, [Settlement(delivery, outcome, 60_000)]) == []
    return delivery.message.id


def by_partition(name):
    found = defaultdict(list)
    for place, ids in inspector.ids(name):
        found[place] += ids
    return dict(found)


def test_every_message_of_an_rsmq_queue_is_in_one_place(jobs, ns):
    ids = jobs.publish_many([("welcome", n) for n in range(6)])
    store = opened("jobs")
    delayed = [jobs.publish("welcome", n, delay=100 + n) for n in range(3)]
    taken = store.take(ME, count=4)
    dead, aside = settle(store, taken[0], Bury("no")), settle(store, taken[1], SetAside())
    assert by_partition("jobs") == {
        "delayed": delayed,
        "unhandled": [aside],
        "pending": ids[2:4],
        "ready": ids[4:],
        "dead": [dead],
    }
    view = inspector.queue("jobs")
    assert (view.ready, view.pending, view.delayed, view.unhandled, view.dead) == (2, 2, 3, 1, 1)
    for start in range(4):
        page = message_lists.messages("jobs", "delayed", after=str(start), limit=2)
        assert [row.id for row in page.rows] == delayed[start : start + 2]


def test_what_another_program_sent_is_shown_as_its_handler_gets_it(jobs, ns):
    rsmq = RSMQ(ns)
    rsmq.create_queue("jobs")
    rsmq.send("jobs", "just text")
    named = rsmq.send("jobs", '{"type": "welcome", "data": {"password": "x"}, "id": "other"}', delay=5)
    (row,) = message_lists.messages("jobs", "ready", limit=5).rows
    assert (row.name, row.data, row.problem) == ("message", "just text", "")
    (waiting,) = message_lists.messages("jobs", "delayed", limit=5).rows
    assert (waiting.id, waiting.name) == (named, "welcome")
    assert waiting.data == {"password": "[redacted]"}


def test_every_message_of_a_group_is_in_one_place(jobs):
    store = opened("orders:billing")
    ids = topics["orders"].publish_many([("paid", n) for n in range(8)])
    taken = store.take(ME, count=7)
    settle(store, taken[0], ACK)
    back = settle(store, taken[1], HandBack())
    delayed, dead = settle(store, taken[2], Retry()), settle(store, taken[3], Bury("no"))
    aside = settle(store, taken[4], SetAside())
    assert by_partition("orders:billing") == {
        "delayed": [delayed],
        "unhandled": [aside],
        "pending": ids[5:7],
        "ready": [back, ids[7]],
        "dead": [dead],
    }


@pytest.mark.parametrize("sent", ['{"type":"welcome","data":{"n":1}}', "just text"])
def test_a_dead_letter_of_rsmq_is_resubmitted_where_other_programs_read(jobs, ns, sent):
    rsmq = RSMQ(ns)
    rsmq.create_queue("jobs")
    dead = rsmq.send("jobs", sent)
    store = opened("jobs")
    settle(store, store.take(ME, count=1)[0], Bury("no"))
    (letter,) = message_lists.messages("jobs", "dead", limit=5).rows
    written = '{"n":2}' if sent.startswith("{") else '"mended"'
    message_id = resubmit("jobs", letter.ref, written)
    assert resubmit("jobs", letter.ref, written) is None
    found = rsmq.receive("jobs", vt=0)
    assert (found.id, found.rc) == (message_id, 1)
    assert message_id != dead
    (again,) = store.take(ME, count=1)
    assert again.message.data == ({"n": 2} if sent.startswith("{") else "mended")
    assert again.message.name == ("welcome" if sent.startswith("{") else "message")
    assert (inspector.queue("jobs").dead, rsmq.get_queue_attributes("jobs").totalsent) == (0, 2)
