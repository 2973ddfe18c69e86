"""What two processes see of the same memory."""

import math
import mmap
import os
import time

import pytest

from mq_django.consumers.shared_state import FAILED, HANDLED, RING, Receipt, SharedState, stored_entry


@pytest.fixture
def shared_state():
    found = SharedState.create(4)
    yield found
    found.close()


@pytest.fixture
def other_side(shared_state):
    """The same memory as the other process has it."""
    found = SharedState(os.dup(shared_state.fd), 4)
    yield found
    found.close()


def test_the_other_side_sees_what_runs(shared_state, other_side):
    shared_state.run(2, 7, 1, b"18446744073709551615-18446744073709551615", 10.0, 20.0)
    shared_state.run(0, 0, 0, b"1-1", 11.0)
    slow, fast = sorted(other_side.running(), key=lambda item: item.since)
    assert slow == ((7, 1, b"18446744073709551615-18446744073709551615"), 10.0, 20.0, 2)
    assert fast == ((0, 0, b"1-1"), 11.0, math.inf, 0)
    assert other_side.late(20.0) == set()
    assert other_side.late(20.1) == {slow.receipt}
    shared_state.idle(2)
    assert other_side.running() == [fast]


def test_what_is_half_written_does_not_run(shared_state, other_side, monkeypatch):
    """A process may be stopped or killed while it writes down what it begins."""

    class Torn(mmap.mmap):
        def __setitem__(self, place, value):
            raise InterruptedError

    memory, shared_state._memory = shared_state._memory, Torn(os.dup(shared_state.fd), 0)
    with pytest.raises(InterruptedError):
        shared_state.run(0, 0, 0, b"1-1", 10.0, 20.0)
    shared_state._memory.close()
    shared_state._memory = memory
    assert other_side.running() == []
    assert other_side.late(30.0) == set()


def test_what_was_handled_is_told_by_queue(shared_state, other_side):
    for what, queue, stream, entry in ((HANDLED, 3, 1, b"1-1"), (FAILED, 3, 0, b"1-2"), (HANDLED, 4, 0, b"1-3")):
        shared_state.ended(what, queue, stream, entry)
    assert other_side.handled(3) == {(1, b"1-1")}


def test_what_is_too_long_for_the_shared_state_is_known_by_its_digest(shared_state, other_side):
    """Programs of others may give an RSMQ message an id of any length."""
    entry = b"a" * 100 + b":1"
    known = Receipt.of(2, 0, entry)
    shared_state.run(0, 2, 0, entry, 10.0)
    assert [item.receipt for item in other_side.running()] == [known]
    shared_state.ended(HANDLED, 2, 0, entry)
    assert other_side.results() == {known: HANDLED}
    assert other_side.handled(2) == {(0, stored_entry(entry))}
    assert known.is_digest
    assert known not in {Receipt.of(2, 0, b"a" * 100 + b":3"), Receipt.of(2, 0, b"a" * 44)}
    assert Receipt.of(0, 0, b"1-1") == Receipt(0, 0, b"1-1")
    assert not Receipt.of(0, 0, b"9" * 44).is_digest


def test_orders_reach_the_consumer_and_wishes_the_supervisor(shared_state, other_side):
    other_side.set_paused(3, True)
    other_side.set_quarantine("host-1-abc")
    other_side.stop_fast()
    assert (shared_state.paused(3), shared_state.paused(2)) == (True, False)
    assert shared_state.quarantine() == "host-1-abc"
    assert shared_state.is_stopping_fast()
    other_side.set_quarantine("")
    assert shared_state.quarantine() == ""
    before = other_side.ticks()
    assert not other_side.leaving()
    shared_state.leave()
    shared_state.want_quarantine()
    shared_state.tick()
    assert (other_side.leaving(), other_side.wants_quarantine(), other_side.ticks()) == (True, True, before + 1)
    assert not other_side.wants_quarantine()


def test_a_consumer_holds_nothing_before_it_is_announced(shared_state):
    assert shared_state.held_until(0) == shared_state.held_until(255) == math.inf
    child = SharedState.create(1, held=False)
    assert child.held_until(0) == 0.0
    child.hold_until(255, 12.5)
    assert (child.held_until(255), child.held_until(254)) == (12.5, 0.0)
    child.close()


def test_what_was_read_before_the_consumer_lost_its_hold_is_not_held(shared_state, other_side):
    other_side.hold_until(0, math.inf, since=10.0)
    assert [shared_state.holds(0, read_at) for read_at in (9.9, 10.0, 10.1)] == [False, True, True]
    # The store gives it to nobody by time.
    assert shared_state.holds(0, 0.0)
    other_side.hold_until(0, time.monotonic() - 0.001)
    assert not shared_state.holds(0, 0.0)


