"""Everything that can be done to a queue of any store, once: for servers and users that allow less than usual."""

import itertools
import time

from mq_django import inspector, queues, topics
from mq_django.conf import get_config
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core.messages import ACK, Bury, HandBack, Retry, SetAside
from mq_django.inspector import actions, dead_letters, jobs, message_lists
from mq_django.inspector import topics as inspected
from mq_django.inspector.dead_letters import resubmit
from mq_django.inspector.stream_reader import NOTHING
from mq_django.rsmq import RSMQ
from mq_django.stores import open_members, open_store
from mq_django.stores.background_jobs import IDLE
from mq_django.stores.base import Settlement
from mq_django.stores.log import Log
from mq_django.stores.results import find_result
from mq_django.transport.connections import open_session, open_transport
from tests.stores.cases import Case, outgoing

ME, OTHER = "host-1-me", "host-2-other"

_numbers = itertools.count()


def marked() -> str:
    """Return data that no other message has, so that it can be found wherever it is."""
    return f"mark-{next(_numbers)}."


def use(case: Case) -> None:
    """Publish, take, settle in every way, and look at all of it."""
    store = case.open()
    assert store.take(ME, count=1) == []
    case.publish(store, *(outgoing(data=marked()) for _ in range(7)))
    one, two, three, four, five, six, seven = store.take(ME, count=7)
    held = [Settlement(one, ACK), Settlement(two, Retry(), 50_000), Settlement(three, HandBack())]
    held += [Settlement(four, Bury("no")), Settlement(five, Bury("no")), Settlement(six, SetAside())]
    assert store.settle(ME, held) == []
    receipts = [(seven.stream, seven.entry)]
    assert store.extend(ME, receipts) == store.reassign(ME, OTHER, receipts) == []
    assert [item.message for item in store.held_by(OTHER, limit=5)] == [seven.message]
    assert store.release_unhandled(["welcome"], limit=5) == 1
    # Handed back, and released.
    (again,) = store.take(ME, count=1)
    assert store.settle(ME, [Settlement(again, Retry(), 0)]) == []
    store.promote(limit=5)
    assert list(store.fetch(ME, count=5, block_ms=10))
    _wait_and_look(case, store)
    _be_members(case)
    if case.queue in get_config().queues:
        _be_a_queue(case)
    else:
        _be_a_topic()
    if case.name == "rsmq":
        _be_rsmq()


def _wait_and_look(case, store):
    (waits,) = store.publish([outgoing(data=marked(), delay_ms=60_000)])
    assert store.find(waits)
    assert store.reschedule(waits, delay_ms=70_000)
    for state in ("ready", "pending"):
        assert not message_lists.messages(case.queue, state, limit=10).after
    assert message_lists.messages(case.queue, "delayed", limit=10).rows
    assert message_lists.find_waiting(case.queue, waits)
    assert actions.cancel(case.queue, [waits]).done == 1
    assert list(inspector.ids(case.queue))
    assert actions.pause(case.queue)
    assert actions.resume(case.queue)
    one, two = message_lists.messages(case.queue, "dead", limit=10).rows
    assert (
        len(dead_letters.search_dead_letters(case.queue, NOTHING, limit=10).rows)
        == dead_letters.groups(case.queue)[0].count
    )
    assert dead_letters.redrive(case.queue, [one.ref]).done == 1
    assert resubmit(case.queue, two.ref, "99")
    held = [Settlement(item, Bury("no")) for item in store.take(ME, count=1)]
    assert store.settle(ME, held) == []
    assert dead_letters.delete(case.queue, [message_lists.messages(case.queue, "dead", limit=1).rows[0].ref]).done == 1
    held = [Settlement(item, Bury("no")) for item in store.take(ME, count=1)]
    assert store.settle(ME, held) == []
    assert jobs.begin(case.queue, "redrive", who="me").word == "begun"
    while work_here(case.queue, "w1") != IDLE:
        pass
    assert jobs.get_job(case.queue).done == 1
    assert not jobs.cancel(case.queue)
    view = inspector.queue(case.queue)
    assert (view.error, view.dead) == ("", 0)
    assert [found.error for found in inspector.overview()] == [""] * len(inspector.overview())
    assert inspector.totals().published >= 7
    assert store.depths().depth == view.depth
    _delete_what_is_found(case, store)


def _delete_what_is_found(case, store):
    places: tuple[jobs.ActionableState, ...] = ("delayed", "ready")
    for place in places:
        store.publish([outgoing(data=marked(), delay_ms=60_000) for _ in range(3)])
        store.publish([outgoing(data=marked()) for _ in range(3)])
        assert jobs.begin(case.queue, "delete", place, who="me").word == "begun"
        while work_here(case.queue, "w1", place) != IDLE:
            pass
        assert jobs.get_job(case.queue, place).state == "finished"
        assert not jobs.cancel(case.queue, place)


def _be_members(case):
    members = case.members()
    assert members.beat("s1", {"pid": 1}, {ME: {"pid": 2}}).consumers
    assert members.keep_alive("s1")
    assert not members.evict("s1", 99)
    members.leave([ME, OTHER], supervisor="s1")


def _be_a_queue(case):
    queue = queues[case.queue]
    assert queue.publish_many([("welcome", marked()), ("welcome", marked())])
    assert queue.publish("welcome", marked(), delay=60, headers={"tenant": "a"})
    if "unique" not in case.refuses:
        assert queue.publish("welcome", marked(), unique="u", delay=60) == queue.publish(
            "welcome", 1, unique="u", delay=60, on_conflict="keep"
        )
        assert queue.publish("welcome", marked(), unique="v", unique_for="handled")
        assert queue.publish("welcome", marked(), priority=5)
        store = open_store(queue.config, open_session("consume"))
        assert store.settle(ME, [Settlement(item, ACK) for item in store.take(ME, count=10)]) == []
        assert find_result([open_transport("inspect")], [queue.config], "none") is None


def _be_a_topic():
    orders, group = topics["orders"], topics["orders"].group("billing")
    assert orders.publish("paid", marked(), message_id="a") == orders.publish("paid", marked(), message_id="a")
    assert orders.group("other").subscribe("end")
    assert group.status().position.pending
    group.seek("beginning")
    assert inspected.topic("orders").groups
    assert inspected.preview("orders", "billing", "end").skipped == 8
    assert len(message_lists.in_log("orders", limit=20).rows) == 8
    assert len(list(group.messages())) == 8
    log = Log(orders.config, open_session("produce"))
    assert log.trim().removed == 0
    assert log.set_alarm("billing", 90) == "RAISED"
    assert group.unsubscribe()
    assert orders.group("other").unsubscribe()


def _be_rsmq():
    config = get_config().queues["jobs"]
    rsmq = RSMQ(config.namespace, realtime=True)
    assert rsmq.list_queues() == {"jobs"}
    rsmq.delete_queue("jobs")
    rsmq.create_queue("jobs", vt=5)
    rsmq.send_many("jobs", [marked() for _ in range(3)])
    received = rsmq.receive("jobs")
    assert rsmq.change_visibility("jobs", received.id, 0)
    assert rsmq.pop("jobs")
    assert rsmq.get_queue_attributes("jobs").msgs == 2
    assert rsmq.set_queue_attributes("jobs", vt=6).vt == 6
    assert rsmq.delete("jobs", rsmq.send("jobs", marked(), delay=5))
    assert open_members(config, open_session("consume")).beat("s2", {}, {ME: {}})
    assert time.time() * 1000 > received.fr - 60_000
