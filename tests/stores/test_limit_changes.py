"""Limits that are changed at run time hold from the next fetch on, and so do those of the settings after that."""

import pytest

from mq_django import inspect, queues
from mq_django.conf import get_config
from mq_django.core.limits import LimitChange, Rate, read_changes
from mq_django.core.messages import ACK
from mq_django.errors import InvalidArguments, NotSupported
from mq_django.inspector import plans
from mq_django.stores.base import Settlement
from mq_django.stores.line_store import Shares
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.waiting import wait_until


def publish(count, *keys):
    for key in keys or (None,):
        queues["emails"].publish_many([("sms", number) for number in range(count)], key=key)


def take(store):
    """Take what may run now, and return how many there are."""
    return len(store.take("c1", count=100))


def take_all(store, count):
    """Take until so many are held, of each key one at a time, and no more may run."""
    wait_until(lambda: take(store) == 0 and len(store.held_by("c1", limit=100)) >= count)
    assert take(store) == 0
    assert len(store.held_by("c1", limit=100)) == count


def ack(store, count=None):
    held = store.held_by("c1", limit=count or 100)
    assert store.settle("c1", [Settlement(item, ACK) for item in held]) == []


def test_a_rate_holds_from_the_next_fetch_on(open_queue):
    store = open_queue(RATE_LIMIT="3/h")
    publish(40)
    assert [take(store), take(store)] == [3, 0]
    inspect.set_limits("emails", rate="10/h", who="ann", reason="they asked")
    # What was granted before counts.
    assert [take(store), take(store)] == [7, 0]
    inspect.set_limits("emails", rate="5/h")
    assert take(store) == 0
    inspect.set_limits("emails", rate="none")
    assert take(store) == 30
    assert inspect.reset_limits("emails")
    publish(1)
    # Also what was granted while there was no limit.
    assert take(store) == 0
    assert not inspect.reset_limits("emails")


def test_what_ran_without_a_limit_counts_when_it_is_back(open_queue):
    store = open_queue(RATE_LIMIT={"queue": "3/h", "key": "9/h"}, CONCURRENCY={"key": 2})
    inspect.set_limits("emails", rate="none", key_rate="none", key_concurrency="none")
    publish(20, "a")
    take_all(store, 20)
    inspect.reset_limits("emails", limits=["rate", "key_rate"])
    publish(1, "b")
    assert take(store) == 0
    inspect.set_limits("emails", rate="none")
    assert take(store) == 1
    publish(1, "a")
    inspect.set_limits("emails", key_rate="none", key_concurrency="settings")
    assert take(store) == 0


def test_concurrency_below_what_runs_interrupts_nothing(open_queue):
    store = open_queue(CONCURRENCY=4)
    publish(20)
    assert take(store) == 4
    inspect.set_limits("emails", concurrency=2)
    assert take(store) == 0
    assert len(store.held_by("c1", limit=100)) == 4
    ack(store, 2)
    assert take(store) == 0
    ack(store, 1)
    assert take(store) == 1
    inspect.set_limits("emails", concurrency="none")
    assert take(store) == 15
    inspect.reset_limits("emails", limits=["concurrency"])
    assert take(store) == 0


@pytest.mark.parametrize("form", [{}, {"FAIR": True}])
def test_limits_of_keys_hold_from_the_next_fetch_on(open_queue, form):
    store = open_queue(CONCURRENCY={"key": 1}, RATE_LIMIT={"key": "3/d"}, **form)
    publish(10, "a", "b")
    take_all(store, 2)
    inspect.set_limits("emails", key_concurrency=2)
    take_all(store, 4)
    inspect.set_limits("emails", key_concurrency="none")
    take_all(store, 6)
    # Their next check would be tomorrow.
    inspect.set_limits("emails", key_rate="4/d")
    take_all(store, 8)
    inspect.set_limits("emails", key_concurrency=3, key_rate="none")
    assert take(store) == 0
    ack(store)
    take_all(store, 6)
    ack(store)
    inspect.set_limits("emails", key_concurrency="none")
    take_all(store, 6)
    # Tokens were kept while there was no limit.
    inspect.reset_limits("emails")
    publish(1, "a")
    assert take(store) == 0


def test_very_many_keys_are_looked_at_in_steps(open_queue, redis_client, monkeypatch):
    store = open_queue(RATE_LIMIT={"key": "1/d"})
    keys = store.config.keys
    (now, _) = redis_client.time()
    redis_client.zadd(keys.next_checks, {str(number): (now + 86_400) * 1000 for number in range(2500)})
    inspect.set_limits("emails", key_rate="2/d")
    assert redis_client.zcount(keys.next_checks, (now + 60) * 1000, "+inf") == 0
    assert 1 < len({score for _, score in redis_client.zrange(keys.next_checks, 0, -1, withscores=True)}) <= 3


def test_order_stays_while_other_limits_change(open_queue):
    store = open_queue(ORDERED=True, CONCURRENCY=1)
    publish(3, "a", "b")
    assert take(store) == 1
    inspect.set_limits("emails", concurrency=5)
    assert take(store) == 1
    with pytest.raises(NotSupported, match="ORDERED"):
        inspect.set_limits("emails", key_concurrency=2)


