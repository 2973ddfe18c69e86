"""What the probes of a runconsumer find, by what its main loop and its heartbeats report."""

import json

import pytest

from mq_django.consumers.service import STUCK
from mq_django.consumers.supervisor import health
from mq_django.consumers.supervisor.health import SHORTEST, Health, MainLoop


class Clock:
    def __init__(self):
        self.now = 100.0
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)


class Beat:
    """A heartbeat that is answered when a test says so."""

    def __init__(self, name="heartbeat", answered=None):
        self.name, self.answered, self.interval = name, answered, 0.5


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(health, "time", found)
    return found


@pytest.fixture
def site(clock):
    """The health of a supervisor of two consumers, and a function that reports a round of its main loop."""
    found, beat = Health(), Beat()
    found.watch([beat])

    def report(ready, *, processes=2, stuck=(), stopping=False, answered=True):
        if answered:
            beat.answered = clock.now
        found.report(MainLoop(clock.now, ready, processes, stuck, stopping))

    return found, report


def failing(checks):
    return {check.name: check.sentence for check in checks if not check.ok}


def state(found):
    return tuple(not failing(probe()) for probe in (found.live, found.ready, found.startup))


def test_before_its_main_loop_runs_it_is_alive_and_not_ready(clock):
    assert state(Health()) == (True, False, False)


def test_what_its_main_loop_reports_decides_whether_it_is_alive_ready_and_has_started(site, clock, subtests):
    """One ready consumer is enough once all have started, also if nobody has asked at that time."""
    found, report = site
    for seconds, ready, options, states, said in [
        (0, 2, {"answered": False}, (True, False, False), {"redis": "Redis has not answered yet."}),
        (0, 1, {}, (True, False, False), {"consumers": "1 of 2 consumers are ready."}),
        (0, 2, {}, None, None),
        (0, 1, {}, (True, True, True), {}),
        (0, 0, {}, (True, False, True), {"consumers": "0 of 2 consumers are ready."}),
        (0, 0, {"processes": 0}, (True, True, True), {}),
        (0, 2, {"stopping": True}, (True, False, True), {"running": "It is shutting down."}),
        (
            SHORTEST + 1,
            2,
            {"answered": False},
            (True, False, True),
            {"redis": "Redis has not answered a heartbeat for 6.0 s."},
        ),
    ]:
        clock.now += seconds
        report(ready, **options)
        with subtests.test(ready=ready, options=options):
            assert states is None or (state(found), failing(found.ready())) == (states, said)


def test_a_supervisor_without_consumers_is_ready_when_redis_has_answered(site):
    found, report = site
    report(0, processes=0)
    assert state(found) == (True, True, True)


def test_of_several_servers_one_is_enough_and_the_others_are_named_by_their_queues(site, clock):
    found, report = site
    found.watch([Beat(answered=clock.now), Beat("heartbeat (orders, emails)")])
    report(2)
    assert state(found) == (True, True, True)
    (redis,) = [check for check in found.ready() if check.name == "redis"]
    assert redis.sentence == "Redis (orders, emails) has not answered yet."


def test_a_stuck_service_is_a_reason_to_end_the_process(site):
    found, report = site
    report(2, stuck=["promoter is stuck for 31 s"])
    assert failing(found.live()) == {"services": "promoter is stuck for 31 s."}


def test_a_stuck_main_loop_is_found_after_a_second_look(site, clock):
    found, report = site
    report(2)
    clock.now += STUCK + 1
    assert failing(found.live()) == {"main loop": "The main loop is stuck for 31 s."}
    assert len(clock.slept) == 1


def test_a_process_that_was_stopped_is_alive_when_it_goes_on(site, clock, monkeypatch):
    found, report = site
    report(2)
    clock.now += 3600
    monkeypatch.setattr(clock, "sleep", lambda _: report(2))
    assert state(found)[0] is True


def test_the_answer_has_each_check_and_a_status(site):
    found, report = site
    report(1)
    routes = found.routes()
    assert set(routes) == {"/live", "/ready", "/startup"}
    assert (routes["/live"]().status, routes["/ready"]().status) == (200, 503)
    body = json.loads(routes["/ready"]().body)
    assert body["status"] == "failing"
    assert {"name": "consumers", "ok": False, "sentence": "1 of 2 consumers are ready."} in body["checks"]
