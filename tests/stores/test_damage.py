"""What other programs do to the streams of a queue or the log of a topic is noticed, once, and a group goes on."""

import logging

import pytest
import redis

from mq_django import inspector, queues, topics
from mq_django.conf import get_config
from mq_django.core.outcomes import ACK
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.damage import DamageCheck
from mq_django.stores.log import Log
from mq_django.transport.connections import get_client
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.sessions import Session
from tests.purging import purge

ME = "host-1-me"
LAST_ID = "18446744073709551615-18446744073709551615"


class Damaged:
    """A queue or group, its streams, and what is found to be wrong with it."""

    def __init__(self, name, client):
        self.config = get_config().queue(name)
        self.client = client
        self.keys = self.config.keys
        self.store = open_store(self.config, Session(get_client("consume")))
        self.store.create_groups()
        self.check = DamageCheck(self.config, Session(get_client("chores")))

    def found(self):
        return [(each.kind, each.messages) for each in self.check.find()]

    def take(self, count):
        return self.store.take(ME, count=count)

    def ack(self, taken):
        assert self.store.settle(ME, [Settlement(item, ACK) for item in taken]) == []

    def numbers(self, count=100):
        return [item.message.data for item in self.take(count)]

    def damage(self):
        return self.client.hget(self.keys.control, "damage").split()[1:]


@pytest.fixture
def emails(mq_settings, redis_client):
    return Damaged("emails", redis_client)


@pytest.fixture
def billing(mq_settings, redis_client):
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION_COUNT": 1000}})
    return Damaged("orders:billing", redis_client)


def publish(count):
    queues["emails"].publish_many([("welcome", number) for number in range(count)])


def announce(count):
    topics["orders"].publish_many([("paid", number) for number in range(count)])


def test_a_queue_that_works_is_not_damaged(emails, mq_settings):
    for _ in range(3):
        publish(20)
        assert emails.found() == []
        emails.ack(emails.take(5))
        queues["emails"].publish("welcome", 1, priority=5)
        held = emails.take(5)
        assert emails.found() == []
        purge(emails.store.config)
        assert emails.found() == []
        emails.ack([*held, *emails.take(100)])
        assert emails.found() == []
    assert not emails.client.hexists(emails.keys.control, "damage")


def test_trimmed_messages_are_counted_once(emails):
    publish(100)
    emails.ack(emails.take(10))
    assert emails.found() == []
    emails.client.xtrim(emails.keys.ready, maxlen=30, approximate=False)
    assert emails.found() == [("TRIMMED", 60)]
    assert emails.found() == []
    emails.ack(emails.take(100))
    assert emails.found() == []


def test_a_trim_is_noticed_by_what_consumers_hold(emails):
    publish(100)
    held = emails.take(10)
    assert emails.found() == []
    emails.client.xtrim(emails.keys.ready, maxlen=30, approximate=False)
    emails.take(5)
    assert emails.found() == [("REMOVED", 10)]
    assert emails.found() == []
    emails.store.settle(ME, [Settlement(item, ACK) for item in held])
    assert emails.found() == []


def test_a_deleted_stream_is_noticed_with_its_messages(emails):
    publish(7)
    assert emails.found() == []
    emails.client.delete(emails.keys.ready)
    assert emails.found() == [("DELETED", 7)]
    assert emails.found() == []
    assert emails.damage() == [b"DELETED", b"7"]


def test_messages_that_a_moved_group_skips_are_named_once(emails):
    publish(20)
    held = emails.take(5)
    assert emails.found() == []
    emails.client.xgroup_setid(emails.keys.ready, "mq", "$")
    publish(1)
    emails.take(1)
    # Some programs ack and delete in two steps, so it is seen twice before it is named.
    assert [emails.found() for _ in range(3)] == [[], [("SKIPPED", 15)], []]
    emails.client.xgroup_setid(emails.keys.ready, "mq", "0")
    assert len(emails.numbers()) == 21
    assert [emails.found() for _ in range(2)] == [[], []]
    assert held


def test_the_command_that_delivers_skipped_messages_names_their_group(billing):
    queues["orders:billing"].publish_many([("paid", number) for number in range(3)])
    billing.client.xgroup_setid(billing.keys.ready, "billing", "$")
    billing.check.find()
    (damage,) = billing.check.find()
    assert f"XGROUP SETID {billing.keys.ready} billing 0 delivers them" in str(damage)
    billing.client.execute_command("XGROUP", "SETID", billing.keys.ready, "billing", "0")
    assert billing.numbers() == [0, 1, 2]


def test_a_removed_group_is_made_again_and_delivers_all(emails, caplog):
    publish(5)
    emails.take(3)
    assert emails.found() == []
    emails.client.xgroup_destroy(emails.keys.ready, "mq")
    assert emails.take(10) == []
    assert emails.numbers() == [0, 1, 2, 3, 4]
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "Another program removed" in record.getMessage()
    assert "of queue emails" in record.getMessage()
    assert emails.damage() == [b"DESTROYED", b"0"]


