"""What becomes of deliveries whose consumer is gone: the decision on each, and who carries it out."""

import math
from datetime import timedelta
from types import SimpleNamespace

import pytest

from mq_django.conf import get_config
from mq_django.consumers.decisions import Evidence, settlement
from mq_django.consumers.shared_state import FAILED, HANDLED, Receipt, SharedState
from mq_django.consumers.supervisor import reclaimer as module
from mq_django.consumers.supervisor.reclaimer import (
    Reclaimer,
    evidence_of,
    hand_back_unstarted,
    reclaim,
    reclaim_supervisor,
)
from mq_django.core.messages import Ack, Bury, Cancel, Delivery, HandBack, Message, Retry, Undecodable
from mq_django.errors import ConnectionLost
from mq_django.stores.base import CancelRequest, Settlement
from mq_django.stores.members import Members, Membership
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.waiting import wait_until

RECEIPT = Receipt(0, 0, b"1-1")
OTHER = Receipt(0, 0, b"1-2")


@pytest.fixture
def config(mq_settings):
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 3}})
    return get_config().queue("default")


def judge(config, evidence, attempt=1, *, suspect=False):
    delivery = Delivery(Message("m", "n", 1, "default", attempt), 0, b"1-1", b"1", suspect, suspect)
    return settlement(config, 0, delivery, evidence)


DIED = Retry(timedelta(0), "running when its process died")
BOTH = [RECEIPT, OTHER]
#: What is known of a delivery, its attempt, and what becomes of it: an outcome, or its class, and more.
JUDGED = {
    "it was handled": (Evidence(results={RECEIPT: HANDLED}, running=[RECEIPT]), 1, Ack, {}),
    "it failed": (Evidence(results={RECEIPT: FAILED}), 1, Retry, {"alone": False}),
    "it ran": (Evidence(running=[RECEIPT]), 1, DIED, {"alone": True, "delay_ms": 0}),
    "it ran beside others": (Evidence(running=BOTH), 3, HandBack(suspect=True), {}),
    "it lay ready": (Evidence(running=[OTHER]), 1, HandBack(), {}),
    # Of a late handler's process only the late one is charged, and of a late batch each is a suspect.
    "it was late": (Evidence(running=BOTH, late=[RECEIPT]), 1, Retry, {}),
    "another one was late": (Evidence(running=BOTH, late=[OTHER]), 1, HandBack(), {}),
    "its batch was late": (Evidence(running=BOTH, late=BOTH, together=BOTH), 1, HandBack(suspect=True), {}),
    "of its batch another one was late": (Evidence(running=BOTH, late=[OTHER], together=BOTH), 1, HandBack(), {}),
    "its machine is lost": (Evidence(lost=True), 1, HandBack(lost=True), {}),
    # What a quarantine held was what it ran.
    "its quarantine is lost": (Evidence(lost=True, alone=True), 1, Retry, {}),
}


def test_the_evidence_decides(config, subtests):
    for name, (evidence, attempt, outcome, more) in JUDGED.items():
        with subtests.test(name):
            found = judge(config, evidence, attempt)
            assert (type(found.outcome) if isinstance(outcome, type) else found.outcome) == outcome
            assert {field: getattr(found, field) for field in more} == more
    assert judge(config, JUDGED["it failed"][0]).delay_ms > 0
    assert "HandlerTimeout" in judge(config, JUDGED["it was late"][0]).outcome.error


def test_a_request_to_cancel_decides_only_about_what_was_published_before_it(config):
    def judged(asked_ms):
        evidence = Evidence(cancelled={"m": CancelRequest(asked_ms, force=True)})
        delivery = Delivery(Message("m", "n", 1, "default", published_ms=1000), 0, b"1000-0", b"1")
        return settlement(config, 0, delivery, evidence).outcome

    assert [type(judged(asked_ms)) for asked_ms in (1000, 999)] == [Cancel, HandBack]


def test_a_suspect_that_kills_alone_is_charged_twice(config):
    evidence = Evidence(running=[RECEIPT])
    found = judge(config, evidence, suspect=True)
    assert isinstance(found.outcome, Retry)
    assert found.delivery.message.attempt == 2
    outcome = judge(config, evidence, attempt=2, suspect=True).outcome
    assert isinstance(outcome, Bury)
    assert outcome.reason == "crashed"


def test_what_had_just_ended_was_nobodys_company(config):
    shared_state = SharedState.create(2)
    shared_state.run(0, 0, 0, RECEIPT.entry, 1.0)
    shared_state.run(1, 0, 0, OTHER.entry, 1.0)
    shared_state.ended(HANDLED, 0, 0, OTHER.entry)
    found = judge(config, evidence_of(shared_state, late=False, now=2.0))
    shared_state.close()
    assert isinstance(found.outcome, Retry)


