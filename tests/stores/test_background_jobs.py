"""Jobs about dead letters, in every store: one worker at a time, and another goes on where one died."""

import pytest

from mq_django.core.filters import FailureGroup
from mq_django.core.messages import Bury
from mq_django.inspector.dead_letters import groups
from mq_django.stores.background_jobs import IDLE, LEASE_MS, BackgroundJobs, JobOrder
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import JobStep, open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.stores.acts import take_all
from tests.stores.cases import RSMQ, STREAM, outgoing

pytestmark = pytest.mark.usefixtures("mq_settings")


@pytest.fixture(params=[STREAM, RSMQ], ids=lambda case: case.name)
def case(request, mq_settings, namespace):
    mq_settings(**request.param.namespaced(namespace))
    return request.param


@pytest.fixture
def store(case):
    found = case.open()
    found.create_groups()
    return found


@pytest.fixture
def dead(store):
    return open_dead_letters(store.config, Pooled(get_client("inspect")))


@pytest.fixture
def jobs(store):
    return BackgroundJobs(store.config, Pooled(get_client("inspect")))


@pytest.fixture
def bury(case, store):
    def bury(count=1, *, name="welcome", error="ValueError: no"):
        for at in range(0, count, 100):
            case.publish(store, *[outgoing(name, {"n": n}) for n in range(at, min(count, at + 100))])
        buried = [Settlement(item, Bury(error, reason="attempts")) for item in take_all(store)]
        assert store.settle("c1", buried) == []

    return bury


def begin(jobs, dead, what="redrive", *, rate=0, **more):
    total, ((newest, _),) = dead.read(limit=1, newest_first=True)
    assert jobs.begin(JobOrder(what=what, who="ann", until=newest, **more), total=total, rate=rate)


def work_off(jobs, worker="w1"):
    while jobs.work(worker) != IDLE:
        pass
    return jobs.read()["dead"]


@pytest.mark.parametrize(("what", "ready"), [("redrive", 620), ("delete", 0)])
def test_a_job_does_all_of_it_and_stays_to_be_read(store, dead, jobs, bury, what, ready):
    bury(620)
    begin(jobs, dead, what)

    found = work_off(jobs)

    assert (found.state, found.done, found.looked, found.worker) == ("finished", 620, 620, "w1")
    assert (store.depths().ready, store.depths().dead) == (ready, 0)
    assert groups(store.config.name) == []


def test_another_goes_on_once_a_dead_workers_lease_is_over(store, dead, jobs, bury, redis_client, monkeypatch):
    monkeypatch.setattr("mq_django.stores.background_jobs.LEASE_MS", 600_000)
    bury(620)
    begin(jobs, dead)
    jobs.work("w1")

    assert 0 < jobs.work("w2") <= 600.1
    assert jobs.read()["dead"].done == 100
    redis_client.hset(store.keys.jobs, "dead:lease", 1)
    assert work_off(jobs, "w2").done == 620
    assert store.depths().ready == 620


def test_who_lost_the_job_moves_nothing(store, dead, jobs, bury, redis_client):
    bury(3)
    begin(jobs, dead)
    redis_client.hset(store.keys.jobs, mapping={"dead:worker": "w2", "dead:lease": 2**50})
    entries = [letter.entry for letter in dead.traits(limit=5)]

    assert dead.redrive(entries, step=JobStep("w1", entries[-1], 3, LEASE_MS)) == ["STOPPED"]
    assert dead.delete(entries, step=JobStep("w1", entries[-1], 3, LEASE_MS)) == ["STOPPED"]

    assert (store.depths().ready, store.depths().dead) == (0, 3)
    assert jobs.read()["dead"].done == 0


def test_dead_letters_are_counted_where_they_are_buried_and_where_they_leave(store, dead, bury):
    bury(3)
    bury(1, name="remind", error="no class of an error")
    entries = [letter.entry for letter in dead.traits(limit=9)]

    assert {(found.group, found.count) for found in groups(store.config.name)} == {
        (FailureGroup("welcome", "ValueError"), 3),
        (FailureGroup("remind", ""), 1),
    }
    dead.redrive(entries[:1])
    dead.delete([entries[1], "1-1"])
    assert {(found.group, found.count) for found in groups(store.config.name)} == {
        (FailureGroup("welcome", "ValueError"), 1),
        (FailureGroup("remind", ""), 1),
    }


def test_counting_begins_anew_when_somebody_deleted_all_by_hand(store, dead, bury, redis_client):
    bury(3)
    redis_client.delete(store.keys.dead)
    bury(1)

    assert [found.count for found in groups(store.config.name)] == [1]


def test_more_than_a_thousand_kinds_are_counted_together(store, dead, bury, redis_client):
    redis_client.xadd(store.keys.dead, {"id": "first", "type": "x"})
    redis_client.hset(store.keys.dead_groups, mapping={f"E{n}|x": "1 1" for n in range(1000)})
    bury(2, name="one.more")

    (rest,) = [found for found in groups(store.config.name) if found.group is None]

    assert rest.count == 2
    dead.delete([letter.entry for letter in dead.traits(limit=9)])
    assert all(found.group is not None for found in groups(store.config.name))
