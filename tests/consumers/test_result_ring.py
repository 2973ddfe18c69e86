"""How the latest deliveries have ended: results that are noted one by one, and those of a batch."""

import mmap

import pytest

from mq_django.consumers.shared_state import FAILED, HANDLED, RESULT, Receipt, ResultRing

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


def test_a_result_is_read_as_it_was_noted(ring):
    ring.add(FAILED, 7, 1, b"1-1")
    assert ring.read() == {Receipt(7, 1, b"1-1"): FAILED}


@pytest.mark.parametrize(
    ("before", "batch", "after", "read"),
    [
        (b"", b"12", b"", b"12"),
        # A batch that reaches the last place goes on at the first.
        (b"123", b"45", b"", b"2345"),
        (b"", b"123", b"4", b"1234"),
        (b"1", b"234567", b"", b"4567"),
    ],
)
def test_the_latest_results_are_kept_of_batches_and_single_ones(ring, before, batch, after, read):
    for number in before:
        ring.add(HANDLED, 7, 0, b"1-%c" % number)
    ring.add_all(packed(*[b"1-%c" % number for number in batch]))
    for number in after:
        ring.add(HANDLED, 7, 0, b"1-%c" % number)
    assert ring.read() == {Receipt(7, 0, b"1-%c" % number): HANDLED for number in read}
