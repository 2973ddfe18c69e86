"""The log of a topic with partitions is listed as one, by the time of its messages."""

import pytest

from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.errors import InvalidOffset, UnknownTopic
from mq_django.inspector import action_log, message_lists
from mq_django.transport.sessions import Session

PARTITIONS = 3


@pytest.fixture
def logs(mq_settings, monkeypatch):
    """Return the logs of the partitions."""
    mq_settings(QUEUES={}, TOPICS={"orders": {"PARTITIONS": PARTITIONS}})
    # Each partition is read in several parts.
    monkeypatch.setattr(message_lists, "LEAST", 2)
    return [part.keys.log for part in get_config().topic("orders").parts]


@pytest.fixture
def filled(logs, redis_client):
    """Fill the logs; return the names of all entries in their order. Some have the same id in several partitions."""
    names = []
    for moment in range(1000, 1060):
        for number in range(PARTITIONS):
            if moment % (number + 1) == 0:
                name = "even" if moment % 2 == 0 else "odd"
                redis_client.xadd(logs[number], {"type": name, "data": "1"}, id=f"{moment}-0")
                names.append(f"{moment}-0.{number}")
    return names


def pages(limit, **options):
    """Return the names of the entries of all pages."""
    after, found = "", []
    while True:
        page = message_lists.in_log("orders", after=after, limit=limit, **options)
        assert len(page.rows) <= limit
        found += [row.ref for row in page.rows]
        after = page.after
        if not after:
            return found


def test_pages_have_each_message_once_in_order(filled, subtests):
    for limit in [1, 7, 50, 500]:
        with subtests.test(limit=limit):
            assert pages(limit) == filled
            assert pages(limit, newest_first=True) == filled[::-1]


def test_nothing_is_before_the_first_id(filled):
    """Redis refuses an exclusive end there."""
    assert message_lists.in_log("orders", after="0-0.1", limit=5, newest_first=True).rows == []
    assert action_log.actions(after="0-0", limit=5).rows == []


def test_a_range_is_one_of_times(filled):
    assert pages(10, since="1010-0", until="1012-0") == [
        name for name in filled if 1010 <= int(name.partition("-")[0]) <= 1012
    ]


def test_a_filter_finds_messages_of_all_partitions(filled):
    assert pages(10, where=Filter(name="odd")) == [name for name in filled if int(name.partition("-")[0]) % 2]


def test_an_entry_is_found_in_its_partition(filled, logs, redis_client):
    redis_client.xadd(logs[1], {"type": "own", "data": "1"}, id="2000-5")
    redis_client.xadd(logs[2], {"type": "other", "data": "2"}, id="2000-5")
    assert message_lists.get_in_log("orders", "2000-5.1").name == "own"
    assert message_lists.get_in_log("orders", "2000-5.2").name == "other"
    assert message_lists.get_in_log("orders.2", "2000-5").name == "other"
    assert message_lists.get_in_log("orders", "2000-5").name == "own"
    assert message_lists.get_in_log("orders", "2000-5.0") is None
    with pytest.raises(UnknownTopic):
        message_lists.get_in_log("orders", "2000-5.3")
    with pytest.raises(InvalidOffset):
        message_lists.get_in_log("orders", "2000-5.x")
    with pytest.raises(InvalidOffset):
        message_lists.in_log("orders", after="nowhere", limit=10)


def test_a_partition_is_listed_by_its_own_name(filled):
    page = message_lists.in_log("orders.1", limit=3)
    assert [row.ref for row in page.rows] == ["1000-0", "1002-0", "1004-0"]
    assert page.after == "1004-0"


@pytest.mark.parametrize("where", [Filter(data="nothing"), Filter()])
def test_long_messages_are_read_a_few_at_a_time(mq_settings, redis_client, monkeypatch, where):
    """To read all of a page at once would block Redis, and take as much memory here."""
    mq_settings(QUEUES={}, TOPICS={"orders": {}})
    for n in range(20):
        redis_client.xadd(get_config().topic("orders").keys.log, {"type": "long", "data": f'"{n:>800000}"'})
    counted, receive = [], Session.receive

    def received(session):
        reply = receive(session)
        counted.append(str(reply).count("type"))
        return reply

    monkeypatch.setattr(Session, "receive", received)
    found = message_lists.in_log("orders", where, limit=50)
    assert (len(found.rows), found.scanned) == (0 if where.data else 20, 20)
    assert counted == [10, 10, 0]
