"""Tasks that run for a second are noted once in their results; others cost nothing."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest

from mq_django.conf import get_config
from mq_django.consumers.worker.progress import AFTER, ProgressReporter, RunningTasks
from mq_django.errors import ConnectionLost
from mq_django.transport.connections import get_client, open_session
from mq_django.transport.sessions import Transport
from tests.consumers.rig import running
from tests.waiting import wait_until


@pytest.fixture
def rig(mq_settings):
    with running(threads=3) as found:
        yield found


class Jobs:
    """Messages that the slots of a rig handle until they may go on."""

    def __init__(self, rig, now):
        self.rig, self.now, self.go, self.begun = rig, now, threading.Event(), []
        self.places = [*rig.threads.slots, *rig.loop.slots]
        self.tasks = RunningTasks({0: rig.config}, "me", rig.shared_state, self.places)

    def begin(self, message_id, *, seconds=AFTER + 0.01, keeps_result=True):
        """Begin to handle a message, as if that had been so many seconds ago, and return its result's key."""

        def call(message):
            self.begun.append(message.id)
            self.go.wait()

        delivery = self.rig.put(call, message_id=message_id, keeps_result=keeps_result)
        wait_until(lambda: message_id in self.begun)
        (slot,) = (each for each in self.places if (job := each.running()) and job.delivery is delivery)
        self.rig.shared_state.run(slot.number, 0, 0, delivery.entry, self.now - seconds)
        self.entry = delivery.entry
        key = self.rig.config.keys.result(message_id)
        get_client("chores", key=key).set(key, "{}")
        return key

    def check(self, transport=None):
        for number, found in self.tasks.unnoted().items():
            self.tasks.note(transport or self.rig.session, number, found)

    def end(self):
        self.go.set()
        wait_until(lambda: not any(each.running() for each in self.places))
        self.go.clear()


@pytest.fixture
def jobs(rig, monkeypatch):
    found = Jobs(rig, now=time.monotonic())
    monkeypatch.setattr("mq_django.consumers.worker.progress.time", SimpleNamespace(monotonic=lambda: found.now))
    yield found
    found.go.set()


def lines(client, key):
    return client.get(key).split(b"\n")[1:]


def test_a_task_is_noted_once_when_it_has_run_for_a_second(jobs, redis_client):
    short, long = jobs.begin("short", seconds=0.5), jobs.begin("long", seconds=1.5)
    before = time.time() * 1000
    for _ in range(3):
        jobs.check()
    (line,) = lines(redis_client, long)
    started = int(line.partition(b'"started":')[2].partition(b",")[0])
    assert before - 1600 < started < time.time() * 1000 - 1400
    told = b'"consumer":"me","started":%d,"finished":null}' % started
    assert line == b'{"status":"RUNNING","attempt":1,"entry":"%b",%b' % (jobs.entry, told)
    assert lines(redis_client, short) == []


def test_nothing_is_sent_without_tasks_that_run_for_long(jobs, redis_client):
    jobs.begin("short", seconds=0.1)
    key = jobs.begin("plain", keeps_result=False)
    before = redis_client.info("stats")["total_commands_processed"]
    jobs.check()
    assert redis_client.info("stats")["total_commands_processed"] == before + 1
    assert lines(redis_client, key) == []


def test_queues_that_keep_no_results_and_those_on_other_servers_are_left_out(jobs, mq_settings):
    jobs.begin("m")
    assert RunningTasks({1: jobs.rig.config}, "me", jobs.rig.shared_state, jobs.places).unnoted() == {}
    mq_settings(QUEUES={"default": {"RESULT_TTL": 0}})
    tasks = RunningTasks({0: get_config().queue("default")}, "me", jobs.rig.shared_state, jobs.places)
    assert tasks.unnoted() == {}


def test_the_next_task_of_a_slot_is_noted_too(jobs, redis_client):
    first = jobs.begin("first")
    jobs.check()
    jobs.end()
    jobs.check()
    second = jobs.begin("second")
    jobs.check()
    assert [len(lines(redis_client, key)) for key in (first, second)] == [1, 1]
    assert len(jobs.tasks._noted) == 1


def test_what_the_consumer_no_longer_holds_is_not_noted(jobs, redis_client):
    key = jobs.begin("m")
    jobs.rig.shared_state.hold_until(0, 0.0)
    jobs.check()
    assert lines(redis_client, key) == []
    jobs.rig.shared_state.hold_until(0, time.monotonic() + 60)
    jobs.check()
    assert len(lines(redis_client, key)) == 1


def test_what_could_not_be_noted_is_noted_by_the_next_check(jobs, redis_client):
    class Lost(Transport):
        def pipeline(self, commands):
            raise ConnectionLost("gone")

    key = jobs.begin("m")
    with pytest.raises(ConnectionLost):
        jobs.check(Lost())
    jobs.check()
    assert len(lines(redis_client, key)) == 1


def test_several_tasks_are_noted_in_one_round_trip(jobs, redis_client):
    pipelines = []

    class Counted(Transport):
        def pipeline(self, commands):
            pipelines.append(commands)
            return jobs.rig.session.pipeline(commands)

    keys = [jobs.begin(f"m{number}") for number in range(3)]
    jobs.check(Counted())
    assert [len(commands) for commands in pipelines] == [1]
    assert [len(lines(redis_client, key)) for key in keys] == [1, 1, 1]


def test_a_coroutine_is_noted_too(jobs, rig, redis_client):
    async def call(message):
        jobs.begun.append(message.id)
        while not jobs.go.is_set():
            await asyncio.sleep(0.01)

    delivery = rig.put(call, message_id="m", is_async=True, keeps_result=True)
    wait_until(lambda: jobs.begun)
    (slot,) = (each for each in rig.loop.slots if each.running())
    rig.shared_state.run(slot.number, 0, 0, delivery.entry, jobs.now - 2)
    redis_client.set(rig.config.keys.result("m"), "{}")
    jobs.check()
    assert len(lines(redis_client, rig.config.keys.result("m"))) == 1


def test_the_reporter_looks_each_second(jobs, redis_client):
    key = jobs.begin("m")
    reporter = ProgressReporter({}, jobs.tasks, jobs.rig.shared_state, open_session("chores"))
    reporter._name = lambda number: "default"
    assert reporter.run_once() == 1.0
    assert len(lines(redis_client, key)) == 1
    reporter.close()
