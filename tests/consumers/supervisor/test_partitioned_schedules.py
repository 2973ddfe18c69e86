"""Schedules of a queue with partitions: each has one partition, in which it fires."""

import pytest

from mq_django import every, registry, schedules
from mq_django.conf import get_config
from mq_django.consumers.supervisor.scheduler import Scheduler
from mq_django.core.partitions import number_in, partition_of
from mq_django.errors import InvalidSchedule, QueueClosed, ScheduleExists, UnknownQueue, UnknownSchedule
from mq_django.inspector import plans
from mq_django.signals import message_published
from mq_django.stores.schedule_status import Origin, statuses_of
from mq_django.transport.connections import get_client, open_transport, open_transports
from tests import places
from tests.hearing import hears
from tests.waiting import wait_until

PARTITIONS = 8
NAMES = [f"s{number}" for number in range(12)]
PARTITIONED = {"default": {"PARTITIONS": PARTITIONS}, "emails": {}}
IN_SETTINGS = {name: {"message": "act", "data": {}, "every": 1} for name in NAMES}


@pytest.fixture(autouse=True)
def _none_in_code(monkeypatch):
    monkeypatch.setattr(registry, "_schedules", {})


@pytest.fixture
def _partitioned(mq_settings):
    mq_settings(QUEUES=PARTITIONED)


def parts():
    return get_config().queue("default").parts


def ready():
    return [get_client("produce", key=part.keys.ready).xlen(part.keys.ready) for part in parts()]


def fire_all():
    """Let two schedulers fire what is due in all partitions."""
    every_part = dict(enumerate(parts()))
    made = [Scheduler.of(every_part, open_transport("chores", "")) for _ in range(2)]
    for scheduler in made:
        scheduler.run_once()
    return made


@pytest.mark.usefixtures("_partitioned")
def test_a_schedule_of_run_time_is_in_the_partition_of_its_name_or_key():
    for name in NAMES:
        made = schedules.create(name, every=3600, message="act", data={"n": name})
        assert (made.queue, made.home) == ("default", f"default.{partition_of(name, PARTITIONS)}")
    keyed = schedules.create("keyed", every=3600, message="act", key="order:7", data={})
    assert keyed.home == f"default.{partition_of('order:7', PARTITIONS)}"
    assert [found.name for found in schedules.get_all("default")] == sorted([*NAMES, "keyed"])
    assert {found.queue for found in schedules.get_all()} == {"default"}
    assert number_in(schedules.fire("keyed")) == partition_of("order:7", PARTITIONS)
    found = plans.schedules("default", limit=5)
    assert ([each.name for each in found.found], found.total) == (sorted([*NAMES, "keyed"])[:5], 13)


@pytest.mark.usefixtures("_partitioned")
def test_a_schedule_is_changed_paused_skipped_and_deleted_where_it_is():
    for name in NAMES:
        schedules.create(name, every=3600, message="act", data={})
        assert schedules.update(name, every=60).when == every(60)
        assert schedules.pause(name, by="ann")
        assert plans.find("default", name).paused
        assert schedules.resume(name)
        tick = schedules.skip(name)
        assert schedules.unskip(name) == tick
        with pytest.raises(ScheduleExists):
            schedules.create(name, every=3600, message="act", key="another", data={})
    other = next(f"k{number}" for number in range(99) if partition_of(f"k{number}", 8) != partition_of(NAMES[0], 8))
    with pytest.raises(InvalidSchedule, match="another partition"):
        schedules.update(NAMES[0], key=other)
    for name in NAMES:
        schedules.delete(name)
        with pytest.raises(UnknownSchedule):
            schedules.get(name)
    assert schedules.get_all("default") == []


@pytest.mark.usefixtures("_partitioned")
def test_a_partition_is_no_queue_of_schedules():
    with pytest.raises(UnknownQueue, match="is a partition"):
        schedules.create("s", queue="default.3", every=60, message="act", data={})


def test_the_state_of_a_removed_schedule_is_forgotten_in_its_partition(mq_settings):
    mq_settings(QUEUES=PARTITIONED, SCHEDULES=IN_SETTINGS)
    assert {found.origin for found in schedules.get_all("default")} == {Origin.SETTINGS}
    assert [schedules.pause(name) for name in NAMES] == [True] * len(NAMES)
    mq_settings(QUEUES=PARTITIONED)
    removed = [plans.find("default", name, Origin.REMOVED) for name in NAMES]
    for plan in removed:
        plans.forget(plan)
    assert schedules.get_all("default") == []


