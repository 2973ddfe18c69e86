"""How the latest deliveries have ended: results that are noted one by one, and those of a batch."""

import mmap

import pytest

from mq_django.consumers.receipts import Receipt
from mq_django.consumers.result_ring import FAILED, HANDLED, RESULT, ResultRing

#: Bytes before the places.
BEFORE = 64
PLACES = 4


@pytest.fixture
def ring():
    """A ring with few places; what is around them stays as it is."""
    memory = mmap.mmap(-1, BEFORE + PLACES * RESULT.size + BEFORE)
    yield ResultRing(memory, BEFORE, PLACES)
    assert memory[:BEFORE] == memory[-BEFORE:] == bytes(BEFORE)


def packed(*entries):
    """Return results of deliveries of queue 7, as they are packed."""
    return b"".join(RESULT.pack(HANDLED, 0, 7, entry) for entry in entries)


def entries(ring):
    """Return the entries of the results."""
    return {receipt.entry for receipt in ring.read()}


def test_a_result_is_read_as_it_was_noted(ring):
    ring.add(FAILED, 7, 1, b"1-1")
    assert ring.read() == {Receipt(7, 1, b"1-1"): FAILED}


def test_the_results_of_a_batch_are_read_like_single_ones(ring):
    ring.add_all(packed(b"1-1", b"1-2"))
    assert ring.read() == {Receipt(7, 0, b"1-1"): HANDLED, Receipt(7, 0, b"1-2"): HANDLED}


def test_a_batch_that_reaches_the_last_place_goes_on_at_the_first(ring):
    for entry in (b"1-1", b"1-2", b"1-3"):
        ring.add(HANDLED, 7, 0, entry)
    ring.add_all(packed(b"2-1", b"2-2"))
    assert entries(ring) == {b"1-2", b"1-3", b"2-1", b"2-2"}


def test_single_results_are_noted_after_those_of_a_batch(ring):
    ring.add_all(packed(b"1-1", b"1-2", b"1-3"))
    ring.add(HANDLED, 7, 0, b"2-1")
    assert entries(ring) == {b"1-1", b"1-2", b"1-3", b"2-1"}


def test_of_a_batch_with_more_results_than_places_the_last_ones_are_kept(ring):
    ring.add_all(packed(*[b"1-%d" % number for number in range(1, 7)]))
    assert entries(ring) == {b"1-3", b"1-4", b"1-5", b"1-6"}
