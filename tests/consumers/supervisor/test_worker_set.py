"""Which processes a supervisor starts, asks to stop and kills, and when: with processes that do nothing."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from mq_django.consumers.shared_state import OVERTIME, SharedState
from mq_django.consumers.supervisor import worker_set, workers
from mq_django.consumers.supervisor.launcher import Launcher
from mq_django.consumers.supervisor.worker_set import REFUSED_PAUSE, SUSPEND_AGAIN, WorkerSet, WorkerStates
from mq_django.consumers.supervisor.workers import (
    FIRST_PAUSE,
    LAST_STEPS,
    START,
    STARTED,
    STILL,
    SUSPEND_AFTER,
    WorkerOptions,
    WorkerProcess,
    spawn,
)
from mq_django.consumers.worker.dispatcher import backlog_of


class Process:
    """A process as its supervisor sees it."""

    pid = os.getpid()

    def __init__(self):
        self.code = None
        self.asked = 0

    def poll(self):
        return self.code

    def terminate(self):
        self.asked += 1

    def kill(self):
        self.code = -9


class Site:
    """A supervisor's processes, a clock, and what it was told about them."""

    def __init__(self, clock, *, processes, **options):
        self.clock = clock
        self.told = []
        self.refused = False
        options = WorkerOptions(queues=["a", "b"], threads=2, grace=5.0, **options)
        self.states = WorkerStates(range(2), lambda worker: {"pid": worker.process.pid})
        self.launcher = Launcher(None)
        self.workers = WorkerSet(
            "s",
            options,
            self.states,
            self.launcher,
            processes=processes,
            on_exit=lambda consumer, evidence: self.told.append(("exit", consumer, evidence)),
            on_unresponsive=lambda consumer, _: self.told.append(("unresponsive", consumer, None)),
            on_late=lambda consumer, receipts: self.told.append(("late", consumer, receipts)),
        )

    def spawn(self, consumer, supervisor, options, launcher, *, backlog="", failed_starts=0):
        if self.refused:
            raise OSError("no memory")
        lifeline = os.open(os.devnull, os.O_RDONLY)
        state = SharedState.create(2, held=False)
        return WorkerProcess(
            consumer, state, lifeline, Process(), options, backlog=backlog, failed_starts=failed_starts
        )

    def check(self, seconds=0.0):
        """Let some time pass, look, and return the processes."""
        self.clock.now += seconds
        self.workers.check(self.clock.now)
        return list(self.states)

    def running(self):
        """Return the processes when all of them work."""
        found = self.check()
        for worker in found:
            begin_work(worker)
        return found

    def still(self, seconds, *ticking):
        """Look again and again for some time, in which only some processes show that they run."""
        for _ in range(round(seconds / 0.2)):
            for worker in ticking:
                worker.shared_state.tick()
            self.check(0.2)


def begin_work(worker):
    """Let a process have started, and be announced."""
    for _ in range(STARTED):
        worker.shared_state.tick()
    worker.announced.add(0)


@pytest.fixture
def begin(monkeypatch):
    sites = []
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(workers, "time", clock)
    monkeypatch.setattr(workers, "time", clock)

    def begin(*, processes=1, **options):
        site = Site(clock, processes=processes, **options)
        monkeypatch.setattr(worker_set, "spawn", site.spawn)
        sites.append(site)
        return site

    yield begin
    for site in sites:
        for worker in site.states:
            site.states.remove(worker)


def test_one_that_has_ended_is_replaced_at_once_and_what_it_leaves_is_reported(begin):
    site = begin(processes=2)
    for code, may_receive in ((-9, True), (1, True), (0, False)):
        ended, other = site.running()
        ended.shared_state.run(0, 1, 0, b"1-1", site.clock.now)
        ended.process.code = code
        assert site.check()[0] is other
        assert len(site.states) == 2
        ((kind, consumer, evidence),) = site.told
        assert (kind, consumer, evidence.may_receive) == ("exit", ended.consumer, may_receive)
        assert [receipt.entry for receipt in evidence.running] == [b"1-1"]
        site.told.clear()


def test_those_that_end_as_they_start_wait_longer_each_time_and_their_neighbours_do_not(begin):
    site = begin(processes=2)
    worker, young = site.check()
    begin_work(worker)
    for pause in (0.0, FIRST_PAUSE, FIRST_PAUSE * 2):
        young.process.code = 1
        assert len(site.check()) == (1 if pause else 2)
        if pause:
            assert len(site.check(pause - 0.01)) == 1
            assert len(site.check(0.01)) == 2
        (young,) = [found for found in site.states if found is not worker]
    young.process.code = 1
    assert site.check() == [worker]
    worker.process.code = -9
    (replacement,) = site.check()
    assert replacement is not worker


