"""What two processes see of the same memory."""

import math
import mmap
import os

import pytest

from mq_django.consumers.shared_state import FAILED, HANDLED, RING, Board, Receipt, on_board


@pytest.fixture
def board():
    found = Board.create(4)
    yield found
    found.close()


@pytest.fixture
def other_side(board):
    """The same memory as the other process has it."""
    found = Board(os.dup(board.fd), 4)
    yield found
    found.close()


def test_the_other_side_sees_what_runs(board, other_side):
    board.run(2, 7, 1, b"18446744073709551615-18446744073709551615", 10.0, 20.0)
    board.run(0, 0, 0, b"1-1", 11.0)
    slow, fast = sorted(other_side.running(), key=lambda item: item.since)
    assert slow == ((7, 1, b"18446744073709551615-18446744073709551615"), 10.0, 20.0)
    assert fast == ((0, 0, b"1-1"), 11.0, math.inf)
    board.idle(2)
    assert other_side.running() == [fast]


def test_what_is_half_written_does_not_run(board, other_side, monkeypatch):
    """A process may be stopped or killed while it writes down what it begins."""

    class Torn(mmap.mmap):
        def __setitem__(self, place, value):
            raise InterruptedError

    memory, board._memory = board._memory, Torn(os.dup(board.fd), 0)
    with pytest.raises(InterruptedError):
        board.run(0, 0, 0, b"1-1", 10.0, 20.0)
    board._memory.close()
    board._memory = memory
    assert other_side.running() == []
    assert other_side.late(30.0) == set()


def test_only_what_is_past_its_deadline_is_late(board, other_side):
    board.run(0, 0, 0, b"1-1", 10.0, 20.0)
    board.run(1, 0, 0, b"1-2", 10.0)
    assert other_side.late(20.0) == set()
    assert other_side.late(20.1) == {Receipt(0, 0, b"1-1")}


def test_the_latest_results_stay(board, other_side):
    for number in range(RING + 10):
        board.ended(HANDLED if number % 2 else FAILED, 0, 0, b"1-%d" % number)
    results = other_side.results()
    assert len(results) == RING
    assert results[Receipt(0, 0, b"1-%d" % (RING + 9))] == HANDLED
    assert results[Receipt(0, 0, b"1-%d" % (RING + 8))] == FAILED
    assert Receipt(0, 0, b"1-9") not in results


def test_what_was_handled_is_told_by_queue(board, other_side):
    board.ended(HANDLED, 3, 1, b"1-1")
    board.ended(FAILED, 3, 0, b"1-2")
    board.ended(HANDLED, 4, 0, b"1-3")
    assert other_side.handled(3) == {(1, b"1-1")}


@pytest.mark.parametrize("ending", [b":1", b":2"])
def test_what_is_too_long_for_the_board_is_known_by_its_digest(board, other_side, ending):
    """Programs of others may give an RSMQ message an id of any length."""
    entry = b"a" * 100 + ending
    known = Receipt.of(2, 0, entry)
    board.run(0, 2, 0, entry, 10.0)
    assert [item.receipt for item in other_side.running()] == [known]
    board.ended(HANDLED, 2, 0, entry)
    assert other_side.results() == {known: HANDLED}
    assert other_side.handled(2) == {(0, on_board(entry))}
    assert known.is_digest
    assert known not in {Receipt.of(2, 0, b"a" * 100 + b":3"), Receipt.of(2, 0, b"a" * 44)}
    assert Receipt.of(0, 0, b"1-1") == Receipt(0, 0, b"1-1")
    assert not Receipt.of(0, 0, b"9" * 44).is_digest


def test_orders_reach_the_consumer(board, other_side):
    other_side.set_paused(3, True)
    other_side.set_unhandled(255, True)
    other_side.set_ward("host-1-abc")
    other_side.stop_fast()
    assert (board.paused(3), board.paused(2), board.unhandled(255)) == (True, False, True)
    assert board.ward() == "host-1-abc"
    assert board.hurried()
    other_side.set_ward("")
    assert board.ward() == ""


def test_wishes_reach_the_supervisor(board, other_side):
    assert not other_side.leaving()
    board.leave()
    assert other_side.leaving()
    board.want_ward()
    assert other_side.wants_ward()
    assert not other_side.wants_ward()


def test_ticks_move(board, other_side):
    before = other_side.ticks()
    board.tick()
    assert other_side.ticks() == before + 1


def test_a_consumer_holds_nothing_before_somebody_vouches_for_it(board):
    assert board.held_until(0) == board.held_until(255) == math.inf
    child = Board.create(1, held=False)
    assert child.held_until(0) == 0.0
    child.hold_until(255, 12.5)
    assert (child.held_until(255), child.held_until(254)) == (12.5, 0.0)
    child.close()


def test_parts_do_not_overlap(board, other_side):
    """Fill every part from both sides, and read all of it back."""
    for queue in range(256):
        other_side.hold_until(queue, 1.0 + queue)
        other_side.set_paused(queue, True)
        other_side.set_unhandled(queue, True)
    other_side.set_ward("w" * 128)
    for lane in range(4):
        board.run(lane, lane, 1, b"9" * 44, 5.0, 6.0)
    for number in range(RING):
        board.ended(HANDLED, 255, 1, b"8" * 40 + b"%04d" % number)
    assert [board.held_until(queue) for queue in range(256)] == [1.0 + queue for queue in range(256)]
    assert all(board.paused(queue) and board.unhandled(queue) for queue in range(256))
    assert board.ward() == "w" * 128
    assert len(other_side.running()) == 4
    assert len(other_side.results()) == RING
    assert not other_side.leaving()


def test_the_memory_outlives_who_made_it(board):
    board.run(0, 0, 0, b"1-1", 1.0)
    copy = os.dup(board.fd)
    other = Board(copy, 4)
    assert len(other.running()) == 1
    other.close()
    with mmap.mmap(board.fd, 0) as memory:
        assert len(memory) > 0
