"""Which acks are remembered, and for how long."""

import pytest

from mq_django.consumers.worker import settler
from mq_django.consumers.worker.settler import LatestAcks
from mq_django.core.messages import ACK, Bury, Delivery, Message, Retry, Undecodable
from mq_django.stores.base import Settlement


def settlement(number, outcome=ACK):
    return Settlement(Delivery(Message(f"m{number}", "n", None, "q"), 0, b"%d-1" % number, b"null"), outcome)


@pytest.fixture
def acks():
    found = LatestAcks()

    def add(*batch, known=None):
        receipts = [(each.delivery.stream, each.delivery.entry) for each in batch]
        outcomes = [each.outcome for each in batch]
        found.add(batch, receipts, [None] * len(batch) if known is None else known, outcomes)

    found.note = add
    return found


def test_those_that_were_acked(acks):
    acks.note(settlement(1), settlement(2, Retry()), settlement(3))
    assert acks.ids() == {(0, b"1-1"): "m1", (0, b"3-1"): "m3"}


def test_an_id_that_is_known_is_not_asked_for(acks):
    acks.note(settlement(1), settlement(2), known=["known", None])
    assert acks.ids() == {(0, b"1-1"): "known", (0, b"2-1"): "m2"}


def test_an_entry_that_is_no_message(acks):
    acks.note(Settlement(Undecodable(1, b"1-1", [], "deleted"), ACK))
    assert acks.ids() == {(1, b"1-1"): "1-1"}


def test_at_least_the_latest_stay(acks, monkeypatch):
    monkeypatch.setattr(settler, "ACKED", 5)
    for first in range(0, 20, 2):
        acks.note(settlement(first), settlement(first + 1))
    assert list(acks.ids().values()) == ["m14", "m15", "m16", "m17", "m18", "m19"]


def test_a_trip_without_acks_takes_no_place(acks):
    for number in range(10):
        acks.note(settlement(number, Bury("no")))
    assert acks._pipelines.maxlen is None
    assert not acks._pipelines
