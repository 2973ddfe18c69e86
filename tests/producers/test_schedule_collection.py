"""Schedules by code: create, change, pause, fire and delete them."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import wraps
from importlib.util import find_spec

import pytest
from asgiref.sync import async_to_sync

from mq_django import every, registry, schedules, task
from mq_django.conf import get_config
from mq_django.core.schedules import Scheduled
from mq_django.errors import (
    InvalidArguments,
    InvalidMessage,
    InvalidSchedule,
    NotSupported,
    ScheduleChanged,
    ScheduleExists,
    ScheduleInCode,
    UnknownQueue,
    UnknownSchedule,
)
from mq_django.task_backend import backend
from tests import places
from tests.optional import needs_croniter

CODE = "nightly"

pytestmark = pytest.mark.usefixtures("mq_settings")


def clean(folder, depth=1):
    """Do nothing: a task needs a function of a module."""


def report(context, customer):
    """Do nothing."""


@pytest.fixture
def tasks(monkeypatch, mq_settings):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(backend, "_tasks", {})
    module = __import__(__name__, fromlist=["clean"])
    made = task(queue_name="emails", priority=5)(clean), task(takes_context=True)(report)
    # As @task does.
    monkeypatch.setattr(module, "clean", made[0])
    monkeypatch.setattr(module, "report", made[1])
    return made


class Reports:
    """A task's function need not be an attribute of its module."""

    @staticmethod
    def weekly(customer):
        """Do nothing."""


def adds_customer(function):
    @wraps(function)
    def wrapper(address):
        return function(None, address)

    return wrapper


@adds_customer
def mail(customer, address):
    """Do nothing."""


@pytest.fixture
def in_code(monkeypatch, mq_settings):
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(Scheduled(name=CODE, queue="emails", message="m", data=None, when=every(minutes=1)))


@pytest.fixture
def keys(mq_settings):
    return get_config().queue("emails").keys


def hourly(name="digest", **options):
    return schedules.create(name, queue="emails", **{"every": 3600, "message": "digest", **options})


@needs_croniter
def test_a_schedule_is_created_with_who_and_when(keys):
    made = schedules.create(
        "digest", queue="emails", cron="0 7 * * *", timezone="Europe/Berlin", message="digest", data=[1], by="ann"
    )
    assert (made.name, made.queue, made.origin, str(made.when)) == (
        "digest",
        "emails",
        "runtime",
        "0 7 * * * (Europe/Berlin)",
    )
    assert (made.created_by, made.changed_by, made.paused) == ("ann", "ann", False)
    assert made.next_at > datetime.now(UTC)
    assert schedules.get("digest", queue="emails") == made
    assert made.options == {"cron": "0 7 * * *", "timezone": "Europe/Berlin", "message": "digest", "data": [1]}


def test_data_is_kept_as_a_publish_writes_it(keys, redis_client):
    hourly(data={"at": datetime(2026, 1, 1, tzinfo=UTC), "sum": Decimal("1.5")})
    schedules.fire("digest", queue="emails")
    (message,) = places.ready(redis_client, keys)
    assert message["data"] == {"at": "2026-01-01T00:00:00Z", "sum": "1.5"}


def test_a_task_is_scheduled_by_its_path_or_itself(tasks, keys, redis_client):
    one, other = tasks
    schedules.create("a", queue="emails", task=one, args=["/tmp"], kwargs={"depth": 2}, every=timedelta(days=1))
    schedules.create("b", queue="emails", task=other.module_path, args=[7], every=60)
    schedules.fire("a", queue="emails")
    schedules.fire("b", queue="emails")
    first, second = places.ready(redis_client, keys)
    assert (first["type"], first["data"]) == (one.module_path, {"args": ["/tmp"], "kwargs": {"depth": 2}})
    assert (second["type"], second["data"]) == (other.module_path, {"args": [7], "kwargs": {}})