def test_what_ran_in_a_batch_is_a_suspect_and_nothing_else_is(config):
    shared_state = SharedState.create(2, batches=2, batch=10)
    shared_state.run_batch(0, 0, [RECEIPT, OTHER], 1.0, 2.0)
    evidence = evidence_of(shared_state, late=False, now=9.0)
    late = evidence_of(shared_state, late=True, now=9.0)
    shared_state.run_batch(0, 0, [OTHER, Receipt(0, 0, b"9-9")], 1.0, 2.0)
    others = evidence_of(shared_state, late=False, now=9.0)
    shared_state.close()
    assert judge(config, evidence).outcome == judge(config, late).outcome == HandBack(suspect=True)
    assert judge(config, others).outcome == HandBack()


@pytest.mark.parametrize(
    ("evidence", "reason"), [(Evidence(running=[RECEIPT]), "crashed"), (Evidence(late=[RECEIPT]), "attempts")]
)
def test_the_last_attempt_is_buried_with_its_reason(config, evidence, reason):
    outcome = judge(config, evidence, attempt=3).outcome
    assert isinstance(outcome, Bury)
    assert outcome.reason == reason


def test_what_is_no_message_is_buried_and_what_was_deleted_is_forgotten(config):
    bad = settlement(config, 0, Undecodable(0, b"1-1", [b"x"], "not JSON"), Evidence())
    assert bad.outcome == Bury("not JSON", reason="undecodable")
    assert isinstance(settlement(config, 0, Undecodable(0, b"1-1", [], "gone"), Evidence()).outcome, Ack)


@pytest.fixture
def members(config):
    return Members(config, Pooled(get_client("chores")))


@pytest.fixture
def take(store, publish):
    def take(consumer, count):
        for _ in range(count):
            publish()
        store.create_groups()
        return store.take(consumer, count=count)

    return take


def receipts(deliveries):
    return [Receipt(0, delivery.stream, delivery.entry) for delivery in deliveries]


def test_a_dead_childs_deliveries_go_where_they_belong(config, store, take):
    handled, ran, _ = receipts(take("dead", 3))
    moved = reclaim(store, 0, "dead", Evidence(results={handled: HANDLED}, running=[ran]))
    depths = store.depths()
    assert moved == 2
    assert (depths.pending, depths.delayed, depths.ready) == (0, 1, 1)


def test_who_does_not_respond_keeps_what_it_has_begun(store, take):
    begun, *_ = receipts(take("stopped", 4))
    assert hand_back_unstarted(store, 0, "stopped", [begun]) == 3
    assert hand_back_unstarted(store, 0, "stopped", [begun]) == 0
    assert [delivery.entry for delivery in store.held_by("stopped", limit=9)] == [begun.entry]


def test_a_dead_supervisors_deliveries_go_back_and_everything_of_it_leaves(store, take, members, redis_client):
    take("dead-1", 2)
    membership = members.beat("dead", {}, {"dead-1": {}, "dead-2": {}})
    assert reclaim_supervisor(store, members, 0, "dead", membership, gone := []) == 2
    assert gone == ["dead-1", "dead-2"]
    assert store.depths().ready == 2
    assert not redis_client.exists(store.keys.consumers)
    assert redis_client.xinfo_consumers(store.keys.ready, "mq") == []


def test_who_has_beaten_since_is_left_alone(store, take, members):
    take("late-1", 2)
    membership = members.beat("late", {}, {"late-1": {}})
    members.beat("late", {}, {"late-1": {}}, generation=membership.generation)
    assert reclaim_supervisor(store, members, 0, "late", membership, gone := []) == 0
    assert gone == []
    assert store.depths().pending == 2


@pytest.mark.parametrize("starting", [False, True])
def test_a_supervisor_that_was_reloaded_is_no_news(store, members, caplog, monkeypatch, starting):
    """Its consumers have left, or could not be loaded."""
    membership = members.beat("reloaded", {}, {"c0": {"starting": True}} if starting else {})
    if starting:
        monkeypatch.setenv("RUN_MAIN", "true")
    with caplog.at_level("INFO"):
        reclaim_supervisor(store, members, 0, "reloaded", membership, [])
    assert caplog.messages == []


def test_a_message_that_brings_machines_down_ends_in_the_dead_letter_queue(config, store, publish, members):
    """Twice lost with a whole tree, then passed on to quarantines that are lost with theirs."""
    publish()
    store.create_groups()
    for death in range(2 + 3):
        (delivery,) = store.take(f"c{death}", count=1)
        assert delivery.alone == (death >= 2)
        membership = members.beat(f"s{death}", {}, {f"c{death}": {"quarantine": delivery.alone}})
        reclaim_supervisor(store, members, 0, f"s{death}", membership, [])
        store.promote(limit=10)
    assert store.depths().dead == 1
    assert store.depths().depth == 0


