"""The dead-letter queue: nothing is lost on the way back, and what cannot go back stays."""

from datetime import timedelta

import pytest

from mq_django.conf import get_config
from mq_django.core.filters import FailureGroup, Filter
from mq_django.core.keys import QueueKeys
from mq_django.core.messages import Delivery
from mq_django.inspector import dead_letters
from mq_django.stores.dead_letters import DeadLetters, is_entry, open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.foreign_errors import FOREIGN_ERRORS
from tests.seeding import bury, bury_garbage, take

pytestmark = pytest.mark.usefixtures("mq_settings")


@pytest.fixture
def dead(mq_settings: object) -> DeadLetters:
    return open_dead_letters(get_config().queue("emails"), Pooled(get_client("inspect")))


@pytest.fixture
def keys(mq_settings: object) -> QueueKeys:
    return get_config().queue("emails").keys


def test_redriving_makes_the_same_message_ready_at_its_first_attempt(dead, redis_client, keys):
    message_id = bury("emails", "welcome", {"user_id": 7}, key="user:7", headers={"deadline": "soon"})
    entry = dead_letters.find("emails", message_id)
    (letter,) = dead.traits(limit=5)

    assert dead.redrive([entry]) == ["REDRIVEN"]

    (delivery,) = take("emails", 10)
    assert isinstance(delivery, Delivery)
    assert delivery.message.id == message_id
    assert delivery.message.published_ms == letter.published_ms
    assert delivery.message.attempt == 1
    assert delivery.message.data == {"user_id": 7}
    assert delivery.message.key == "user:7"
    assert delivery.message.headers == {"deadline": "soon"}
    assert redis_client.xlen(keys.dead) == 0
    assert redis_client.hlen(keys.dead_ids) == 0


def test_an_attempt_does_not_come_back(dead, redis_client, keys):
    redis_client.xadd(keys.dead, {"id": "m1", "type": "welcome", "data": "1", "attempt": "5", "deadreason": "attempts"})
    ((entry, _),) = redis_client.xrange(keys.dead)

    dead.redrive([entry.decode()])

    ((_, fields),) = redis_client.xrange(keys.ready)
    assert fields == {b"id": b"m1", b"type": b"welcome", b"data": b"1"}


def test_a_message_that_expired_while_it_was_dead_is_handled_all_the_same(dead, redis_client, keys):
    entry = dead_letters.find("emails", bury("emails", expires=timedelta(hours=1)))
    assert dead_letters.get("emails", entry).expires_ms is not None

    dead.redrive([entry])

    (delivery,) = take("emails", 1)
    assert delivery.message.expires_ms is None


def test_a_class_of_another_language_is_counted_and_found_by_its_whole_name(dead, redis_client, keys, subtests, forget):
    for error, counted_as in FOREIGN_ERRORS:
        with subtests.test(error=error, counted_as=counted_as):
            forget()
            message_id = bury("emails", error=error)

            (counted,) = dead_letters.groups("emails")

            assert counted.group == FailureGroup("welcome", counted_as)
            assert Filter(group=counted.group).matches(
                dead_letters.get("emails", dead_letters.find("emails", message_id)), error
            )
            assert dead.redrive([dead_letters.find("emails", message_id)]) == ["REDRIVEN"]
            assert not redis_client.exists(keys.dead_groups)


def test_redriving_twice_does_it_once(dead, redis_client, keys):
    entry = dead_letters.find("emails", bury("emails"))

    assert dead.redrive([entry, entry]) == ["REDRIVEN", "MISSING"]
    assert dead.redrive([entry]) == ["MISSING"]
    assert redis_client.xlen(keys.ready) == 1


def test_what_is_no_message_stays_dead_with_its_bytes(dead, redis_client, keys):
    origin = bury_garbage(redis_client, "emails", {"type": "welcome", "\u202e": b"\xff\x00"})
    entry = dead_letters.find("emails", origin)

    assert dead.redrive([entry]) == ["UNDECODABLE"]

    letter = dead_letters.get("emails", entry)
    assert letter.problem
    assert letter.reason == "undecodable"
    assert b"\\xff" in letter.raw
    assert redis_client.xlen(keys.ready) == 0


def test_deleting_leaves_nothing_behind(dead, redis_client, keys):
    entry = dead_letters.find("emails", bury("emails"))
    garbage = dead_letters.find("emails", bury_garbage(redis_client, "emails", {"x": "y"}))

    assert dead.delete([entry, garbage, "1-1"]) == ["DELETED", "DELETED", "MISSING"]

    assert redis_client.xlen(keys.dead) == 0
    assert redis_client.hlen(keys.dead_ids) == 0


def test_deleting_the_first_of_two_under_one_id_keeps_the_second_findable(dead):
    bury("emails", message_id="twice")
    first = dead_letters.find("emails", "twice")
    bury("emails", message_id="twice")
    second = dead_letters.find("emails", "twice")

    dead.delete([first])

    assert first != second
    assert dead_letters.find("emails", "twice") == second


@pytest.mark.parametrize("newest_first", [True, False])
def test_one_call_reads_a_bounded_number_of_bytes(dead, redis_client, keys, monkeypatch, newest_first):
    """A megabyte takes 10 ms, in which nobody else is served."""
    entries = [redis_client.xadd(keys.dead, {"id": f"m{n}", "data": "x" * 2**20}).decode() for n in range(12)]
    pipeline, sizes = dead._transport.pipeline, []

    def note_and_send(commands):
        replies = pipeline(commands)
        sizes.append((len(replies[0]) - 2) // 2)
        return replies

    monkeypatch.setattr(dead._transport, "pipeline", note_and_send)
    total, found = dead.read(limit=11, newest_first=newest_first)
    assert (total, [entry for entry, _ in found]) == (12, (entries[::-1] if newest_first else entries)[:11])
    assert sizes == [5, 5, 1]


def test_only_what_can_be_an_entry_goes_to_redis(subtests):
    for text, possible in (
        ("1-0", True),
        ("18446744073709551615-18446744073709551615", True),
        ("18446744073709551616-0", False),
        ("1", False),
        ("+", False),
        ("(1-0", False),
        ("\u0661-0", False),
        ("", False),
    ):
        with subtests.test(text=text, possible=possible):
            assert is_entry(text) is possible
