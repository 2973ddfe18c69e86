"""Messages of batches that are decoded and started while Redis works on the next fetch."""

import time

import pytest

from mq_django import handler, queues
from mq_django.errors import ConnectionLost
from mq_django.stores.sources import FULL
from tests.consumers.rig import Rig

BATCH = 100


@pytest.fixture
def rig(handlers):
    handler("default", "b", batch=BATCH)(lambda messages: None)
    found = Rig(threads=3, batch=BATCH)
    found.store.create_groups()
    found.taken = []
    yield found
    found.close()


@pytest.fixture
def fill():
    def publish(count):
        queues["default"].publish_many([("b", number) for number in range(count)])

    return publish


def waits(rig):
    """Return the data of the messages that wait for their call."""
    return [member[0].message.data for found in rig.batches._collectors.values() for member in found._waiting]


def held(rig):
    return len(rig.store.held_by("me", limit=5000))


@pytest.fixture
def ahead(rig, fill, monkeypatch):
    """A rig that has started 100 messages, and has taken 100 others."""
    monkeypatch.setattr(rig.fetcher._room, "messages", lambda *_, **__: BATCH)
    fill(4 * BATCH)
    rig.fetcher.run_once()  # by the script
    rig.fetcher.run_once()  # by a plain read
    assert BATCH >= FULL
    assert (len(waits(rig)), rig.reader.ahead, held(rig)) == (BATCH, BATCH, 2 * BATCH)
    return rig


def test_they_start_during_the_next_fetch(ahead):
    sent = []
    send = ahead.session.send
    ahead.session.send = lambda commands: (sent.append(len(waits(ahead))), send(commands))
    receive = ahead.session.receive
    seen = []
    ahead.session.receive = lambda: (seen.append(len(waits(ahead))), receive())[1]
    ahead.fetcher.run_once()
    assert sent == [BATCH]
    assert set(seen) == {2 * BATCH}
    assert waits(ahead) == list(range(2 * BATCH))
    assert (ahead.reader.ahead, len(ahead.settler.in_hand)) == (BATCH, 2 * BATCH)


def test_all_start_once_and_in_their_order(ahead):
    for _ in range(5):
        ahead.fetcher.run_once()
    assert waits(ahead) == list(range(4 * BATCH))
    assert ahead.reader.ahead == 0


@pytest.mark.parametrize("why", ["paused", "no room", "rest"])
def test_without_a_next_fetch_they_start_at_once(ahead, monkeypatch, why):
    if why == "paused":
        ahead.may_fetch = False
    elif why == "no room":
        monkeypatch.setattr(ahead.fetcher._room, "messages", lambda *_, **__: 0)
    else:
        monkeypatch.setattr(ahead.store, "rest", lambda: 1.0)
    assert ahead.fetcher.run_once() == 0.0
    assert (len(waits(ahead)), ahead.reader.ahead, held(ahead)) == (2 * BATCH, 0, 2 * BATCH)


def test_room_is_asked_for_with_them(rig, fill):
    fill(10 * BATCH)
    for _ in range(10):
        rig.fetcher.run_once()
        in_hand = len(rig.settler.in_hand) + rig.reader.ahead
        assert in_hand <= 4 * BATCH, "more than the shared state has room for"
    assert rig.reader.ahead == 0


def test_they_start_if_the_next_fetch_fails(ahead, monkeypatch):
    def fail():
        ahead.session.close()
        raise ConnectionLost("reset")

    monkeypatch.setattr(ahead.session, "receive", fail)
    with pytest.raises(ConnectionLost):
        ahead.fetcher.run_once()
    monkeypatch.undo()
    assert (waits(ahead), ahead.reader.ahead) == (list(range(2 * BATCH)), 0)
    monkeypatch.setattr(ahead.fetcher._room, "messages", lambda *_, **__: BATCH)
    ahead.fetcher.recover(ConnectionLost("reset"))
    ahead.fetcher.run_once()
    # Those whose reply was lost.
    assert waits(ahead) == list(range(3 * BATCH))


def test_they_start_if_nothing_can_be_sent(ahead, monkeypatch):
    def fail(commands):
        raise ConnectionLost("reset")

    monkeypatch.setattr(ahead.session, "send", fail)
    with pytest.raises(ConnectionLost):
        ahead.fetcher.run_once()
    assert (waits(ahead), ahead.reader.ahead) == (list(range(2 * BATCH)), 0)


def test_they_start_before_a_check_for_lost_replies(ahead):
    ahead.fetcher.recover(ConnectionLost("reset"))
    ahead.fetcher.run_once()
    assert (len(waits(ahead)), ahead.reader.ahead) == (2 * BATCH, 0)
    ahead.fetcher.run_once()
    assert waits(ahead) == list(range(2 * BATCH))


def test_an_error_of_their_start_leaves_no_reply_unread(ahead, monkeypatch):
    def fail(taken):
        raise SystemExit

    monkeypatch.setattr(ahead.dispatcher, "dispatch", fail)
    with pytest.raises(SystemExit):
        ahead.fetcher.run_once()
    monkeypatch.undo()
    assert ahead.session.trip([("PING",)]) == [b"PONG"]
    ahead.fetcher.recover(RuntimeError("SystemExit"))
    ahead.fetcher.run_once()
    assert sorted(waits(ahead)) == list(range(3 * BATCH))


def test_they_were_read_when_they_were_read(ahead):
    """A consumer that was suspended meanwhile does not hold them any more."""
    before = time.monotonic()
    ahead.fetcher.run_once()
    members = [member for found in ahead.batches._collectors.values() for member in found._waiting]
    assert all(delivery.read_at <= before for delivery, _ in members)


def test_handlers_of_single_messages_get_theirs_at_once(rig, fill, monkeypatch):
    monkeypatch.setattr(rig.fetcher._room, "is_for_batches", lambda: False)
    fill(4 * BATCH)
    for times in range(1, 3):
        rig.fetcher.run_once()
        assert len(waits(rig)) == held(rig)
        assert rig.reader.ahead == 0, times
