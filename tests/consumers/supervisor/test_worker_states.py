"""What threads tell consumers reaches each of them, also one that is started afterwards."""

import math
import os
from types import SimpleNamespace

import pytest

from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.supervisor.heartbeat import Announcement
from mq_django.consumers.supervisor.worker_set import WorkerStates
from mq_django.consumers.supervisor.workers import WorkerOptions, WorkerProcess


@pytest.fixture
def states():
    found = WorkerStates(range(2), lambda child: {"pid": child.process.pid})
    yield found
    for child in found:
        found.remove(child)


@pytest.fixture
def start(states):
    """Add a consumer by its name."""
    terms = WorkerOptions(queues=["a", "b"], threads=1, grace=1.0)

    def add(name, *, backlog=""):
        process = SimpleNamespace(pid=os.getpid(), poll=lambda: 0)
        lifeline = os.open(os.devnull, os.O_RDONLY)
        state = SharedState.create(1, held=False)
        states.add(WorkerProcess(name, state, lifeline, process, terms, backlog=backlog, failed_starts=0))
        return state

    return add


def hold(states, moment):
    states.held(1, Announcement("s", {}, states.announced()), moment, lambda _: 0.0)


def test_a_pause_reaches_those_that_are_there_and_those_to_come(states, start):
    first = start("c1")
    states.pause(1, paused=True)
    second = start("c2")

    assert [(state.paused(0), state.paused(1)) for state in (first, second)] == [(False, True)] * 2


def test_those_that_were_announced_hold_what_they_have(states, start):
    first = start("c1")
    announcement = Announcement("s", {}, states.announced())
    second = start("c2")
    states.held(1, announcement, 5.0, lambda _: 0.0)

    assert (first.held_until(1), second.held_until(1)) == (5.0, 0.0)
    assert [child.announced for child in states] == [{1}, set()]


def test_those_that_were_announced_hold_what_they_have_read_since(states, start):
    state = start("c1")
    states.held(1, Announcement("s", {}, states.announced()), math.inf, {"c1": 3.0}.get)

    assert [state.holds(1, read_at) for read_at in (0.0, 2.9, 3.0)] == [True, False, True]


def test_one_whose_messages_are_being_handed_back_holds_nothing(states, start):
    state = start("c1")
    states.held(1, Announcement("s", {}, states.announced()), 5.0, lambda _: math.inf)

    assert state.held_until(1) == 0.0


def test_one_that_is_suspended_holds_nothing_until_it_responds(states, start):
    state = start("c1")
    hold(states, 5.0)
    (child,) = states
    states.suspend(child, 1.0)
    hold(states, 6.0)

    assert state.held_until(1) == 0.0


def test_those_that_were_evicted_are_not_announced(states, start):
    start("c1")
    states.evict()
    start("c2")

    assert states.announced().keys() == states.activity().keys() == {"c2"}
    assert states.running().keys() == {"c1", "c2"}


def test_a_backlog_is_announced_beside_its_quarantine(states, start):
    start("c1", backlog="c1-backlog")

    announced = states.announced()
    assert announced["c1-backlog"]["pid"] == announced["c1"]["pid"]
    assert announced["c1-backlog"]["threads"] == 0


def test_what_people_ask_is_taken_once(states):
    states.ask({"c1": "quiet"})
    states.ask({"c2": "stop"})

    assert states.take_asked() == {"c1": "quiet", "c2": "stop"}
    assert states.take_asked() == {}
