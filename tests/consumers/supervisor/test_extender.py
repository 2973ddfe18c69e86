"""What runs for long is extended, and who lost it is told once."""

import time

import pytest

from mq_django.conf import get_config
from mq_django.consumers.shared_state import Receipt, Running
from mq_django.consumers.supervisor.services import Extender
from mq_django.core.keys import GROUP
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.commands import script_calls


class Runs:
    def __init__(self):
        self.found = {}

    def running(self):
        return self.found


@pytest.fixture
def store(mq_settings):
    # Opened after the settings are changed: then its connections are closed with the test.
    mq_settings(QUEUES={"default": {"VISIBILITY_TIMEOUT": 3600}})
    return open_store(get_config().queue("default"), Pooled(get_client("produce")))


@pytest.fixture
def rig(store, publish, redis_client):
    runs = Runs()
    extender = Extender({0: get_config().queue("default")}, runs)
    publish()
    publish()
    store.create_groups()
    extender.held = store.take("me", count=2)
    extender.runs = runs
    return extender


def note(rig, age):
    moment = time.monotonic() - age
    rig.runs.found = {"me": [Running(Receipt(0, item.stream, item.entry), moment, 1e9) for item in rig.held]}


def idle_ms(client, store):
    rows = client.xpending_range(store.keys.ready, GROUP, "-", "+", 9)
    return [row["time_since_delivered"] for row in rows]


def test_what_has_run_for_a_seventh_of_the_timeout_is_extended(rig, store, redis_client):
    entries = [item.entry for item in rig.held]
    redis_client.xclaim(store.keys.ready, GROUP, "me", 0, entries, idle=100_000, justid=True)
    note(rig, 600.0)
    assert rig.run_once() == pytest.approx(3600 / 7)
    assert max(idle_ms(redis_client, store)) < 50_000


def test_what_has_just_begun_costs_no_command(rig, redis_client):
    note(rig, 0.01)
    before = script_calls(redis_client)
    rig.run_once()
    assert script_calls(redis_client) == before


def test_who_lost_a_delivery_is_told_once(rig, store, caplog):
    note(rig, 600.0)
    store.reassign("me", "other", [(rig.held[0].stream, rig.held[0].entry)])
    rig.run_once()
    rig.run_once()
    assert caplog.text.count("which it no longer holds") == 1
    assert len(store.held_by("other", limit=9)) == 1
    # Once it has ended, nothing of it is remembered.
    rig.runs.found = {}
    rig.run_once()
    assert rig._lost == set()
