"""The keys that have most of the parked messages."""

import pytest

from mq_django import queues
from mq_django.core.limits import key_hash
from mq_django.inspector.key_lines import KeyShare
from mq_django.inspector.plans import noisiest
from tests import seeding


def park(mq_settings, keys, **options):
    """Publish a message of each key, of which one runs, and the others are parked."""
    mq_settings(QUEUES={"emails": options})
    store = seeding.opened("emails")
    for key in keys:
        queues["emails"].publish("sms", 1, key=key, on_commit=False)
    store.take("c1", count=100)
    return store


@pytest.mark.parametrize("options", [{"ORDERED": True}, {"CONCURRENCY": {"key": 1}}, {"RATE_LIMIT": {"key": "1/h"}}])
def test_the_keys_with_the_most_parked_messages_come_first(mq_settings, options):
    park(mq_settings, "aaaabab", **options)
    first, *others = noisiest("emails")
    assert first == KeyShare(key="a", hash=key_hash("a"), share=0.8)
    assert {(found.key, round(found.share, 2)) for found in others} == {("b", 0.2)}


def test_at_most_five_keys_are_named(mq_settings):
    park(mq_settings, [f"k{n % 20}" for n in range(60)], ORDERED=True)
    assert len(noisiest("emails")) == 5


def test_without_lines_there_is_none_and_nonsense_is_left_out(mq_settings, redis_client):
    park(mq_settings, "aaa", CONCURRENCY=1)
    assert noisiest("emails") == ()
    store = park(mq_settings, "", ORDERED=True)
    assert noisiest("emails") == []
    redis_client.zadd(store.keys.parked, {"p:1": "inf", "x": 7.5, "y": 8})
    assert [(found.key, found.hash) for found in noisiest("emails")] == [("", 8)]
