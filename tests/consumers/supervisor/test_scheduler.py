import json
import logging
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import datetime, timedelta
from unittest import mock

import pytest

from mq_django import queues, registry
from mq_django.conf import get_config
from mq_django.consumers.supervisor.scheduler import Scheduler
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.core.messages import SetAside
from mq_django.core.schedules import Every, Scheduled, every
from mq_django.producers.queues import Queue
from mq_django.signals import message_published
from mq_django.stores import open_store
from mq_django.stores.schedules import RuntimeSchedules, Schedules, scheduled
from mq_django.transport.connections import get_client, open_transport
from mq_django.transport.sessions import Session
from tests import places
from tests.hearing import hears
from tests.signal_docs import arguments_of
from tests.waiting import now_ms_within, wait_until

HOUR = 3_600_000


@pytest.fixture
def keys(mq_settings):
    return get_config().queue("emails").keys


def entry(when, name="nightly"):
    return Scheduled(name=name, queue="emails", message="report", data=None, when=when)


@pytest.fixture
def make(mq_settings):
    def scheduler(*entries):
        return Scheduler(entries, {"emails": Schedules(get_config().queue("emails"), Session(get_client("consume")))})

    return scheduler


@contextmanager
def running(*schedulers):
    for scheduler in schedulers:
        scheduler.start()
    try:
        yield
    finally:
        for scheduler in schedulers:
            scheduler.stop()
        for scheduler in schedulers:
            assert scheduler.join(60)


def test_it_sleeps_until_the_next_tick_and_no_longer_than_a_minute(make, keys):
    assert make(entry(every(days=1))).run_once() <= 60
    hourly = make(entry(every(seconds=30)))
    assert 0 < hourly.run_once() <= 30


def test_a_tick_that_was_missed_is_made_up_for_with_a_word(make, keys, redis_client, caplog):
    redis_client.hset(keys.schedules, "last:nightly", places.now_ms(redis_client) - 3 * 86_400_000)
    with caplog.at_level(logging.WARNING):
        make(entry(every(days=1))).run_once()
        make(entry(every(days=1))).run_once()
    assert redis_client.xlen(keys.ready) == 1
    assert "Schedule nightly fired once for the ticks missed since" in caplog.text


@pytest.fixture
def published():
    """The arguments of each message_published."""
    with hears(message_published) as found:
        yield found


def test_a_tick_whose_queue_is_full_waits_for_room(mq_settings, make, redis_client, caplog, published):
    mq_settings(QUEUES={"default": {}, "emails": {"MAX_DEPTH": 1}})
    keys = get_config().queue("emails").keys
    queues["emails"].publish("welcome", 1)
    last = places.now_ms(redis_client) - 3 * 86_400_000
    redis_client.hset(keys.schedules, "last:nightly", last)
    scheduler = make(entry(every(days=1)))
    for _ in range(3):
        assert scheduler.run_once() <= 2
        scheduler._checks["emails"] = 0.0
    assert int(redis_client.hget(keys.schedules, "last:nightly")) == last
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "scheduler of schedule nightly failed, and will retry: Queue 'emails' is at its MAX_DEPTH of 1"
    ]
    redis_client.delete(keys.ready)
    assert scheduler.run_once() > 2
    assert [message["type"] for message in places.ready(redis_client, keys)] == ["report"]
    assert "Schedule nightly fired once for the ticks missed since" in caplog.text
    assert [arguments["name"] for arguments in published] == ["welcome", "report"]


def test_a_tick_that_is_too_large_is_an_error_and_is_not_published(mq_settings, make, redis_client, caplog):
    mq_settings(QUEUES={"default": {}, "emails": {"MAX_SIZE": 10}})
    keys = get_config().queue("emails").keys
    redis_client.hset(keys.schedules, "last:nightly", places.now_ms(redis_client) - 3 * 86_400_000)
    make(Scheduled(name="nightly", queue="emails", message="report", data="x" * 20, when=every(days=1))).run_once()
    assert places.ready(redis_client, keys) == []
    assert "MessageTooLarge: 22 bytes of data are more than the 10" in caplog.text


def test_each_tick_is_announced_by_the_process_that_fires_it(make, keys, redis_client, published):
    redis_client.hset(keys.schedules, "last:nightly", places.now_ms(redis_client) - 3 * 86_400_000)
    for _ in range(3):
        make(entry(every(days=1))).run_once()
    (message,) = places.ready(redis_client, keys)
    (arguments,) = published
    assert set(arguments) == arguments_of(message_published)
    assert [arguments[what] for what in ("sender", "queue", "name", "message_id")] == [
        *(Queue, "emails", "report", message["id"])
    ]