def test_shares_of_partitions_follow(mq_settings):
    limits = {"CONCURRENCY": {"queue": 5, "key": 1}, "RATE_LIMIT": "100/s"}
    mq_settings(QUEUES={"emails": {"PARTITIONS": 4, "VISIBILITY_TIMEOUT": 600, **limits}})
    config = get_config().queue("emails")
    a, b = (Shares(config, Pooled(get_client("consume")), name) for name in ("a:0", "b:0"))
    assert a.ask(0, 9).messages == 5
    inspect.set_limits("emails.2", concurrency=7, key_concurrency=3, who="ann")
    assert b.ask(0, 9).messages == 2
    inspect.set_limits("emails", concurrency=3)
    assert a.ask(5, 1) == (0, None)
    assert a.ask(0, 9).messages == 1
    assert {part.name: sorted(part.limit_changes) for part in inspect.queue("emails").parts} == {
        f"emails.{number}": ["concurrency", "key_concurrency"] for number in range(4)
    }
    (concurrency, of_key) = inspect.limit_changes("emails")
    assert (concurrency.value, of_key.value, of_key.who) == ("3", "3", "ann")
    found = plans.limits("emails", count=5)
    assert (found.limits.concurrency, found.limits.key_concurrency, str(found.limits.rate)) == (3, 3, "100/s")
    inspect.reset_limits("emails")
    assert b.ask(2, 9).messages == 2


def test_a_change_stays_when_the_settings_change(open_queue, mq_settings):
    open_queue(RATE_LIMIT="10/s", CONCURRENCY=5)
    inspect.set_limits("emails", rate="2/h", reason="they asked", who="ann")
    store = open_queue(RATE_LIMIT="50/s")
    publish(5)
    assert take(store) == 2
    (change,) = inspect.limit_changes("emails")
    assert (change.value, change.who, change.reason) == ("2/h", "ann", "they asked")
    # Without limits consumers read the queue in another way, and there is nothing to change.
    plain = open_queue()
    assert inspect.limit_changes("emails") == ()
    assert take(plain) == 3
    assert inspect.reset_limits("emails")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({}, InvalidArguments, "Give a limit"),
        ({"rate": "10"}, InvalidArguments, '10/s", "100/m"'),
        ({"rate": "0/s"}, InvalidArguments, "rate="),
        ({"rate": "9999999/s"}, InvalidArguments, "rate="),
        ({"rate": 5}, InvalidArguments, '10/s", "100/m"'),
        ({"concurrency": 0}, InvalidArguments, 'a whole number from 1 to 1,000,000,000, "none" or "settings", not 0'),
        ({"concurrency": -1}, InvalidArguments, 'a whole number from 1 to 1,000,000,000, "none" or "settings", not -1'),
        ({"concurrency": 2.5}, InvalidArguments, "a whole number from 1"),
        ({"concurrency": True}, InvalidArguments, "concurrency="),
        ({"concurrency": "many"}, InvalidArguments, "concurrency="),
        ({"concurrency": 10**10}, InvalidArguments, "concurrency="),
        ({"rate": "1/s", "key_rate": "1/s"}, NotSupported, 'does not have "key" of RATE_LIMIT in the settings'),
    ],
)
def test_wrong_limits_change_nothing(open_queue, redis_client, given, error, said):
    store = open_queue(RATE_LIMIT="3/h", CONCURRENCY=2)
    with pytest.raises(error, match=said):
        inspect.set_limits("emails", **given)
    assert not redis_client.exists(store.config.keys.control)
    with pytest.raises(InvalidArguments, match="There is no limit"):
        inspect.reset_limits("emails", limits=["speed"])


@pytest.mark.parametrize("options", [{}, {"ORDERED": True}, {"FAIR": True}, {"STORE": "rsmq"}])
def test_a_queue_without_a_limit_says_what_to_set(mq_settings, options):
    mq_settings(QUEUES={"emails": options})
    with pytest.raises(NotSupported, match="does not have RATE_LIMIT in the settings"):
        inspect.set_limits("emails", rate="10/s")


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"7", b'{"rate": 7}', b'{"rate": {}}', b'{"rate": {"most": -1}}', b'{"rate": {"most": 2}}'),
        *(b'{"rate": {"most": 5, "seconds": 0}}', b'{"rate": {"most": "x", "seconds": []}}', b"x" * 20_000),
    ],
)
def test_what_another_program_has_written_changes_nothing(open_queue, redis_client, text):
    store = open_queue(RATE_LIMIT="3/h")
    redis_client.hset(store.config.keys.control, "limits", text)
    publish(5)
    assert read_changes(text) == {}
    assert [take(store), take(store)] == [3, 0]
    assert plans.limits("emails", count=5).changes == {}
    inspect.set_limits("emails", rate="4/h")
    assert take(store) == 1


@pytest.mark.parametrize("text", ["10/s", "100/m", "5/10s", "1000/2h", "50000/d", "1/3d", "7/90s"])
def test_a_rate_is_written_as_it_is_read(text):
    assert str(Rate.parse(text)) == text
    change = LimitChange(limit="rate", value=text, who="ann", reason="“they” asked", since_ms=5)
    assert read_changes(b'{"rate": %b}' % change.encoded()) == {"rate": change}


def test_undoing_gives_back_what_was_before(open_queue):
    open_queue(RATE_LIMIT="3/h", CONCURRENCY=2)
    inspect.set_limits("emails", rate="10/h", who="ann")
    inspect.set_limits("emails", rate="5/h", concurrency=1, who="bob")
    (entry, _) = inspect.actions().rows
    assert entry.undo["before"] == {"rate": "10/h", "concurrency": "settings"}
    inspect.set_limits("emails", **entry.undo["before"], who="ann")
    assert [change.value for change in inspect.limit_changes("emails")] == ["10/h"]
