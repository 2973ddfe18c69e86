"""Schedules that are created at run time: who may change them, and what is left of them."""

import pytest

from mq_django import registry
from mq_django.core.schedules import Scheduled, every
from mq_django.stores.schedule_status import TAKEN, Origin, statuses
from mq_django.stores.schedules import Firing, RuntimeSchedules, Schedules
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests import places

HOURLY = b'{"message":"report","every":3600}'
DAILY = b'{"message":"report","every":86400}'


@pytest.fixture
def transport():
    return Pooled(get_client("consume"))


@pytest.fixture
def runtime(emails, transport):
    return RuntimeSchedules(emails.config, transport)


def status_of(emails, transport, name="nightly"):
    (found,) = statuses(emails.config, transport, name=name).found
    return found


def test_a_schedule_is_created_once(emails, runtime, transport, redis_client):
    before = places.now_ms(redis_client)
    assert runtime.define("nightly", HOURLY, before=b"", who="ann") == "DEFINED"
    assert runtime.define("nightly", DAILY, before=b"", who="ben") == "EXISTS"
    found = status_of(emails, transport)
    assert (found.origin, found.options, found.paused) == (Origin.RUNTIME, {"message": "report", "every": 3600}, False)
    assert (found.created_by, found.changed_by) == ("ann", "ann")
    assert before <= found.created_ms == found.changed_ms == found.last_ms < found.next_ms <= before + 3_600_000 + 5_000


def test_a_schedule_is_paused_by_somebody_and_resumed(emails, keys, runtime, transport, redis_client):
    runtime.define("nightly", HOURLY, before=b"", who="ann")
    assert runtime.pause("nightly", who="ben")
    assert not runtime.pause("nightly", who="eve")
    found = status_of(emails, transport)
    assert (found.paused, found.paused_by, found.next_ms) == (True, "ben", None)
    assert found.paused_ms >= found.created_ms
    tick = places.now_ms(redis_client) - 1
    redis_client.hset(keys.runtime_schedules, "last:nightly", 1000)
    (loaded,) = runtime.load()[1]
    assert runtime.fire(loaded.parsed.entry, tick)[0] is Firing.PAUSED
    assert runtime.resume("nightly")
    assert not runtime.resume("nightly")
    assert status_of(emails, transport).next_ms


def test_a_tick_needs_the_definition_that_is_in_redis(keys, runtime, redis_client):
    runtime.define("nightly", HOURLY, before=b"", who="")
    redis_client.hset(keys.runtime_schedules, "last:nightly", 1000)
    entry = runtime.load()[1][0].parsed.entry
    runtime.define("nightly", DAILY, before=HOURLY, who="")
    tick = places.now_ms(redis_client) - 1
    assert runtime.fire(entry, tick)[0] is Firing.CHANGED
    assert runtime.fire_now(entry) is None
    assert not redis_client.exists(keys.ready)
    entry = runtime.load()[1][0].parsed.entry
    assert runtime.fire(entry, tick)[0] is Firing.FIRED
    assert runtime.fire_now(entry)
    assert redis_client.xlen(keys.ready) == 2


def test_what_is_done_to_schedules_of_code_leaves_these_alone(emails, keys, runtime, transport):
    runtime.define("nightly", HOURLY, before=b"", who="", paused=True)
    of_code = Schedules(emails.config, transport)
    of_code.resume("nightly")
    of_code.forget("nightly")
    assert status_of(emails, transport).paused


def test_of_a_name_in_code_and_in_redis_that_in_code_fires(emails, runtime, transport, monkeypatch):
    monkeypatch.setattr(registry, "_schedules", {})
    runtime.define("nightly", HOURLY, before=b"", who="ann")
    registry.schedule(Scheduled(name="nightly", queue="emails", message="m", data=None, when=every(minutes=1)))
    in_code, hidden = statuses(emails.config, transport).found
    assert (in_code.origin, in_code.problem, hidden.origin, hidden.problem) == (
        Origin.CODE,
        "",
        Origin.RUNTIME,
        TAKEN,
    )
    assert in_code.next_ms
    assert hidden.next_ms is None


def test_a_definition_that_is_not_valid_has_a_problem(emails, keys, transport, redis_client):
    redis_client.hset(
        keys.runtime_schedules,
        mapping={b"definition:a\xff": HOURLY, "definition:b": '{"message":"m","every":"soon"}', "last:c": "1"},
    )
    first, second = statuses(emails.config, transport).found
    assert "printable" in first.problem
    assert "'every' must be" in second.problem
    assert (first.options, first.next_ms) == ({}, None)


def test_there_are_as_many_schedules_as_the_limit_allows(runtime, monkeypatch):
    monkeypatch.setattr("mq_django.stores.schedules.MAX_SCHEDULES", 1)
    assert runtime.define("a", HOURLY, before=b"", who="") == "DEFINED"
    assert runtime.define("b", HOURLY, before=b"", who="") == "DEFINED"
    assert runtime.define("c", HOURLY, before=b"", who="") == "FULL"
    assert runtime.define("a", DAILY, before=HOURLY, who="") == "DEFINED"


def skip_next(runtime, emails, transport):
    found = status_of(emails, transport)
    assert runtime.skip(found.entry, found.next_ms, who="ann") == "SKIPPED"
    return found


def test_a_tick_of_a_definition_that_was_replaced_is_not_skipped(emails, runtime, transport):
    runtime.define("nightly", HOURLY, before=b"", who="")
    before = status_of(emails, transport)
    runtime.define("nightly", DAILY, before=HOURLY, who="", anew=True)
    assert runtime.skip(before.entry, before.next_ms) == "CHANGED"
    runtime.delete("nightly")
    assert runtime.skip(before.entry, before.next_ms) == "CHANGED"


def test_what_a_deleted_schedule_skipped_is_forgotten(emails, runtime, transport, keys, redis_client):
    runtime.define("nightly", HOURLY, before=b"", who="")
    skip_next(runtime, emails, transport)
    runtime.delete("nightly")
    assert not redis_client.exists(keys.runtime_schedules)
    redis_client.hset(keys.runtime_schedules, "skips:nightly", "4000000000000 5 ann")
    runtime.define("nightly", HOURLY, before=b"", who="")
    assert list(status_of(emails, transport).skips) == []
