"""What people do to messages: counted, bounded, and safe to do again."""

import pytest

from mq_django import inspector
from mq_django.errors import ConnectionLost
from mq_django.inspector import actions, dead_letters
from mq_django.inspector.messages import waiting
from mq_django.stores.dead import DeadLetters
from tests.seeding import bury, bury_garbage, bury_many, dead_entry, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


def entries() -> list[str]:
    return [letter.entry for letter in dead_letters.page("emails", limit=500).letters]


def test_redriving_some_counts_what_went_and_what_did_not(redis_client):
    bury_many("emails", 2)
    garbage = bury_garbage(redis_client, "emails", {"x": "y"})
    found = entries()

    outcome = actions.redrive("emails", [*found, found[-1], "1-1", "nonsense"])

    assert (outcome.done, outcome.missing, outcome.refused) == (2, 2, 1)
    assert outcome.error is None
    assert dead_letters.find("emails", garbage) == entries()[0]
    assert inspector.queue("emails").ready == 2


def test_all_stops_at_the_last_one_wanted_and_steps_over_what_cannot_go_back(redis_client):
    bury_garbage(redis_client, "emails", {"x": "y"})
    bury_many("emails", 1200)
    until = dead_entry("emails")
    bury_garbage(redis_client, "emails", {"later": "y"})

    outcome = actions.redrive_all("emails", until=until)

    assert (outcome.done, outcome.refused, outcome.resume_after) == (1200, 1, None)
    view = inspector.queue("emails")
    assert (view.ready, view.dead) == (1200, 2)


def test_all_takes_up_where_time_ran_out(redis_client):
    bury_garbage(redis_client, "emails", {"x": "y"})
    bury_many("emails", 1100)
    until = dead_entry("emails")

    first = actions.delete_all("emails", until=until, seconds=0)
    second = actions.delete_all("emails", until=until, after=first.resume_after, seconds=0)
    third = actions.delete_all("emails", until=until, after=second.resume_after, seconds=10)

    assert (first.done, second.done, third.done) == (500, 500, 101)
    assert third.resume_after is None
    assert inspector.queue("emails").dead == 0


def test_nothing_is_done_to_all_up_to_nonsense():
    bury("emails")

    assert actions.delete_all("emails", until="+").done == 0
    assert actions.delete_all("emails", until="").done == 0
    assert inspector.queue("emails").dead == 1


def test_a_step_that_fails_keeps_the_count_and_says_where_to_go_on(monkeypatch):
    bury_many("emails", 1100)
    until, redrive, calls = dead_entry("emails"), DeadLetters.redrive, []

    def breaks_down(self, some):
        calls.append(len(some))
        if len(calls) == 2:
            raise ConnectionLost("gone")
        return redrive(self, some)

    monkeypatch.setattr(DeadLetters, "redrive", breaks_down)
    first = actions.redrive_all("emails", until=until)
    second = actions.redrive_all("emails", until=until, after=first.resume_after)

    assert (first.done, str(first.error)) == (500, "gone")
    assert (second.done, second.resume_after) == (600, None)
    assert inspector.queue("emails").ready == 1100


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