def test_with_autoreload_one_that_cannot_load_the_project_is_not_started_before_the_next_change(
    begin, caplog, monkeypatch
):
    site = begin(processes=2)
    monkeypatch.setenv("RUN_MAIN", "true")
    for worker in site.check():
        worker.process.code = 1
    assert site.check() == []
    assert site.check(60.0) == []
    assert caplog.messages == ["The changed project cannot be loaded; waiting for the next change"]


def test_one_that_the_system_refuses_is_started_later(begin, caplog):
    site = begin()
    site.refused = True
    assert site.check() == []
    (record,) = caplog.records
    assert record.getMessage() == "Cannot start a consumer process: no memory. Next attempt in 0.5 s"
    site.refused = False
    assert site.check(REFUSED_PAUSE - 0.01) == []
    assert len(site.check(0.01)) == 1


def open_files():
    return sorted(path.name for path in Path("/dev/fd").iterdir())


def test_a_refused_start_leaves_nothing_open(monkeypatch):
    def refuse(*_):
        raise OSError("no processes")

    monkeypatch.setattr(Launcher, "start", refuse)
    before = open_files()
    with pytest.raises(OSError, match="no processes"):
        spawn("c", "s", WorkerOptions(queues=["a"], threads=2, grace=5.0), Launcher(None))
    assert open_files() == before


def test_asked_to_stop_all_finish_and_are_killed_after_the_grace(begin, caplog):
    site = begin(processes=2)
    first, second = site.running()
    site.workers.stop()
    assert (first.process.asked, first.shared_state.is_stopping_fast()) == (1, False)
    first.process.code = 0
    assert site.check() == [second]
    assert "starting another" not in caplog.text
    site.clock.now += 5.0 + LAST_STEPS
    assert site.check(-0.01)[0].process.code is None
    assert site.check(0.02)[0].process.code == -9
    assert site.check() == []


def test_asked_twice_they_hand_back_what_they_run_at_once(begin):
    site = begin()
    (worker,) = site.running()
    site.workers.stop()
    site.workers.stop()
    assert (worker.process.asked, worker.shared_state.is_stopping_fast()) == (2, True)
    site.check(LAST_STEPS + 0.01)
    assert worker.process.code == -9


def test_new_code_replaces_one_after_another_when_its_replacement_is_ready(begin):
    site = begin(processes=2)
    old = site.running()
    site.workers.renew()
    for number, leaving in enumerate(old):
        *_, new = site.check()
        assert len(site.states) == 3
        # Loaded, and not announced yet.
        new.shared_state.tick()
        site.check()
        assert [worker.process.asked for worker in old] == [1] * number + [0] * (2 - number)
        new.announced.add(1)
        site.check()
        assert leaving.process.asked == 1
        assert site.workers.is_renewing
        leaving.process.code = 0
    assert len(site.check()) == 2
    assert not site.workers.is_renewing
    assert not set(old) & set(site.states)


def test_new_code_that_does_not_start_leaves_the_old_processes(begin, caplog):
    site = begin(processes=2)
    old = site.running()
    site.workers.renew()
    *_, new = site.check()
    new.process.code = 1
    site.check()
    assert "The new consumer failed to start; keeping the old ones" in caplog.text
    assert site.check(FIRST_PAUSE) == old
    assert [worker.process.asked for worker in old] == [0, 0]


def test_one_that_will_stop_by_itself_has_its_replacement_started_before(begin):
    """It has handled --max-messages, or uses --max-memory."""
    site = begin()
    (old,) = site.running()
    old.shared_state.leave()
    _, new = site.check()
    old.process.code = 0
    assert site.check() == [new]


def test_what_an_operator_asks_of_one_is_not_asked_of_others(begin):
    site = begin(processes=2)
    first, second = site.running()
    site.states.ask({first.consumer: "stop", second.consumer: "quiet"})
    site.check()
    assert [worker.process.asked for worker in (first, second)] == [1, 0]
    assert [worker.shared_state.must_become_quiet() for worker in (first, second)] == [False, True]
    first.process.code = 0
    assert site.check() == [second]
    assert not site.workers.is_drained
    site.states.ask({second.consumer: "stop"})
    site.check()
    second.process.code = 0
    assert site.check() == []
    assert site.workers.is_drained


def test_a_quiet_supervisor_starts_none(begin):
    site = begin()
    (worker,) = site.running()
    site.states.ask({"s": "quiet"})
    site.check()
    worker.process.code = -9
    assert site.check() == []


def test_draining_ends_with_the_last_that_ends_well(begin):
    site = begin(processes=2, drain=True)
    first, second = site.running()
    first.process.code, second.process.code = 0, -9
    (again,) = site.check()
    assert not site.workers.is_drained
    again.process.code = 0
    assert site.check() == []
    assert site.workers.is_drained