def test_of_several_ticks_that_were_missed_the_last_is_fired(make, keys, redis_client):
    now = now_ms_within(redis_client, HOUR)
    redis_client.hset(keys.schedules, "last:nightly", now - 3 * 86_400_000)
    hourly = Scheduled(
        name="nightly", queue="emails", message="report", data=None, when=every(hours=1), expires=timedelta(hours=2)
    )
    make(hourly).run_once()
    (message,) = places.ready(redis_client, keys)
    tick = now - now % HOUR
    assert datetime.fromisoformat(message["scheduledtime"]).timestamp() * 1000 == tick
    assert datetime.fromisoformat(message["expires"]).timestamp() * 1000 == tick + 7_200_000


@pytest.mark.single_server(why="counts the commands of one server")
def test_without_schedules_nothing_is_asked(make, redis_client):
    before = redis_client.info("stats")["total_commands_processed"]
    assert make().run_once() > 59
    assert redis_client.info("stats")["total_commands_processed"] == before + 1


def test_the_settings_replace_a_schedule_in_code_of_the_same_name(mq_settings, monkeypatch):
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(entry(every(minutes=1)))
    registry.schedule(entry(every(minutes=1), name="other"))
    mq_settings(SCHEDULES={"nightly": {"queue": "emails", "message": "report", "every": 3600}})
    assert {found.name: str(found.when) for found in scheduled()} == {
        "nightly": "every 1:00:00",
        "other": "every 0:01:00",
    }


@pytest.fixture
def make_two(mq_settings):
    """Return what makes a scheduler of one schedule in each of two queues, that of the first coming first."""

    def scheduler(when):
        entries = [
            Scheduled(name=queue, queue=queue, message="report", data=None, when=when)
            for queue in ("default", "emails")
        ]
        session = Session(get_client("consume"))
        stores = {name: Schedules(get_config().queue(name), session) for name in ("default", "emails")}
        return Scheduler(entries, stores)

    return scheduler


def is_fired(redis_client, queue):
    return redis_client.xlen(get_config().queue(queue).keys.ready) > 0


def test_a_schedule_whose_last_tick_makes_no_sense_goes_on(make_two, redis_client):
    redis_client.hset(get_config().queue("default").keys.schedules, "last:default", "nonsense")
    with running(make_two(Every(timedelta(milliseconds=200)))):
        wait_until(lambda: is_fired(redis_client, "default") and is_fired(redis_client, "emails"))