#: Options that no schedule can have, with the words of the error.
WRONG = [
    ({}, 'either "cron" or "every"'),
    ({"every": 0.5}, "a second or more"),
    ({"every": float("nan")}, "'every' must be a timedelta"),
    ({"every": "60"}, "must be a timedelta"),
    ({"every": 1e13}, "after the year 9999"),
    ({"every": 1e15}, "must be a timedelta"),
    ({"every": 60, "priority": 101}, "from -100 to 100"),
    ({"every": 60, "args": [1]}, "'args' needs 'task'"),
    ({"every": 60, "moons": 1}, "'moons' is not an option"),
    ({"every": 60, "starts": "soon"}, "'starts' must be a time"),
    ({"every": 60, "starts": 5}, "'starts' must be a time"),
    ({"every": 60, "ends": date(2030, 1, 1)}, "'ends' must be a time"),
    ({"every": 60, "paused": "yes"}, "paused must be True or False, not 'yes'"),
    ({"every": 60, "by": 5}, "by must be text"),
    ({"every": 60, "by": None}, "by must be text"),
    ({"every": 60, "ends": "2020-01-01"}, "it would never fire"),
    ({"every": 60, "starts": "9999-12-31T23:59:59Z"}, "after the year 9999"),
    ({"every": 60, "key": ""}, "1 to 255 printable"),
    ({"every": 60, "message": "", "key": "k"}, "name is 1 to"),
    ({"every": 60, "data": {1, 2}}, "not JSON"),
    ({"every": 60, "expires": 0}, "above zero"),
]
WRONG_CRON = [
    ({"every": 60, "cron": "* * * * *"}, 'either "cron" or "every", not both'),
    ({"cron": "* * * *"}, "not a cron expression"),
    ({"cron": "0 0 31 2 *"}, "No day ever matches"),
    ({"cron": "* * * * *", "timezone": "Mars"}, "not a time zone"),
]


def test_what_is_wrong_is_refused_and_nothing_is_written(keys, redis_client, subtests):
    for options, said in [*WRONG, *(WRONG_CRON if find_spec("croniter") else [])]:
        with subtests.test(options=options):
            with pytest.raises((InvalidSchedule, InvalidMessage), match=said):
                schedules.create("digest", **{"queue": "emails", "message": "digest", **options})
            assert not redis_client.exists(keys.runtime_schedules)


def test_a_name_is_that_of_a_schedule(keys, redis_client, subtests):
    for name in ["", 5, None, "a\nb", "x" * 256]:
        with subtests.test(name=name):
            with pytest.raises(
                InvalidSchedule, match=r"^A schedule's name must be 1 to 255 printable characters, not "
            ):
                hourly(name)
            assert not redis_client.exists(keys.runtime_schedules)


@pytest.mark.usefixtures("tasks")
def test_only_a_task_of_the_project_with_arguments_that_fit_is_scheduled(subtests):
    for options, said in [
        ({"task": "os.system", "args": ["ls"]}, "'os.system' is not the path of a task"),
        ({"task": "tests.producers.test_schedule_collection.hourly"}, "is not the path of a task"),
        ({"task": f"{__name__}.clean"}, "missing a required argument: 'folder'"),
        ({"task": f"{__name__}.clean", "args": [1, 2, 3]}, "too many positional"),
        ({"task": f"{__name__}.report", "args": [1, 2]}, "too many positional"),
        ({"task": f"{__name__}.clean", "kwargs": {"folder": 1, "colour": 2}}, "unexpected keyword argument 'colour'"),
        ({"task": f"{__name__}.clean", "data": 1}, "'data' needs 'message'"),
        ({"task": 7}, "'task' must be str"),
    ]:
        with subtests.test(options=options, said=said), pytest.raises(InvalidSchedule, match=said):
            schedules.create("cleaning", queue="emails", every=60, **options)


@pytest.mark.usefixtures("tasks")
def test_whatever_task_a_consumer_can_run_can_be_scheduled(subtests):
    for function in [Reports.weekly, mail]:
        with subtests.test(function=function):
            made = task(queue_name="emails")(function)
            assert schedules.create(made.name, queue="emails", every=60, task=made, args=[7]).options["args"] == [7]
            assert made.enqueue(7)
            with pytest.raises(InvalidSchedule, match="missing a required argument"):
                schedules.create("other", queue="emails", every=60, task=made)
            with pytest.raises(InvalidArguments, match="missing a required argument"):
                made.enqueue()


@pytest.mark.cluster
def test_a_name_is_there_once_in_a_queue(in_code):
    hourly()
    with pytest.raises(ScheduleExists, match="created at run time"):
        hourly()
    with pytest.raises(ScheduleExists, match="in code"):
        hourly(CODE)
    schedules.create("digest", queue="default", every=60, message="m")
    assert [(found.queue, found.name) for found in schedules.get_all()] == [
        ("default", "digest"),
        ("emails", "digest"),
        ("emails", CODE),
    ]
    assert [found.name for found in schedules.get_all("emails")] == ["digest", CODE]


def test_queues_without_schedules_are_refused(mq_settings):
    mq_settings(QUEUES={"old": {"STORE": "rsmq"}, "emails": {}}, TOPICS={"orders": {}})
    for queue in ("old", "orders:billing"):
        with pytest.raises(NotSupported, match="has no schedules"):
            schedules.create("a", queue=queue, every=60, message="m")
    with pytest.raises(UnknownQueue):
        schedules.create("a", queue="nowhere", every=60, message="m")