def test_taken_for_dead_all_begin_anew_under_another_name(begin):
    site = begin(processes=2)
    old = site.running()
    site.workers.begin_anew("again")
    assert [worker.process.asked for worker in old] == [1, 1]
    new = [worker for worker in site.check() if worker not in old]
    assert [worker.consumer.startswith("again-") for worker in new] == [True, True]
    assert site.states.announced().keys() == {worker.consumer for worker in new}


def test_one_that_shows_no_sign_of_life_is_suspended_again_and_again_and_killed(begin):
    site = begin()
    (worker,) = site.running()
    site.states.suspend(worker, 0.0)
    worker.suspended = None
    site.check()
    site.still(SUSPEND_AFTER + 0.2)
    assert [told[:2] for told in site.told] == [("unresponsive", worker.consumer)]
    site.still(SUSPEND_AGAIN + 0.2)
    # Its blocked reads may have got messages meanwhile.
    assert [told[:2] for told in site.told] == [("unresponsive", worker.consumer)] * 2
    # It goes on, and the next heartbeat says so at once.
    worker.shared_state.tick()
    site.clock.now += 0.2
    assert site.workers.check(site.clock.now)
    assert worker.suspended is None
    site.still(STILL + 0.4)
    assert worker.process.code == -9
    assert worker not in site.states


def test_one_that_loads_its_project_is_left_alone_for_long(begin):
    site = begin()
    (worker,) = site.check()
    site.still(START - 1)
    assert (worker.process.code, site.told) == (None, [])


def test_a_late_handler_that_nothing_interrupts_costs_its_process_when_there_is_another(begin, caplog):
    site = begin()
    (worker,) = site.running()
    worker.shared_state.run(0, 0, 0, b"1-7", site.clock.now, site.clock.now + 1)
    site.still(1.0 + OVERTIME + 0.4, worker)
    *_, new = site.states
    assert "replaced: a handler cannot be interrupted. Past its timeout: entry '1-7' of queue a for" in caplog.text
    assert ("late", worker.consumer) in [told[:2] for told in site.told]
    assert (new is worker, worker.process.asked) == (False, 0)
    new.shared_state.tick()
    new.announced.add(0)
    site.still(0.2, worker)
    assert worker.process.asked == 1


def test_a_stopped_process_with_a_late_handler_is_killed_and_only_that_one_is_to_blame(begin):
    site = begin()
    (worker,) = site.running()
    worker.shared_state.run(0, 0, 0, b"1-7", site.clock.now, site.clock.now + 1)
    worker.shared_state.run(1, 0, 0, b"1-8", site.clock.now)
    site.check()
    site.still(1.0 + OVERTIME + 0.6)
    assert worker not in site.states
    (evidence,) = [evidence for kind, _, evidence in site.told if kind == "exit"]
    assert [receipt.entry for receipt in evidence.late] == [b"1-7"]


def quarantines(site):
    return [worker for worker in site.states if worker.quarantine]


def test_a_quarantine_is_started_when_one_is_asked_for_and_consumers_know_it_when_it_is_ready(begin):
    site = begin(processes=2)
    first, second = site.running()
    first.shared_state.want_quarantine()
    site.check()
    (quarantine,) = quarantines(site)
    assert quarantine.backlog == backlog_of(quarantine.consumer)
    assert second.shared_state.quarantine() == ""
    quarantine.shared_state.tick()
    site.check()
    # Announced in one of its queues: another one may be broken.
    assert second.shared_state.quarantine() == ""
    quarantine.announced.add(1)
    site.check()
    assert {worker.shared_state.quarantine() for worker in (first, second)} == {quarantine.consumer}
    # Idle, it leaves. What is passed on to it late is looked for.
    quarantine.process.code = 0
    site.check()
    assert first.shared_state.quarantine() == ""
    assert [(consumer, evidence.may_receive) for _, consumer, evidence in site.told] == [
        (quarantine.consumer, False),
        (quarantine.backlog, True),
    ]


def test_there_are_as_many_quarantines_as_consumers_and_they_share_a_backlog(begin):
    site = begin(processes=3)
    first, *_ = site.running()
    first.shared_state.want_quarantine()
    site.running()
    for _ in range(5):
        for quarantine in quarantines(site):
            # It runs one message, and more wait.
            quarantine.shared_state.want_quarantine()
        site.running()
    assert len(quarantines(site)) == 3
    assert len({quarantine.backlog for quarantine in quarantines(site)}) == 1


def test_a_quarantine_that_its_message_has_killed_is_replaced_while_others_wait(begin):
    site = begin()
    (worker,) = site.running()
    worker.shared_state.want_quarantine()
    site.running()
    (killed,) = quarantines(site)
    # It has ticked once and no more, which is no failed start.
    killed.shared_state.want_quarantine()
    killed.process.code = -9
    site.check()
    (again,) = quarantines(site)
    assert again.backlog == killed.backlog