def test_a_removed_stream_of_a_new_queue_is_no_damage(emails, caplog, redis_client):
    # As after a flush.
    redis_client.delete(emails.keys.ready, emails.keys.control)
    emails.store.create_groups()
    assert caplog.records == []


@pytest.mark.parametrize("handled", [True, False])
def test_the_largest_id_is_named_once(emails, handled):
    emails.client.xadd(emails.keys.ready, {"type": "welcome", "data": "1"}, id=LAST_ID)
    if handled:
        emails.ack(emails.take(1))
    assert emails.found() == [("AHEAD", 0)]
    assert emails.found() == []
    assert emails.damage() == [b"AHEAD", b"0"]
    view = inspector.queue("emails")
    assert (view.error, view.damage.kind, view.ready) == ("", "AHEAD", 0 if handled else 1)


def test_a_topic_with_the_largest_id_can_be_read(billing):
    billing.client.xadd(billing.keys.topic.log, {"type": "paid", "data": "1"}, id=LAST_ID)
    billing.ack(billing.take(1))
    assert billing.found() == [("AHEAD", 0)]
    assert inspector.queue("orders:billing").error == ""


def test_an_unreadable_state_of_the_last_check_is_no_trouble(emails, redis_client):
    publish(2)
    for text in ("x", "9" * 400, f"{LAST_ID} x -5 1e999 {'9' * 50}-1 - 7", ""):
        redis_client.hset(emails.keys.control, "check:0", text)
        assert emails.found() == []


def test_a_removed_group_of_a_topic_continues_where_it_was(billing, caplog):
    announce(100)
    billing.ack(billing.take(60))
    assert billing.found() == []
    # Not recorded yet.
    billing.ack(billing.take(10))
    billing.client.xgroup_destroy(billing.keys.topic.log, "billing")
    assert billing.take(100) == []
    assert billing.numbers() == [*range(60, 100)]
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "removed the consumer group billing of topic orders: it continues after" in record.getMessage()
    assert billing.damage() == [b"DESTROYED", b"0"]


def test_what_was_being_handled_is_delivered_again(billing):
    announce(10)
    first, *others = billing.take(5)
    billing.ack(others)
    assert billing.found() == []
    billing.client.xgroup_destroy(billing.keys.topic.log, "billing")
    assert billing.take(100) == []
    assert billing.numbers() == [*range(10)]
    assert billing.store.settle(ME, [Settlement(first, ACK)]) == [first.message.id]


def test_a_group_that_was_moved_by_us_continues_there(billing):
    announce(10)
    billing.ack(billing.take(10))
    assert billing.found() == []
    middle = billing.client.xrange(billing.keys.topic.log)[5][0].decode()
    topics["orders"].group("billing").seek(middle)
    billing.client.xgroup_destroy(billing.keys.topic.log, "billing")
    billing.store.create_groups()
    assert billing.found() == []
    assert billing.numbers() == [5, 6, 7, 8, 9]


def test_a_position_from_before_a_seek_of_an_older_version_does_not_count(billing):
    announce(10)
    billing.ack(billing.take(10))
    assert billing.found() == []
    position = billing.client.hget(billing.keys.control, "position")
    topics["orders"].group("billing").seek("beginning")
    billing.client.hset(billing.keys.control, "position", position)
    billing.client.xgroup_destroy(billing.keys.topic.log, "billing")
    billing.store.create_groups()
    assert billing.numbers() == [*range(10)]


def test_a_group_whose_log_was_deleted_too_skips_nothing(billing):
    announce(10)
    billing.ack(billing.take(10))
    assert billing.found() == []
    log = billing.keys.topic.log
    billing.client.delete(log)
    billing.client.xadd(log, {"type": "paid", "data": "77"}, id="5-5")
    billing.store.create_groups()
    assert billing.numbers() == [77]


def test_a_group_that_was_moved_by_others_is_named_with_both_places(billing):
    announce(50)
    billing.ack(billing.take(10))
    assert billing.found() == []
    before = billing.client.xinfo_groups(billing.keys.topic.log)[0]["last-delivered-id"].decode()
    billing.client.xgroup_setid(billing.keys.topic.log, "billing", "$")
    damage = billing.check.find()
    assert [(each.kind, each.messages, each.moved_from) for each in damage] == [("MOVED", 40, before)]
    assert f"moved by XGROUP SETID from {before}" in str(damage[0])
    assert billing.found() == []
    # A seek of ours is no damage.
    topics["orders"].group("billing").seek("beginning")
    assert billing.found() == []
    assert len(billing.numbers()) == 50
    assert billing.found() == []


def test_reading_past_an_entry_that_was_deleted_is_no_move(billing):
    announce(50)
    billing.ack(billing.take(10))
    assert billing.found() == []
    unread = billing.client.xrange(billing.keys.topic.log)[20][0]
    billing.client.xdel(billing.keys.topic.log, unread)
    billing.ack(billing.take(30))
    assert "MOVED" not in [each.kind for each in billing.check.find()]