@needs_croniter
def test_a_change_replaces_what_it_excludes_and_keeps_the_others(keys):
    hourly(data=1, priority=5, key="k", by="ann")
    changed = schedules.update("digest", queue="emails", cron="0 7 * * *", key=None, by="ben")
    assert changed.options == {"cron": "0 7 * * *", "message": "digest", "data": 1, "priority": 5}
    assert (changed.created_by, changed.changed_by) == ("ann", "ben")
    assert schedules.update("digest", queue="emails", every=60).options["every"] == 60
    assert "cron" not in schedules.get("digest", queue="emails").options


def test_ticks_before_a_change_of_the_times_do_not_fire(keys, redis_client):
    later = datetime(2100, 1, 1, tzinfo=UTC)
    for name, before, change in (
        ("starts", {"starts": later}, {"starts": None}),
        ("ends", {"ends": later}, {"ends": None}),
        ("every", {}, {"every": 60}),
    ):
        hourly(name, **before)
        redis_client.hset(keys.runtime_schedules, f"last:{name}", 1_600_000_000_000)
        assert schedules.update(name, queue="emails", **change).next_at > datetime.now(UTC)


def test_a_change_of_anything_else_keeps_missed_ticks(keys, redis_client):
    hourly()
    redis_client.hset(keys.runtime_schedules, "last:digest", 1_600_000_000_000)
    assert schedules.update("digest", queue="emails", priority=3).last_ms == 1_600_000_000_000


def test_a_message_is_changed_into_a_task(tasks):
    hourly(data=1)
    changed = schedules.update("digest", queue="emails", task=tasks[0], args=["/"])
    assert changed.options == {"every": 3600, "task": tasks[0].module_path, "args": ["/"]}


def test_a_change_that_is_not_valid_changes_nothing():
    made = hourly()
    with pytest.raises(InvalidSchedule):
        schedules.update("digest", queue="emails", every=0.1)
    assert schedules.get("digest", queue="emails") == made
    assert schedules.update("digest", queue="emails", every=3600) == made


def test_a_name_is_no_option(caplog, subtests):
    made = hourly()
    for act in (schedules.create, schedules.update, async_to_sync(schedules.aupdate)):
        with (
            subtests.test(act=act),
            pytest.raises(InvalidSchedule, match=r"^Schedule 'digest': 'name' is not an option"),
        ):
            act("digest", queue="emails", name="other")
    assert schedules.get("digest", queue="emails") == made
    assert caplog.text == ""


def test_a_change_of_what_somebody_else_has_changed_is_refused():
    shown = hourly()
    schedules.update("digest", queue="emails", priority=3)
    with pytest.raises(ScheduleChanged):
        schedules.update("digest", queue="emails", priority=4, version=shown.version)
    current = schedules.get("digest", queue="emails")
    assert schedules.update("digest", queue="emails", priority=4, version=current.version).options["priority"] == 4


def test_changes_at_the_same_time_are_all_made(monkeypatch):
    hourly()
    original = schedules._changeable
    first = []

    def interrupted(config, name):
        found = original(config, name)
        if not first:
            first.append(1)
            schedules.update("digest", queue="emails", priority=7)
        return found

    monkeypatch.setattr(schedules, "_changeable", interrupted)
    assert schedules.update("digest", queue="emails", key="k").options == {
        "every": 3600,
        "message": "digest",
        "priority": 7,
        "key": "k",
    }


@pytest.mark.usefixtures("in_code")
def test_a_schedule_in_code_is_only_paused_and_fired(keys, redis_client):
    with pytest.raises(ScheduleInCode, match="is in code: change it there, override its times, or pause it"):
        schedules.update(CODE, queue="emails", every=60)
    with pytest.raises(ScheduleInCode):
        schedules.delete(CODE, queue="emails")
    assert schedules.pause(CODE, queue="emails", by="ann")
    assert not schedules.pause(CODE, queue="emails", by="ben")
    found = schedules.get(CODE, queue="emails")
    assert (found.origin, found.paused, found.paused_by, found.next_at) == ("code", True, "ann", None)
    assert schedules.fire(CODE, queue="emails")
    assert redis_client.xlen(keys.ready) == 1
    assert schedules.resume(CODE, queue="emails")
    assert schedules.get(CODE, queue="emails").next_at


def test_one_of_the_settings_is_said_to_be_there(mq_settings):
    mq_settings(SCHEDULES={"digest": {"queue": "emails", "message": "m", "every": 60}})
    assert schedules.get("digest", queue="emails").origin == "settings"
    with pytest.raises(ScheduleInCode, match="in settings"):
        schedules.delete("digest", queue="emails")


def test_a_deleted_schedule_is_gone(keys, redis_client):
    hourly(paused=True)
    assert schedules.get("digest", queue="emails").paused
    schedules.delete("digest", queue="emails")
    assert schedules.get_all("emails") == []
    for act in (schedules.delete, schedules.get, schedules.pause, schedules.resume, schedules.fire, schedules.update):
        with pytest.raises(UnknownSchedule, match="'digest'"):
            act("digest", queue="emails")
    for act in (schedules.skip, schedules.unskip):
        with pytest.raises(UnknownSchedule, match="'digest'"):
            act("digest", queue="emails")
    assert not redis_client.exists(keys.runtime_schedules)


