import logging

import pytest

from mq_django.conf import get_config
from mq_django.consumers.supervisor import chores
from mq_django.consumers.supervisor.chores import Trimmer
from mq_django.core.messages import ACK
from mq_django.errors import ConnectionLost
from mq_django.signals import retention_alarm
from mq_django.stores import open_log, topic_stats
from mq_django.stores.base import Settlement
from mq_django.stores.log import Log, PartitionedLog, TopicStore
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.commands import calls
from tests.hearing import hears
from tests.signal_docs import arguments_of
from tests.stores.cases import outgoing

ME = "host-1-me"


@pytest.fixture(autouse=True)
def _rare_checks(monkeypatch):
    monkeypatch.setattr(chores, "LOG_INTERVAL", 600.0)


@pytest.fixture
def log(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION": None, "RETENTION_COUNT": 1000}})
    return Log(get_config().topic("orders"), Session(get_client("produce")))


@pytest.fixture
def billing(log):
    store = TopicStore(log.config.group("billing"), Session(get_client("consume")))
    store.create_groups()
    return store


@pytest.fixture
def alarms():
    heard = []

    def hear(**told):
        assert set(told) == arguments_of(retention_alarm)
        heard.append((told["queue"], told["group"], round(told["share"], 2), told["lag"]))

    with hears(retention_alarm, to=hear):
        yield heard


def publish(log, count):
    for at in range(0, count, 500):
        log.publish([outgoing(data=n) for n in range(at, min(count, at + 500))])


def an_interval_passes(log, client):
    looked = int(client.hget(log.keys.control, "looked"))
    client.hset(log.keys.control, "looked", looked - 600_000)


def handle(store, count):
    while count:
        taken = store.take(ME, count=min(500, count))
        store.settle(ME, [Settlement(delivery, ACK) for delivery in taken])
        count -= len(taken)


def test_an_alarm_comes_before_a_loss_and_goes_when_the_group_has_caught_up(log, billing, alarms, redis_client, caplog):
    looking = Trimmer([log], [log])
    publish(log, 700)
    looking.run_once()
    assert alarms == []
    publish(log, 150)
    looking.run_once()
    # Somebody has looked just now.
    assert alarms == []
    for _ in range(2):
        an_interval_passes(log, redis_client)
        looking.run_once()
    assert alarms == [("orders", "billing", 0.85, 850)]
    assert redis_client.hget(billing.keys.control, "alarm") == b"85"
    assert "Group billing of topic orders is 850 messages" in caplog.text
    handle(billing, 800)
    an_interval_passes(log, redis_client)
    looking.run_once()
    assert redis_client.hget(billing.keys.control, "alarm") is None


def test_retention_wins_over_a_group_that_does_not_read(log, billing, alarms, redis_client, caplog):
    publish(log, 5000)
    Trimmer([log], [log]).run_once()
    assert 1000 <= redis_client.xlen(log.keys.log) < 1100
    lost = int(redis_client.hget(billing.keys.control, "lost"))
    assert lost == 5000 - redis_client.xlen(log.keys.log)
    assert alarms == [("orders", "billing", 5.0, 5000)]
    assert [record.levelno for record in caplog.records if "lost" in record.message][:1] == [logging.ERROR]


@pytest.mark.parametrize("looked", ["x", "9" * 400, str(2**62)])
def test_a_turn_is_of_one_supervisor_and_no_number_holds_it(log, redis_client, looked):
    assert [log.claim_check(540.0) for _ in range(3)] == [True, False, False]
    an_interval_passes(log, redis_client)
    assert [log.claim_check(540.0) for _ in range(2)] == [True, False]
    redis_client.hset(log.keys.control, "looked", looked)
    assert [log.claim_check(540.0) for _ in range(2)] == [True, False]


def test_a_group_far_behind_is_not_counted_whole(log, billing, alarms, redis_client, monkeypatch):
    monkeypatch.setattr(chores, "MAX_COUNTED", 100)
    monkeypatch.setattr(topic_stats, "PAGE", 100)
    for ms in range(900):
        redis_client.xadd(log.keys.log, {"type": "paid", "data": "1"}, id=f"{1_700_000_000_000 + 1000 * ms}-0")
    handle(billing, 10)
    # Redis does not know how many are left of what was deleted and lost.
    redis_client.hset(billing.keys.control, "lost", 1)
    before = calls(redis_client, "xrange")
    Trimmer([log], [log]).run_once()
    assert calls(redis_client, "xrange") - before < 20
    ((_, name, share, counted),) = alarms
    assert (name, counted) == ("billing", 100)
    assert 0.85 < share < 0.95


def test_a_round_reads_the_list_of_groups_as_often_however_many_there_are(log, redis_client):
    """To read the list for each of 20,000 groups blocked the server for half a minute."""
    publish(log, 1)
    read = []
    for number in (1, 30):
        for group in range(number):
            redis_client.execute_command("XGROUP", "CREATE", log.keys.log, f"g{number}-{group}", "0")
        before = calls(redis_client, "xinfo|groups")
        Trimmer([log], [log]).run_once()
        read.append(calls(redis_client, "xinfo|groups") - before)
        an_interval_passes(log, redis_client)
    assert read[0] == read[1] > 0


def test_a_topic_that_nobody_has_used_is_no_trouble(log, redis_client):
    Trimmer([log], [log]).run_once()
    assert not redis_client.exists(log.keys.log)


def test_the_groups_of_a_topic_with_partitions_have_one_alarm_each(mq_settings, alarms, caplog):
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION": None, "RETENTION_COUNT": 40, "PARTITIONS": 4}})
    whole = get_config().topic("orders")
    session = Session(get_client("produce"))
    topic, logs = open_log(whole, session), [Log(part, session) for part in whole.parts]
    topic.subscribe("billing", "beginning")
    looking = Trimmer(logs, [topic])
    for log in logs[:2]:
        publish(log, 9)
    looking.run_once()
    assert alarms == [("orders", "billing", 0.9, 18)]
    assert [group.alarm for group in topic.groups()] == [90]
    assert caplog.text.count("Group billing of topic orders is 18 messages") == 1


class _WithoutANode(PartitionedLog):
    def groups(self, **_):
        raise ConnectionLost("another node is away")


def test_each_partition_is_trimmed_to_its_share_of_the_retention_also_while_another_node_is_away(
    mq_settings, redis_client
):
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION_COUNT": 4000, "PARTITIONS": 4}})
    whole = get_config().topic("orders")
    session = Session(get_client("produce"))
    logs = [Log(part, session) for part in whole.parts]
    publish(logs[0], 3000)
    publish(logs[1], 500)
    topic = _WithoutANode(whole, {log.config.name: log for log in logs}, session)
    Trimmer(logs[:2], [topic]).run_once()
    assert 1000 <= redis_client.xlen(logs[0].keys.log) < 1100
    assert redis_client.xlen(logs[1].keys.log) == 500
