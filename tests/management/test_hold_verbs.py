"""`manage.py mq hold` and `release`, and what `mq status` says of what is held."""

import pytest

from mq_django import inspect, queues
from mq_django.core.breakers import MAX_HOLDS
from tests.management.test_mq import mq, mq_json, refusal
from tests.seeding import beat, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_messages_are_held_listed_and_released():
    assert mq("hold") == "Nothing is held.\n"
    assert mq("hold", "emails", "--name", "receipt", "--reason", "it burns", "--for", "2h") == "held\n"
    assert mq_json("hold", "emails", "--key", "c1") == {"held": True}
    named, keyed = sorted(mq_json("hold", "emails"), key=lambda row: row["kind"], reverse=True)
    assert (named["value"], named["state"], named["reason"], named["messages"]) == ("receipt", "held", "it burns", 0)
    assert named["until"] is not None
    assert (keyed["value"], keyed["until"]) == ("c1", None)
    assert mq_json("hold") == mq_json("hold", "emails")
    assert mq_json("release", "emails", "--name", "receipt") == {"held": False, "changed": True}
    assert mq("release", "emails", "--name", "receipt") == "was not held\n"
    assert mq("release", "emails", "--key", "c1") == "released\n"


def test_status_says_what_people_and_breakers_hold():
    beat("emails")
    publish("emails", "receipt", 1)
    mq("hold", "emails", "--name", "receipt", "--reason", "it burns")
    assert mq("hold", "emails", "--probe", "30", "--reason", "they said so") == "opened a breaker\n"
    (row,) = mq_json("status", "emails")
    assert row["problems"] == ["breaker", "hold"]
    assert [(held["kind"], held["state"]) for held in row["holds"]] == [("queue", "open"), ("name", "held")]
    shown = mq("status", "emails")
    assert "breaker open, some held" in shown
    assert "emails waits for its partner since 20" in shown
    assert "emails holds its messages named “receipt”. Held by " in shown
    with pytest.raises(SystemExit):
        mq("status", "emails", "--check")
    assert mq("release", "emails") == "released\n"
    assert [problem.kind for problem in inspect.problems("emails")] == ["hold"]
    (found,) = inspect.problems("emails")
    (named,) = (held for held in inspect.holds("emails") if held.kind == "name")
    assert (found.severity, found.since_ms) == ("notice", named.since_ms)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reason", "x"], "Give a queue, and --name or --key."),
        (["emails", "--for", "2h"], "Give a queue, and --name or --key."),
        (["--name", "receipt"], "Give a queue, and --name or --key."),
        (["emails", "--name", "a", "--key", "b"], "Give a name or a key, not both"),
        (["emails", "--name", ""], "Nothing has the name ''"),
        (["emails", "--name", "a", "--for", "2h", "--probe", "30"], "A breaker has no end of its own"),
    ],
)
def test_what_is_not_clear_is_refused(words, said):
    found, code = refusal("hold", *words)
    assert said in found
    assert code == 2
    assert inspect.holds("emails") == ()


def test_a_queue_that_cannot_hold_says_so(mq_settings):
    mq_settings(QUEUES={"emails": {"STORE": "rsmq"}})
    assert refusal("hold", "emails", "--name", "a") == (
        "Queue 'emails' is in RSMQ's format: nothing of it is held, so not 'name:a'",
        1,
    )


def test_the_most_holds_are_told():
    for number in range(MAX_HOLDS):
        inspect.hold("emails", name=f"n{number}")
    assert refusal("hold", "emails", "--name", "one more")[1] == 1
    assert queues["emails"].publish("receipt", 1)
