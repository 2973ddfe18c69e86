"""What people do to messages: counted, bounded, and safe to do again."""

import pytest

from mq_django import inspector
from mq_django.inspector import actions, dead_letters
from mq_django.inspector.messages import waiting
from tests.seeding import bury_garbage, bury_many, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


def entries() -> list[str]:
    return [letter.entry for letter in dead_letters.page("emails", limit=500).letters]


def test_redriving_some_counts_what_went_and_what_did_not(redis_client):
    bury_many("emails", 2)
    garbage = bury_garbage(redis_client, "emails", {"x": "y"})
    found = entries()

    outcome = dead_letters.redrive("emails", [*found, found[-1], "1-1", "nonsense"])

    assert (outcome.done, outcome.missing, outcome.refused) == (2, 2, 1)
    assert outcome.error is None
    assert dead_letters.find("emails", garbage) == entries()[0]
    assert inspector.queue("emails").ready == 2


def test_counting_up_to_one_leaves_out_the_newer():
    bury_many("emails", 3)
    until = dead_letters.count("emails").until
    bury_many("emails", 2)

    assert dead_letters.count("emails", until=until).count == 3
    assert dead_letters.count("emails").count == 5


def test_cancelling_counts_what_waited_and_what_did_not():
    publish("emails", "a", 1, delay=60, message_id="m1")
    publish("emails", "a", 1, delay=60, unique="cart:7")

    outcome = actions.cancel("emails", [b"m1", b"u:cart:7", b"gone", b"\xff"])

    assert (outcome.done, outcome.missing) == (2, 2)
    assert waiting("emails", "delayed", start=0, limit=1).total == 0