def test_unread_messages_that_others_trim_are_lost_and_those_beyond_the_retention_are_not_damage(billing):
    announce(500)
    billing.ack(billing.take(100))
    assert billing.found() == []
    log = Log(get_config().topic("orders"), Session(get_client("chores")))
    billing.client.xtrim(billing.keys.topic.log, maxlen=150, approximate=False)
    assert billing.found() == [("LOST", 250)]
    assert billing.found() == []
    assert log.groups()[0].lost == 250
    billing.ack(billing.take(1000))
    assert billing.found() == []
    announce(2500)
    assert log.trim().lost == {"billing": 2650 - billing.client.xlen(billing.keys.topic.log) - 150}
    assert billing.found() == []
    billing.ack(billing.take(1000))
    assert billing.found() == []


def test_a_group_that_reads_past_a_deleted_message_was_not_moved(billing):
    announce(100)
    billing.ack(billing.take(10))
    assert billing.found() == []
    log = billing.keys.topic.log
    billing.client.xdel(log, billing.client.xrange(log)[50][0])
    billing.ack(billing.take(60))
    assert billing.found() == []
    billing.ack(billing.take(60))
    assert billing.found() == []


@pytest.mark.parametrize("to", [20, 40])
def test_what_is_trimmed_after_a_move_is_seen_before_the_group_has_read_to_the_end(billing, to):
    announce(100)
    billing.ack(billing.take(30))
    assert billing.found() == []
    log = billing.keys.topic.log
    entries = [entry.decode() for entry, _ in billing.client.xrange(log)]
    billing.client.xgroup_setid(log, "billing", entries[to - 1])
    (moved,) = billing.check.find()
    assert (moved.kind, moved.messages) == ("MOVED_BACK" if to < 30 else "MOVED", 10)
    assert "back to" in str(moved) if to < 30 else "10 messages are skipped; mq topics seek moves it back" in str(moved)
    billing.client.xtrim(log, maxlen=40, approximate=False)
    assert billing.found() == [("LOST", 60 - to)]
    billing.ack(billing.take(5))
    assert billing.found() == []
    billing.client.xtrim(log, maxlen=25, approximate=False)
    assert billing.found() == [("LOST", 10)]
    billing.ack(billing.take(100))
    assert billing.found() == []


def test_what_is_trimmed_after_a_group_was_removed_is_seen_before_it_has_read_to_the_end(billing):
    announce(100)
    billing.ack(billing.take(30))
    held = billing.take(3)
    assert billing.found() == []
    log = billing.keys.topic.log
    billing.client.xgroup_destroy(log, "billing")
    billing.store.create_groups()
    billing.client.xtrim(log, maxlen=60, approximate=False)
    assert billing.found() == [("LOST", 10)]
    assert billing.found() == []
    assert billing.numbers() == [*range(40, 100)]
    assert billing.found() == []
    assert held


@pytest.fixture
def restarted(mq_settings, tmp_path):
    """A group on a server with an append-only file, and what restarts that server."""
    settings = {"appendfsync": "always"}
    with PrivateServer(directory=tmp_path, append_only=True, settings=settings, tcp=True) as server:

        def restart():
            server.kill()
            server.start()
            get_client("consume").connection_pool.disconnect()
            return Damaged("orders:billing", client)

        mq_settings(CONNECTION=server.url, QUEUES={}, TOPICS={"orders": {"RETENTION_COUNT": 1000}})
        with redis.Redis.from_url(server.url, protocol=2) as client:
            yield Damaged("orders:billing", client), restart


@pytest.mark.parametrize("unchecked", [0, 10])
def test_numbers_that_redis_forgot_at_a_restart_are_no_damage(restarted, unchecked):
    billing, restart = restarted
    announce(100)
    # The file of Redis has this count, and not those of later reads.
    eleventh = billing.client.xrange(billing.keys.topic.log)[10][0].decode()
    topics["orders"].group("billing").seek(eleventh)
    billing.ack(billing.take(30))
    assert billing.found() == []
    for _ in range(unchecked):
        billing.ack(billing.take(1))
    billing = restart()
    assert billing.found() == []
    log = billing.keys.topic.log
    # Removed messages that the group has read, and then five that it has not.
    billing.client.xtrim(log, maxlen=60 - unchecked, approximate=False)
    assert billing.found() == []
    assert billing.client.xinfo_groups(log)[0]["entries-read"] == 40 + unchecked
    billing.client.xtrim(log, maxlen=55 - unchecked, approximate=False)
    assert billing.found() == [("LOST", 5)]


def test_a_group_that_read_much_before_a_restart_is_checked_again_from_the_end_of_the_log(restarted):
    billing, restart = restarted
    announce(400)
    eleventh = billing.client.xrange(billing.keys.topic.log)[10][0].decode()
    topics["orders"].group("billing").seek(eleventh)
    billing.ack(billing.take(30))
    assert billing.found() == []
    billing.ack(billing.take(200))
    billing = restart()
    billing.client.xtrim(billing.keys.topic.log, maxlen=160, approximate=False)
    assert billing.found() == []
    billing.ack(billing.take(200))
    assert billing.found() == []
    announce(20)
    assert billing.found() == []
    billing.client.xtrim(billing.keys.topic.log, maxlen=15, approximate=False)
    assert billing.found() == [("LOST", 5)]
