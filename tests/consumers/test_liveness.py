"""Loops that have ended or stand still are noticed; a process that was stopped itself suspects nobody."""

from mq_django.consumers import service
from mq_django.consumers.service import MAX_GAP, Liveness


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


def watch(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(service, "time", clock)
    return clock, Liveness()


def test_a_loop_that_turns_is_well(monkeypatch):
    clock, watcher = watch(monkeypatch)
    for turn in range(100):
        clock.now += 1.0
        assert watcher.check({"loop": turn}, limit=5.0) == []


def test_a_loop_that_stands_still_is_named_after_its_limit(monkeypatch):
    clock, watcher = watch(monkeypatch)
    watcher.check({"loop": 1}, limit=5.0)
    for _ in range(5):
        clock.now += 1.0
        assert watcher.check({"loop": 1}, limit=5.0) == []
    clock.now += 1.0
    assert watcher.check({"loop": 1}, limit=5.0) == ["loop is stuck for 6 s"]


def test_a_loop_that_has_ended_is_named_at_once(monkeypatch):
    _, watcher = watch(monkeypatch)
    assert watcher.check({"loop": None, "other": 1}, limit=5.0) == ["loop has ended"]


def test_the_time_in_which_this_process_did_not_run_hardly_counts(monkeypatch):
    clock, watcher = watch(monkeypatch)
    watcher.check({"loop": 1}, limit=MAX_GAP)
    clock.now += 1000.0
    assert watcher.check({"loop": 1}, limit=MAX_GAP) == []


def test_what_is_asked_again_after_a_rest_begins_anew(monkeypatch):
    clock, watcher = watch(monkeypatch)
    watcher.check({"loop": 1}, limit=1.5)
    clock.now += 1.0
    watcher.check({"loop": 1}, limit=1.5)
    watcher.check({}, limit=1.5)
    clock.now += 1.0
    assert watcher.check({"loop": 1}, limit=1.5) == []
