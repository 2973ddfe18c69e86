"""Nonsense in any place of a queue's keys hides nothing of it but itself, and nothing of other queues."""

import pytest

from mq_django import every, inspector
from mq_django.conf import get_config
from mq_django.core.schedules import Scheduled
from mq_django.stores import open_members
from mq_django.stores.schedules import Schedules
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.hostile_keys import DIGITS, LAST_ENTRIES, OF_STREAMS

pytestmark = pytest.mark.usefixtures("mq_settings")

PLACES = OF_STREAMS | LAST_ENTRIES


def test_every_queue_is_shown_and_a_heartbeat_reads_the_roll(redis_client, subtests, mq_settings):
    names = {f"q{number}": place for number, place in enumerate(PLACES)}
    mq_settings(QUEUES={name: {} for name in [*names, "default"]})
    for name, place in names.items():
        PLACES[place](redis_client, get_config().queue(name).keys)
    views = {view.name: view for view in inspector.overview()}
    assert {names.get(name, name): view.error for name, view in views.items() if view.error} == {}
    assert {*names, "default"} <= views.keys()
    for name, place in names.items():
        with subtests.test(place):
            config = get_config().queue(name)
            membership = open_members(config, Pooled(get_client("chores"))).beat("mine", {}, {"mine-1": {}})
            assert "mine" in membership.heartbeat_counts()
            assert membership.consumers_of("mine") == ["mine-1"]
            # Each of them can be struck off: who cannot would be found dead again and again.
            told = redis_client.hgetall(config.keys.consumers)
            assert {f"consumer:{name}".encode() for name in membership.consumers} <= told.keys()


NAMES, HOURLY = ("nightly", "hourly"), every(hours=1)


def test_a_tick_that_is_none_begins_now(redis_client, subtests):
    for last in [DIGITS, "x", "", "-5", "1e999", "253402300800000", b"\xff"]:
        with subtests.test(last=last):
            config = get_config().queue("default")
            redis_client.delete(config.keys.schedules)
            redis_client.hset(config.keys.schedules, mapping={"last:nightly": last})
            entries = [
                Scheduled(name=name, queue="default", message="m", data=None, when=every(hours=1)) for name in NAMES
            ]
            now_ms, (found, other) = Schedules(config, Pooled(get_client("chores"))).read_states(entries)
            assert found.last_ms == other.last_ms == now_ms