def test_parts_do_not_overlap(shared_state, other_side):
    """Fill every part from both sides, and read all of it back."""
    for queue in range(256):
        other_side.hold_until(queue, 1e12 + queue, since=10.5 + queue)
        other_side.set_paused(queue, True)
        other_side.set_unhandled(queue, True)
    other_side.set_quarantine("w" * 128)
    for slot in range(4):
        shared_state.run(slot, slot, 1, b"9" * 44, 5.0, 6.0)
    for number in range(RING):
        shared_state.ended(HANDLED, 255, 1, b"8" * 40 + b"%04d" % number)
    assert [shared_state.held_until(queue) for queue in range(256)] == [1e12 + queue for queue in range(256)]
    assert all(shared_state.holds(queue, 10.5 + queue) for queue in range(256))
    assert not any(shared_state.holds(queue, 10.4 + queue) for queue in range(256))
    assert all(shared_state.paused(queue) and shared_state.unhandled(queue) for queue in range(256))
    assert shared_state.quarantine() == "w" * 128
    assert len(other_side.running()) == 4
    assert len(other_side.results()) == RING
    assert not other_side.leaving()


def test_the_memory_outlives_who_made_it(shared_state):
    shared_state.run(0, 0, 0, b"1-1", 1.0)
    copy = os.dup(shared_state.fd)
    other = SharedState(copy, 4)
    assert len(other.running()) == 1
    other.close()
    with mmap.mmap(shared_state.fd, 0) as memory:
        assert len(memory) > 0


@pytest.fixture
def with_batches():
    """The memory of a consumer with room for two calls of three messages, and as the other process has it."""
    found = SharedState.create(4, batches=2, batch=3)
    other = SharedState(os.dup(found.fd), 4)
    yield found, other
    other.close()
    found.close()


def test_the_other_side_sees_all_messages_of_a_batch(with_batches):
    mine, other = with_batches
    mine.run(0, 0, 0, b"1-1", 9.0)
    mine.run_batch(1, 1, [(7, 0, b"1-2"), (7, 1, b"1-3"), (8, 0, b"x" * 100)], 10.0, 20.0)
    receipts = [Receipt(7, 0, b"1-2"), Receipt(7, 1, b"1-3"), Receipt(8, 0, stored_entry(b"x" * 100))]
    assert [item.receipt for item in other.running()] == [Receipt(0, 0, b"1-1"), *receipts]
    assert other.late(20.1) == other.together() == set(receipts)
    mine.run_batch(1, 1, [(7, 0, b"1-2"), (7, 1, b"1-3")], 11.0, 21.0)
    assert other.together() == set(receipts[:2])
    # Each batch has rows of its own.
    mine.run_batch(2, 0, [(0, 0, b"2-1"), (0, 0, b"2-2"), (0, 0, b"2-3")], 10.0, 20.0)
    assert [item.receipt.entry for item in other.running()][1:] == [b"1-2", b"1-3", b"2-1", b"2-2", b"2-3"]
    mine.idle(2)
    mine.run(1, 0, 0, b"1-9", 12.0)
    assert other.together() == set()
    assert [item.receipt.entry for item in other.running()] == [b"1-1", b"1-9"]
    mine.idle(1)
    assert [item.receipt.entry for item in other.running()] == [b"1-1"]


def test_the_results_of_all_messages_of_a_batch_have_room_and_are_noted_together(with_batches):
    mine, other = with_batches
    for number in range(RING + 6):
        mine.ended(HANDLED, 0, 0, b"1-%d" % number)
    assert len(other.results()) == RING + 6
    mine.run_batch(1, 1, [(7, 0, b"1-2"), (7, 1, b"1-3"), (8, 0, b"x" * 100)], 10.0, 20.0)
    mine.batch_handled(1, 3)
    receipts = [Receipt(7, 0, b"1-2"), Receipt(7, 1, b"1-3"), Receipt(8, 0, stored_entry(b"x" * 100))]
    found = {receipt: how for receipt, how in other.results().items() if receipt.queue}
    assert found == dict.fromkeys(receipts, HANDLED)


def test_what_is_no_row_of_batches_is_not_read(shared_state, with_batches):
    mine, other = with_batches
    mine.run_batch(0, 0, [(0, 0, b"1-1"), (0, 0, b"1-2")], 10.0, 20.0)
    assert other.batches.read(2, 1) == other.batches.read(0, 4) == []
    # Without batches a list has one message.
    assert (shared_state.largest_batch(), mine.largest_batch()) == (1, 3)