@pytest.fixture
def reclaimer(config):
    done = []
    found = Reclaimer({0: config}, settled=lambda number, consumer: done.append(consumer))
    found.done = done
    yield found
    found.stop()
    found.join(2)


def test_it_settles_for_a_child_until_that_is_done(reclaimer, store, take, monkeypatch):
    take("dead", 2)
    ask, refusals = reclaimer._stores[0].held_by, [ConnectionLost("away")] * 2

    def held_by(consumer, *, limit):
        if refusals:
            raise refusals.pop()
        return ask(consumer, limit=limit)

    monkeypatch.setattr(reclaimer._stores[0], "held_by", held_by)
    reclaimer.consumer_exited("dead", Evidence())
    assert not reclaimer.is_done()
    reclaimer.start()
    wait_until(reclaimer.is_done)
    assert reclaimer.done == ["dead"]
    assert store.depths().ready == 2


def test_a_dead_consumer_that_holds_very_much_does_not_look_like_a_stuck_service(
    reclaimer, store, take, members, monkeypatch
):
    """Other software may have read any number of messages."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "BATCH", 1)
    ask, steps = reclaimer._stores[0].held_by, []

    def held_by(consumer, *, limit):
        steps.append(reclaimer.progressed == clock.now)
        clock.now += 1
        return ask(consumer, limit=limit)

    monkeypatch.setattr(reclaimer._stores[0], "held_by", held_by)
    take("ended", 3)
    reclaimer.consumer_exited("ended", Evidence())
    reclaimer.run_once()
    take("dead-1", 3)
    reclaimer.supervisor_died(0, "dead", members.beat("dead", {}, {"dead-1": {}}))
    reclaimer.run_once()
    take("unknown", 3)
    reclaimer.consumer_unknown(0, "unknown")
    reclaimer.run_once()
    assert steps == [False, True, True, True] * 3


def test_what_comes_to_the_dead_later_goes_back_soon(reclaimer, store, take, monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    take("dead", 1)
    reclaimer.consumer_exited("dead", Evidence(may_receive=True))
    reclaimer.run_once()
    assert reclaimer.is_done()
    for _ in range(2):
        assert len(store.take("dead", count=9)) == 1
        clock.now += module.CHECK_EVERY
        reclaimer.run_once()
        assert store.depths().ready == 1
    # Its last reads have ended by then.
    clock.now += module.LAST_CHECK
    reclaimer.run_once()
    assert reclaimer._dead_workers == []


def test_what_comes_to_a_dead_supervisors_consumer_later_goes_back_soon(reclaimer, store, take, members, monkeypatch):
    monkeypatch.setattr(module, "LAST_CHECK", 600.0)
    take("dead-1", 1)
    membership = members.beat("dead", {}, {"dead-1": {}})
    reclaimer.start()
    reclaimer.supervisor_died(0, "dead", membership)
    wait_until(lambda: store.depths().ready == 1)
    assert len(store.take("dead-1", count=9)) == 1
    wait_until(lambda: store.depths().ready == 1)


def test_who_ended_in_order_is_looked_at_once(reclaimer, take):
    take("ended", 1)
    reclaimer.consumer_exited("ended", Evidence())
    assert reclaimer.run_once() == 60.0
    assert reclaimer._dead_workers == []


def test_thousands_of_forged_members_of_one_queue_do_not_hold_up_the_others(mq_settings, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.service.BUDGET", 0.0)
    mq_settings(QUEUES={"a": {}, "b": {}})
    configs = dict(enumerate(get_config().queues.values()))
    reclaimer = Reclaimer(configs, settled=lambda number, consumer: None)
    client = get_client("consume")
    forged = {f"s{number}": number for number in range(5)}
    for number, config in configs.items():
        client.hset(config.keys.consumers, mapping={f"beat:{name}": count for name, count in forged.items()})
        names = forged if number == 0 else ["s0"]
        membership = Membership(forged, {}, {}, {})
        for name in names:
            reclaimer.supervisor_died(number, name, membership)
            reclaimer.consumer_unknown(number, name)
    reclaimer.run_once()
    left = [client.hkeys(config.keys.consumers) for config in configs.values()]
    assert [b"beat:s0" in fields for fields in left] == [False, False]
    assert [len(fields) for fields in left] == [4, 4]
    assert {number for number, *_ in reclaimer._unknown} == {0}


@pytest.mark.parametrize("name", [b"\xff\xfe of old", b"", b"two\nlines", "naïve".encode()])
def test_an_unknown_consumer_may_have_any_name(reclaimer, store, take, members, redis_client, caplog, name):
    take("first", 3)
    store.settle("first", [Settlement(item, HandBack()) for item in store.held_by("first", limit=9)])
    members.leave(["first"])
    for stream in store.keys.streams():
        if redis_client.exists(stream):
            redis_client.xreadgroup("mq", name, {stream: ">"})
    (unknown,) = members.beat("me", {}, {}).unknown
    reclaimer.consumer_unknown(0, unknown)
    reclaimer.run_once()
    assert store.depths().pending == 0
    assert store.depths().ready == 3
    assert redis_client.xinfo_consumers(store.keys.ready, "mq") == []
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_what_a_consumer_read_before_its_messages_were_handed_back_is_not_its_own(reclaimer, take):
    (item,) = take("stopped", 1)
    before = reclaimer.handed_back_at("stopped")
    reclaimer.consumer_unresponsive("stopped", [])
    meanwhile = reclaimer.handed_back_at("stopped")
    reclaimer.run_once()
    (again,) = take("stopped", 1)
    assert (before, meanwhile) == (0.0, math.inf)
    assert 0.0 < item.read_at < reclaimer.handed_back_at("stopped") <= again.read_at


def test_while_messages_cannot_be_handed_back_their_consumer_holds_nothing_new(reclaimer, take, monkeypatch):
    take("stopped", 1)
    reclaimer.consumer_unresponsive("stopped", [])

    def report_again(*_):
        reclaimer.consumer_unresponsive("stopped", [])

    # It is still stopped a second later, while the first hand-back waits for Redis.
    monkeypatch.setattr(reclaimer, "_hand_back_unstarted", report_again)
    reclaimer.run_once()
    assert reclaimer.handed_back_at("stopped") == math.inf
    monkeypatch.undo()
    reclaimer.run_once()
    assert reclaimer.handed_back_at("stopped") < math.inf


def test_a_consumer_that_has_exited_is_forgotten(reclaimer):
    reclaimer.consumer_unresponsive("stopped", [])
    reclaimer.consumer_exited("stopped", Evidence())
    reclaimer.run_once()
    assert reclaimer.handed_back_at("stopped") == 0.0


def test_what_another_has_taken_meanwhile_is_not_recovered(store, take, monkeypatch):
    first, _ = take("dead", 2)
    settle = module.settle_for

    def settle_late(*args):
        store.reassign("dead", "other", [(first.stream, first.entry)])
        return settle(*args)

    monkeypatch.setattr(module, "settle_for", settle_late)
    assert reclaim(store, 0, "dead", Evidence()) == 1


def test_what_could_not_be_counted_is_counted_later(reclaimer, config, redis_client, monkeypatch):
    def lose(*_):
        raise ConnectionLost("gone")

    with monkeypatch.context() as patch:
        patch.setattr(reclaimer._session, "pipeline", lose)
        with pytest.raises(ConnectionLost):
            reclaimer._count(0, 2)
    reclaimer.run_once()
    reclaimer.run_once()
    found = redis_client.scan_iter(f"{config.keys.minutes(0)[:-1]}*")
    assert [value for key in found for value in redis_client.hvals(key)] == [b"2"]


def test_a_message_is_recovered_once_whoever_gets_it_without_seeing_it(reclaimer, store, take, members, monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    counted, add_total = [], reclaimer._slots[0].add_total
    monkeypatch.setattr(reclaimer._slots[0], "add_total", lambda *args: counted.append(args) or add_total(*args))
    take("dead-1", 3)
    reclaimer.supervisor_died(0, "dead", members.beat("dead", {}, {"dead-1": {}}))
    reclaimer.run_once()
    # By its blocked read, twice.
    for _ in range(2):
        assert len(store.take("dead-1", count=9)) == 3
        clock.now += module.CHECK_EVERY
        reclaimer.run_once()
    assert len(store.take("stopped", count=9)) == 3
    reclaimer.consumer_unresponsive("stopped", [])
    reclaimer.run_once()
    assert len(store.take("ended", count=9)) == 3
    reclaimer.consumer_unknown(0, "ended", has_ended=True)
    reclaimer.run_once()

    assert counted == [("recovered", 3)]
    assert [item.alone for item in store.take("next", count=9)] == [False] * 3


def test_what_redis_gives_to_a_read_that_still_waits_is_not_counted_again(config, store, take, monkeypatch):
    take("stopped", 2)
    settle, again = module.settle_for, []

    def read_on(*args):
        stale = settle(*args)
        again.append(store.take("stopped", count=9) if len(again) < 2 else [])
        return stale

    monkeypatch.setattr(module, "settle_for", read_on)
    assert reclaim(store, 0, "stopped", Evidence(lost=True)) == 2
    assert [len(found) for found in again] == [2, 2, 0]
