"""Who is read from the fields of a queue's `consumers`, whatever strangers write there; and what a heartbeat keeps."""

import time

from mq_django.conf import get_config
from mq_django.stores import open_members
from mq_django.stores.members import read_membership
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


def test_a_name_that_is_empty_stands_for_nobody():
    kinds = ("beat", "seen", "supervisor", "consumer", "ask")
    membership = read_membership({f"{kind}:".encode(): b"1" for kind in kinds})
    assert membership.heartbeat_counts() == {}
    assert not membership.supervisors
    assert not membership.consumers


def test_a_heartbeat_that_is_late_gives_up_what_was_read_before(mq_settings, namespace, monkeypatch):
    mq_settings(QUEUES={"default": {"STORE": "rsmq", "NAMESPACE": namespace, "VT": 10}})
    members = open_members(get_config().queue("default"), Pooled(get_client("produce")))
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    since = []
    for now in (100.0, 105.0, 114.9, 125.0, 130.0):  # noqa: B007 - read by the clock
        members.beat("s", {}, {"c": {}})
        since.append(members.held_since)

    assert since == [100.0, 100.0, 100.0, 125.0, 125.0]


def test_a_late_heartbeat_gives_up_nothing_where_only_heartbeats_decide(mq_settings):
    mq_settings(QUEUES={"default": {}})
    members = open_members(get_config().queue("default"), Pooled(get_client("produce")))
    members.beat("s", {}, {"c": {}})
    assert members.held_since == 0.0