def test_a_queue_that_was_broken_for_a_while_fires_again(make_two, redis_client, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.supervisor.scheduler.TRY_AGAIN", 0.05)
    keys = get_config().queue("default").keys
    broken = [keys.schedules, keys.waiting, keys.control]
    redis_client.mset(dict.fromkeys(broken, "wrong"))
    with running(make_two(Every(timedelta(milliseconds=200)))):
        wait_until(lambda: is_fired(redis_client, "emails"))
        redis_client.delete(*broken)
        wait_until(lambda: is_fired(redis_client, "default"))


OFTEN = b'{"message":"report","every":1}'
HOURLY = b'{"message":"report","every":3600}'


def test_a_queue_with_many_schedules_does_not_make_the_others_late(mq_settings, redis_client, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.service.BUDGET", 0.0)
    every_queue = {name: get_config().queue(name).keys for name in ("default", "emails")}
    last = now_ms_within(redis_client, HOUR) - 2 * HOUR
    for number in range(5):
        fields = {f"definition:{number}": HOURLY, f"last:{number}": last}
        redis_client.hset(every_queue["default"].runtime_schedules, mapping=fields)
    redis_client.hset(every_queue["emails"].runtime_schedules, mapping={"definition:own": HOURLY, "last:own": last})
    session = Session(get_client("consume"))
    scheduler = Scheduler.of({number: get_config().queue(name) for number, name in enumerate(every_queue)}, session)
    fired = []
    while not fired or fired[-1] != (5, 1):
        assert len(fired) < 10
        assert scheduler.run_once() > 0
        fired.append(tuple(redis_client.xlen(keys.ready) for keys in every_queue.values()))
    # One of each queue is read and fired in a round, and the oldest first, so that none is left behind.
    assert fired == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]
    session.close()


@pytest.fixture
def runtime(mq_settings):
    return RuntimeSchedules(get_config().queue("emails"), Session(get_client("consume")))


@pytest.fixture
def make_runtime(mq_settings):
    """Return what makes a scheduler of the schedules in Redis, and of these in code."""

    def scheduler(*entries):
        config, session = get_config().queue("emails"), Session(get_client("consume"))
        return Scheduler(entries, {"emails": Schedules(config, session)}, {"emails": RuntimeSchedules(config, session)})

    return scheduler


def overdue(redis_client, keys, name, **fields):
    """Let ticks have been missed for a day."""
    redis_client.hset(keys.runtime_schedules, f"last:{name}", places.now_ms(redis_client) - 86_400_000)


def names_of(redis_client, keys):
    return sorted(message["type"] for message in places.ready(redis_client, keys))


def test_a_schedule_that_is_created_fires_in_schedulers_that_run(make_runtime, runtime, keys, redis_client):
    schedulers = [make_runtime() for _ in range(3)]
    with running(*schedulers):
        wait_until(lambda: all(scheduler._checked["emails"] > 0 for scheduler in schedulers))
        runtime.define("often", OFTEN, before=b"", who="ann")
        for scheduler in schedulers:
            scheduler.expect("emails")
        wait_until(lambda: redis_client.xlen(keys.ready) >= 2)
    ticks = Counter(message["scheduledtime"] for message in places.ready(redis_client, keys))
    assert set(ticks.values()) == {1}


def test_a_deleted_schedule_never_fires_where_it_is_still_known(make_runtime, runtime, keys, redis_client):
    runtime.define("often", OFTEN, before=b"", who="")
    overdue(redis_client, keys, "often")
    scheduler = make_runtime()
    scheduler._check("emails")
    scheduler._read_on()
    assert list(scheduler._next) == [("emails", "often")]
    runtime.delete("often")
    scheduler.run_once()
    assert not redis_client.exists(keys.ready)
    assert scheduler._next == {}


def test_a_changed_schedule_does_not_publish_its_earlier_message(make_runtime, runtime, keys, redis_client):
    runtime.define("often", OFTEN, before=b"", who="")
    overdue(redis_client, keys, "often")
    scheduler = make_runtime()
    scheduler._check("emails")
    scheduler._read_on()
    assert runtime.define("often", b'{"message":"other","every":1}', before=OFTEN, who="") == "DEFINED"
    scheduler.run_once()
    assert not redis_client.exists(keys.ready)
    wait_until(lambda: scheduler.run_once() and redis_client.exists(keys.ready))
    assert names_of(redis_client, keys) == ["other"]


def test_a_schedule_that_is_created_again_does_not_fire_for_the_time_before(make_runtime, runtime, keys, redis_client):
    runtime.define("daily", b'{"message":"report","every":86400}', before=b"", who="")
    overdue(redis_client, keys, "daily")
    runtime.delete("daily")
    runtime.define("daily", b'{"message":"report","every":86400}', before=b"", who="")
    make_runtime().run_once()
    assert not redis_client.exists(keys.ready)


INVALID = {
    "no JSON": b"\xff{",
    "a list": b"[1]",
    "no time": b'{"message":"m"}',
    "unknown option": b'{"message":"m","every":5,"import":"os"}',
    "another queue": b'{"message":"m","every":5,"queue":"default"}',
    "too often": b'{"message":"m","every":0.001}',
    "not a number": b'{"message":"m","every":1e400}',
    "priority": b'{"message":"m","every":5,"priority":1000}',
    "no key": b'{"message":"m","every":5,"key":"\\u0000"}',
    "too deep": b'{"message":"m","every":5,"data":' + b"[" * 900 + b"]" * 900 + b"}",
    "far away": b'{"message":"m","every":5,"starts":"9999-12-31T23:59:59Z"}',
    "long": b'{"message":"m","every":86400000000000}',
}


def test_definitions_that_are_not_valid_stop_no_other_schedule(make_runtime, runtime, keys, redis_client, caplog):
    for name, definition in INVALID.items():
        redis_client.hset(keys.runtime_schedules, f"definition:{name}", definition)
        overdue(redis_client, keys, name)
    redis_client.hset(keys.runtime_schedules, b"definition:\xff", OFTEN)
    redis_client.hset(keys.runtime_schedules, "definition:", OFTEN)
    runtime.define("often", OFTEN, before=b"", who="")
    overdue(redis_client, keys, "often")
    make_runtime().run_once()
    assert names_of(redis_client, keys) == ["report"]
    assert "schedule too often" in caplog.text


def test_a_definition_that_another_program_wrote_starts_now(make_runtime, keys, redis_client):
    redis_client.hset(keys.runtime_schedules, "definition:daily", b'{"message":"report","every":86400}')
    scheduler = make_runtime()
    scheduler.run_once()
    scheduler._check("emails")
    scheduler._read_on()
    assert not redis_client.exists(keys.ready)
    assert redis_client.hget(keys.runtime_schedules, "last:daily") == b"%d" % scheduler._loaded["emails", "daily"][1]


def test_a_forged_schedule_sends_a_message_that_no_handler_gets(make_runtime, keys, redis_client):
    """Its writer could have sent the message itself. A name is never imported."""
    forged = {"os.system": ["true"], "tests.example_imports.Marked": [], "builtins.eval": ["1"]}
    for name, arguments in forged.items():
        definition = json.dumps({"task": name, "args": arguments, "every": 60})
        redis_client.hset(keys.runtime_schedules, f"definition:{name}", definition)
        overdue(redis_client, keys, name)
    before = set(sys.modules)
    make_runtime().run_once()
    assert names_of(redis_client, keys) == sorted(forged)
    emails = get_config().queue("emails")
    store, settler, pool = open_store(emails, open_transport("consume")), mock.Mock(in_hand={}), mock.Mock()
    dispatcher = Dispatcher(
        "emails", settler=settler, executor=mock.Mock(), threads=pool, loop=pool, batches=mock.Mock(), isolate=None
    )
    store.create_groups()
    dispatcher.dispatch(store.take("c1", count=10))
    assert pool.mock_calls == []
    assert [type(each.args[0].outcome) for each in settler.add.mock_calls] == [SetAside] * len(forged)
    assert set(sys.modules) == before


def test_a_schedule_in_code_takes_precedence_over_one_of_the_same_name(make_runtime, runtime, keys, redis_client):
    runtime.define("nightly", b'{"message":"other","every":1}', before=b"", who="")
    overdue(redis_client, keys, "nightly")
    redis_client.hset(keys.schedules, "last:nightly", places.now_ms(redis_client) - 86_400_000)
    make_runtime(entry(every(seconds=1))).run_once()
    assert names_of(redis_client, keys) == ["report"]


def test_many_changes_are_read_together(make_runtime, runtime, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.supervisor.scheduler.MIN_PAUSE", 30.0)
    scheduler = make_runtime()
    scheduler.run_once()
    first = scheduler._checked["emails"]
    for _ in range(100):
        scheduler.expect("emails")
    assert scheduler.run_once() <= 30.0
    assert scheduler._checked["emails"] == first


def skip(redis_client, keys, *ticks):
    redis_client.hset(keys.schedules, "skips:nightly", "\n".join(f"{tick} 5 ann" for tick in ticks))


def ticks_of(redis_client, keys):
    return [
        round(datetime.fromisoformat(message["scheduledtime"]).timestamp() * 1000)
        for message in places.ready(redis_client, keys)
    ]


@pytest.mark.parametrize(("skipped", "fired"), [((0,), [1]), ((0, 1), [2]), ((1,), [0]), ((0, 1, 2), [])])
def test_of_the_missed_ticks_the_last_that_is_not_skipped_fires(make, keys, redis_client, caplog, skipped, fired):
    now = now_ms_within(redis_client, HOUR)
    hours = [now - now % HOUR - ago * HOUR for ago in range(3)]
    redis_client.hset(keys.schedules, "last:nightly", hours[2] - 1)
    skip(redis_client, keys, *(hours[ago] for ago in skipped))
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            make(entry(every(hours=1))).run_once()
    assert ticks_of(redis_client, keys) == [hours[ago] for ago in fired]
    assert not redis_client.hexists(keys.schedules, "skips:nightly")
    assert int(redis_client.hget(keys.schedules, "last:nightly")) >= now
    assert caplog.text.count("Schedule nightly skipped the tick of") == (not fired)


def test_a_skipped_tick_of_a_schedule_of_run_time_is_left_out(make_runtime, runtime, keys, redis_client):
    runtime.define("hourly", HOURLY, before=b"", who="")
    overdue(redis_client, keys, "hourly")
    now = places.now_ms(redis_client)
    last = now - now % HOUR
    # The next one, too: the hour may end meanwhile.
    redis_client.hset(keys.runtime_schedules, "skips:hourly", f"{last} 5 ann\n{last + HOUR} 5 ann")
    make_runtime().run_once()
    assert ticks_of(redis_client, keys) == [last - HOUR]