def test_a_schedule_in_settings_hides_one_of_run_time_in_another_partition(mq_settings, caplog):
    mq_settings(QUEUES=PARTITIONED)
    key = next(f"k{number}" for number in range(99) if partition_of(f"k{number}", 8) != partition_of("s0", 8))
    schedules.create("s0", every=1, message="act", key=key, data={})
    mq_settings(QUEUES=PARTITIONED, SCHEDULES={"s0": {"message": "act", "data": {}, "every": 3600}})
    found = plans.schedules("default").found
    assert [(each.origin, bool(each.problem)) for each in found] == [(Origin.SETTINGS, False), (Origin.RUNTIME, True)]
    scheduler, _ = fire_all()
    assert {entry.when for entry in [*scheduler._schedules, *(one for one, _ in scheduler._loaded.values())]} == {
        every(3600)
    }


def test_the_statuses_of_several_queues_are_read_together(mq_settings):
    mq_settings(QUEUES=PARTITIONED, SCHEDULES={**IN_SETTINGS, "e": {"queue": "emails", "message": "m", "every": 60}})
    configs = list(get_config().queues.values())
    found, other = statuses_of(configs, open_transports("inspect", ["", ""]))
    assert [each.name for each in found.found] == sorted(NAMES)
    assert [each.name for each in other.found] == ["e"]


@pytest.mark.cluster
def test_each_tick_fires_once_whoever_proposes_it(mq_settings):
    mq_settings(QUEUES=PARTITIONED, SCHEDULES=IN_SETTINGS)
    schedules_of_run_time = [f"r{number}" for number in range(4)]
    for name in schedules_of_run_time:
        schedules.create(name, every=1, message="act", data={})
    with hears(message_published) as sent:
        made = fire_all()
        wait_until(lambda: [scheduler.run_once() for scheduler in made] and sum(ready()) >= len(NAMES) + 4)
    where = [0] * PARTITIONS
    for name in [*NAMES, *schedules_of_run_time]:
        where[partition_of(name, PARTITIONS)] += 1
    assert [bool(count) for count in ready()] == [bool(count) for count in where]
    assert {arguments["queue"] for arguments in sent} == {"default"}
    ticks = [
        (message["schedule"], message["scheduledtime"])
        for part in parts()
        for message in places.ready(get_client("produce", key=part.keys.ready), part.keys)
    ]
    assert len(ticks) == len(set(ticks)) >= len(NAMES) + 4


@pytest.mark.usefixtures("_partitioned")
def test_nothing_fires_into_a_queue_that_is_being_changed():
    made = schedules.create("s0", every=3600, message="act", data={})
    home = get_config().queue(made.home)
    get_client("produce", key=home.keys.control).hset(home.keys.control, "partitions", "closed")
    with pytest.raises(QueueClosed):
        schedules.fire("s0")


def test_a_queue_with_schedules_of_run_time_gets_no_partitions(mq_settings):
    mq_settings(QUEUES={"default": {}})
    schedules.create("s0", every=3600, message="act", data={})
    mq_settings(QUEUES=PARTITIONED)
    with pytest.raises(QueueClosed, match="no partitions"):
        schedules.create("s1", every=3600, message="act", data={})
    assert schedules.get_all("default") == []
    mq_settings(QUEUES={"default": {}})
    assert [found.name for found in schedules.get_all("default")] == ["s0"]


def test_the_times_of_a_schedule_are_overridden_in_its_partition(mq_settings):
    mq_settings(QUEUES=PARTITIONED, SCHEDULES={name: {**IN_SETTINGS[name], "every": 86400} for name in NAMES})
    for name in NAMES:
        assert schedules.override(name, every=1, reason="a test").home == f"default.{partition_of(name, PARTITIONS)}"
    wait_until(lambda: [scheduler.run_once() for scheduler in fire_all()] and sum(ready()) >= len(NAMES))
    for name in NAMES:
        assert schedules.restore(name)
    count = sum(ready())
    fire_all()
    assert sum(ready()) == count
    assert {found.override for found in schedules.get_all("default")} == {None}
