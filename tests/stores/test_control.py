"""Pausing and resuming a queue."""

import time

import pytest

from mq_django.inspector import actions

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_pausing_twice_is_pausing_once_and_both_say_so(keys, redis_client):
    assert not actions.resume("emails")
    assert actions.pause("emails")
    assert not actions.pause("emails")
    assert redis_client.hget(keys.control, "paused") == b"1"
    assert actions.resume("emails")
    assert not redis_client.hexists(keys.control, "paused")


def test_a_pause_keeps_who_made_it_why_and_since_when_until_it_is_over(keys, redis_client):
    actions.pause("emails", who="ann", reason="deploy")
    noted = redis_client.hgetall(keys.control)
    assert not actions.pause("emails", who="bob", reason="other")

    assert redis_client.hgetall(keys.control) == noted
    assert (noted[b"paused-by"], noted[b"paused-reason"]) == (b"ann", b"deploy")
    assert abs(time.time() * 1000 - int(noted[b"paused-at"])) < 60_000
    actions.resume("emails")
    assert not redis_client.exists(keys.control)


def test_only_the_action_that_paused_a_queue_resumes_it_by_its_name(keys, redis_client):
    actions.pause_all(who="ann", name="deploy")
    assert redis_client.hget(keys.control, "paused-name") == b"deploy"
    assert actions.resume_all(name="other").changed == []
    assert "emails" in actions.resume_all(name="deploy").changed
    actions.pause("emails", who="bob")

    assert actions.resume_all(name="deploy").changed == []
    assert redis_client.hget(keys.control, "paused") == b"1"
    assert "emails" in actions.resume_all().changed
    assert not redis_client.exists(keys.control)


def test_supervisors_are_told_at_once(keys, redis_client):
    with redis_client.pubsub() as subscription:
        subscription.subscribe(keys.wake)
        subscription.get_message(timeout=5)
        actions.pause("emails")
        actions.resume("emails")
        told = [subscription.get_message(timeout=5)["data"] for _ in range(2)]

    assert told == [b"paused", b"resumed"]
