"""What heartbeats tell of the slots of a consumer."""

import time

import pytest

from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.supervisor.worker_set import slots_in_use, worker_activity
from mq_django.stores.members import MAX_RUNNING

THREADS, COROUTINES = 2, 3


@pytest.fixture
def state():
    found = SharedState.create(THREADS + COROUTINES)
    yield found
    found.close()


def told(state):
    return slots_in_use(state, THREADS, ["payments", "imports"])


def test_it_counts_threads_and_coroutines_apart(state):
    assert told(state) == {"busy": [0, 0]}
    state.run(0, 1, 0, b"1-1", time.monotonic())
    state.run(3, 0, 0, b"2-1", time.monotonic())
    state.run(4, 0, 0, b"2-2", time.monotonic())

    assert told(state) == {"busy": [1, 2]}


def test_it_tells_what_has_run_longest_when_all_of_one_kind_are_busy(state):
    now = time.monotonic()
    state.run(0, 0, 0, b"1-1", now - 10)
    state.run(1, 1, 1, b"2-1", now - 40)

    (queue, stream, entry, longest, shortest) = told(state)["full"]["threads"]

    assert (queue, stream, entry) == ("imports", 1, "2-1")
    assert longest >= 40_000
    assert shortest >= 10_000
    assert longest - shortest == pytest.approx(30_000, abs=1)
    state.idle(0)
    assert told(state) == {"busy": [1, 0]}


def test_it_tells_the_counts_of_each_queue_and_how_long_these_have_taken(state):
    state.count(1, 5, 2, 7_300_000)

    found = worker_activity(state, range(2))

    assert [(each["handled"], each["failed"], each["took_ms"]) for each in found] == [(0, 0, 0), (5, 2, 7300)]


def test_all_places_for_coroutines_are_busy(state):
    for slot in range(THREADS, THREADS + COROUTINES):
        state.run(slot, 1, 0, b"3-%d" % slot, time.monotonic())

    assert told(state)["full"].keys() == {"coroutines"}


def test_it_lists_the_running_messages_of_each_queue_and_counts_them_if_there_are_more():
    state = SharedState.create(MAX_RUNNING + 2)
    for slot in range(MAX_RUNNING):
        state.run(slot, 0, 0, b"1-%d" % slot, time.monotonic() - slot)
    state.run(MAX_RUNNING, 1, 0, b"2-1", time.monotonic())
    state.idle(0)

    emails, imports, others = worker_activity(state, range(3))

    assert len(emails["running"]) == MAX_RUNNING - 1
    assert [entry for _, entry, _ in imports["running"]] == ["2-1"]
    assert [activity.get("runs") for activity in (emails, imports, others)] == [None, None, None]
    for slot, count in ((0, MAX_RUNNING), (MAX_RUNNING + 1, MAX_RUNNING + 1)):
        state.run(slot, 0, 0, b"1-99", time.monotonic())
        emails, *_ = worker_activity(state, range(3))
        assert (len(emails["running"]), emails["runs"]) == (MAX_RUNNING, count)
    state.close()