HOUR = timedelta(hours=1)


@pytest.mark.cluster
def test_the_next_tick_is_skipped_once_and_fires_after_all(keys):
    before = hourly()
    tick = schedules.skip("digest", queue="emails", by="ann")
    assert tick == before.next_at
    assert schedules.skip("digest", queue="emails", by="ben") == tick
    found = schedules.get("digest", queue="emails")
    assert [(skipped.tick_at, skipped.skipped_by) for skipped in found.skips] == [(tick, "ann")]
    assert found.next_at == tick + HOUR
    assert schedules.unskip("digest", queue="emails") == tick
    assert schedules.unskip("digest", queue="emails") is None
    found = schedules.get("digest", queue="emails")
    assert (found.next_at, list(found.skips)) == (tick, [])


def test_a_paused_schedule_skips_ticks_of_the_time_when_it_runs_again(keys):
    hourly(paused=True)
    tick = schedules.skip("digest", queue="emails")
    schedules.resume("digest", queue="emails")
    assert schedules.get("digest", queue="emails").next_at == tick + HOUR


def test_a_change_of_its_times_forgets_what_is_skipped(keys):
    hourly()
    schedules.skip("digest", queue="emails")
    assert schedules.update("digest", queue="emails", priority=5).skips
    assert not schedules.update("digest", queue="emails", every=7200).skips


def test_what_is_no_tick_to_come_is_not_skipped(keys, subtests):
    hourly()
    for tick, said in [
        (
            "2999-01-01T00:00:01Z",
            "has no tick at 2999-01-01T00:00:01.000Z; the next one after that is 2999-01-01T01:00",
        ),
        ("2001-01-01T00:00Z", "the tick of 2001-01-01T00:00:00.000Z has passed"),
        ("tomorrow", "'tick' must be a time from 1970 on, .* not 'tomorrow'"),
        (7, "'tick' must be a time from 1970 on"),
    ]:
        with subtests.test(tick=tick, said=said):
            with pytest.raises(InvalidSchedule, match=said):
                schedules.skip("digest", queue="emails", tick=tick)
            assert not schedules.get("digest", queue="emails").skips


def test_there_is_no_tick_to_skip_after_the_end(keys, redis_client):
    hourly(ends=datetime.now(UTC) + 2 * HOUR)
    with pytest.raises(InvalidSchedule, match=r"has no tick at 2999.*; the next one after that is none"):
        schedules.skip("digest", queue="emails", tick="2999-01-01T00:00Z")
    ended = '{"every":3600,"message":"m","ends":"2001-01-01T00:00:00+00:00"}'
    redis_client.hset(keys.runtime_schedules, "definition:digest", ended)
    with pytest.raises(InvalidSchedule, match="it has no tick any more"):
        schedules.skip("digest", queue="emails")
    redis_client.hset(keys.runtime_schedules, "definition:digest", "{}")
    with pytest.raises(InvalidSchedule, match="is not valid"):
        schedules.skip("digest", queue="emails")


def test_more_ticks_than_a_few_are_skipped_by_a_pause(keys):
    first = hourly().next_at
    for count in range(20):
        schedules.skip("digest", queue="emails", tick=first + count * HOUR)
    with pytest.raises(InvalidSchedule, match="skips 20 ticks already, the most that it may skip: pause it"):
        schedules.skip("digest", queue="emails", tick=first + 20 * HOUR)


def test_one_that_others_broke_is_shown_replaced_and_deleted(keys, redis_client):
    redis_client.hset(keys.runtime_schedules, "definition:bad", '{"every": 0}')
    found = schedules.get("bad", queue="emails")
    assert found.problem
    with pytest.raises(InvalidSchedule, match="is not valid"):
        schedules.fire("bad", queue="emails")
    assert schedules.update("bad", queue="emails", every=60, message="m").problem == ""
    schedules.delete("bad", queue="emails")


def test_every_method_has_an_asynchronous_version(keys):
    async def use():
        await schedules.acreate("digest", queue="emails", every=60, message="m")
        await schedules.apause("digest", queue="emails")
        await schedules.aresume("digest", queue="emails")
        tick = await schedules.askip("digest", queue="emails")
        assert await schedules.aunskip("digest", queue="emails") == tick
        await schedules.aupdate("digest", queue="emails", priority=1)
        found = await schedules.aget("digest", queue="emails")
        await schedules.afire("digest", queue="emails")
        assert [found] != await schedules.aget_all("emails")
        await schedules.adelete("digest", queue="emails")
        return found

    assert asyncio.run(use()).options["priority"] == 1
