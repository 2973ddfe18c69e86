"""What projects call: wrong arguments are errors of ours, before anything is read."""

import pytest

from mq_django import inspect, topics
from mq_django.errors import InvalidArguments, InvalidFilter, MQError, NotSupported
from tests.seeding import beat, opened, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


class Evil:
    def __repr__(self):
        raise RuntimeError("evil")


ODD = [10**5000, "\ud800", Evil(), None, -1, 1.5, b"x", ["\ud800"]]
CALLS = {
    "find_message": lambda odd: inspect.find_message("default", odd),
    "find_everywhere": lambda odd: inspect.find_everywhere(odd, seconds=1),
    "seconds": lambda odd: inspect.find_everywhere("x", seconds=odd),
    "ref": lambda odd: inspect.get_message("default", "ready", odd),
    "after": lambda odd: inspect.messages("default", "ready", after=odd, limit=5),
    "topic": lambda odd: inspect.in_log(odd, limit=5),
    "problems": inspect.problems,
    "limit": lambda odd: inspect.messages("default", "ready", limit=odd),
    "state": lambda odd: inspect.messages("default", odd, limit=5),
    "hours": lambda odd: inspect.activity("default", hours=odd),
    "queue": inspect.queue,
    "queues": inspect.queues,
    "cancel": lambda odd: inspect.cancel("default", odd),
    "redrive": lambda odd: inspect.redrive("default", odd),
    "delete": lambda odd: inspect.delete("default", [odd]),
    "move": lambda odd: inspect.move("default", odd, ["m1"]),
    "resubmit": lambda odd: inspect.resubmit("default", odd, "1"),
    "written": lambda odd: inspect.resubmit("default", "m1", odd),
    "who": lambda odd: inspect.start_job("default", "delete", "ready", who=odd),
    "what": lambda odd: inspect.start_job("default", odd, "ready", who="ann"),
    "rate": lambda odd: inspect.start_job("default", "delete", "ready", who="ann", rate=odd),
    "ask": lambda odd: inspect.ask("c1", odd),
    "run": inspect.run,
}


#: What fits: a number of seconds, and JSON of a dead letter that is not there.
FIT = [("seconds", 1.5), ("seconds", -1), ("written", "\ud800")]


def said_by(call, odd):
    """Return the text of an error of ours; "" if there is none."""
    try:
        call(odd)
    except MQError as error:
        return str(error)
    return ""


def test_an_odd_argument_is_an_error_of_ours_or_a_value_that_fits(subtests):
    for name, call in CALLS.items():
        for odd in ODD:
            with subtests.test(name=name, kind=type(odd).__name__):
                said = said_by(call, odd)
                assert said.isprintable()
                assert bool(said) or (name, odd) in FIT


def test_a_text_is_no_list_and_the_log_has_a_function_of_its_own():
    with pytest.raises(InvalidArguments, match="message_ids= takes a list of texts, not 'abc'"):
        inspect.cancel("default", "abc")
    with pytest.raises(InvalidArguments, match="what= takes one of redrive, move, delete, not 'explode'"):
        inspect.start_job("default", "explode", "ready", who="ann")
    with pytest.raises(InvalidArguments, match="limit= takes a whole number from 0 to 1,000,000,000, not '5'"):
        inspect.in_log("orders", limit="5")
    with pytest.raises(InvalidArguments, match="name= takes a text or None, not 7"):
        inspect.hold("default", name=7)
    with pytest.raises(NotSupported, match=r"in_log\(\)"):
        inspect.messages("default", "log", limit=5)


#: It looks like a secret.
KEY = f"ghp_{'a' * 36}"


def test_keys_have_no_secrets_and_what_waits_for_one_is_still_explained(mq_settings):
    mq_settings(QUEUES={"emails": {"CONCURRENCY": {"key": 1}}}, TOPICS={"orders": {}})
    ids = [publish("emails", "welcome", number, key=KEY) for number in range(2)]
    topics["orders"].publish("paid", 1, key=KEY, on_commit=False)
    opened("emails").take("c1", count=2)
    beat("emails", consumers=1)
    inspect.hold("emails", key=f"ghp_{'b' * 36}")
    (parked,) = inspect.messages("emails", "parked", limit=5).rows

    (hold,), *_ = held = [inspect.holds("emails"), inspect.queue("emails").holds, inspect.queues(["emails"])[0].holds]
    views = [
        parked,
        inspect.get_message("emails", "parked", parked.ref),
        inspect.find_message("emails", ids[0]),
        inspect.find_everywhere(ids[1], seconds=1).found[0].view,
        *inspect.in_log("orders", limit=5).rows,
    ]
    assert [view.key for view in views] == ["[redacted]"] * 5
    assert [each.value for (each,) in held] == ["[redacted]"] * 3
    assert hold.state == "held"
    assert inspect.why("emails", parked).startswith("The limit for key “[redacted]” is reached: 1 at once.")
    inspect.start_job("emails", "delete", "parked", who="ann", criteria=inspect.Filter(key=KEY))
    assert inspect.jobs("emails")["parked"].order.criteria.key == "[redacted]"
    # It is another key than the one that it stands for.
    with pytest.raises(InvalidFilter, match="A placeholder for a secret is no key"):
        inspect.hold("emails", key=parked.key)
