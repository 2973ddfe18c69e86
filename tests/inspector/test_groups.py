import pytest

from mq_django import inspector, topics
from mq_django.core.messages import ACK, Bury
from mq_django.stores.base import Settlement
from tests.seeding import opened


@pytest.fixture
def events(mq_settings):
    mq_settings(QUEUES={"emails": {}}, TOPICS={"events": {}})
    return topics["events"]


def test_groups_of_topics_are_shown_as_queues(events, redis_client):
    assert [view.name for view in inspector.overview()] == ["emails"]
    events.publish_many([("paid", n) for n in range(5)])
    redis_client.xgroup_create(events.config.keys.log, "elsewhere", "0")
    store = opened("events:billing")
    held = store.take("me", count=2)
    store.settle("me", [Settlement(held[0], Bury("no")), Settlement(held[1], ACK)])
    store.take("me", count=1)
    views = {view.name: view for view in inspector.overview()}
    assert set(views) == {"emails", "events:billing", "events:elsewhere"}
    billing = views["events:billing"]
    assert (billing.ready, billing.pending, billing.dead) == (2, 1, 1)
    assert 0 <= billing.oldest_ms < 60_000
    assert views["events:elsewhere"].ready == 5
    assert inspector.queue("events:billing").ready == 2
    counts = inspector.totals()
    assert (counts.published, counts.ready, counts.pending, counts.dead) == (5, 7, 1, 1)
