from dataclasses import fields

from mq_django.core.keys import FRONT, READY, QueueKeys

KEYS = QueueKeys("mq", "emails")


def test_keys_are_those_of_the_protocol():
    assert KEYS.ready == "mq:{emails}:ready"
    assert KEYS.due == "mq:{emails}:due"
    assert KEYS.waiting == "mq:{emails}:waiting"
    assert KEYS.dead_ids == "mq:{emails}:dead-ids"
    assert KEYS.minutes(7) == "mq:{emails}:counters:m:7"
    assert KEYS.hours(7) == "mq:{emails}:counters:h:7"
    assert KEYS.totals == "mq:{emails}:counters:total"
    assert KEYS.result("a1") == "mq:{emails}:result:a1"
    assert KEYS.parked == "mq:{emails}:parked"


def test_all_keys_of_a_queue_carry_its_name_as_hash_tag():
    named = [getattr(KEYS, field.name) for field in fields(KEYS) if not field.init]
    assert all(key.startswith("mq:{emails}:") for key in named)
    assert len(set(named)) == len(named)


def test_homes_are_found_by_their_number():
    assert KEYS.streams()[READY] == KEYS.ready
    assert KEYS.streams()[FRONT] == KEYS.front
