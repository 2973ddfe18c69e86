"""What a handler of batches may return."""

import pytest

from mq_django.core.messages import ACK, Bury, Retry, outcomes_of, worst_of
from mq_django.errors import InvalidOutcomes


def test_one_outcome_is_that_of_all(subtests):
    for outcome in [Retry(delay=5), Bury("no")]:
        with subtests.test(outcome=outcome):
            assert outcomes_of(outcome, 2) == [outcome, outcome]


def test_an_error_becomes_text():
    """The text of a KeyError alone would be the key."""
    (outcome,) = outcomes_of([Bury(KeyError("bad"))], 1)
    assert (outcome.error, outcome.traceback) == ("KeyError: 'bad'", "KeyError: 'bad'\n")


def test_anything_else_is_an_error(subtests):
    for returned, text in [
        *((True, "must return None"), ({"a": 1}, "must return None"), ([], "0 outcomes for 2 messages")),
        *(([None], "1 outcomes for 2 messages"), ([None, "row"], "Outcome 1 must be")),
        ((Retry, None), "Outcome 0 must be"),
    ]:
        with subtests.test(returned=returned), pytest.raises(InvalidOutcomes, match=text):
            outcomes_of(returned, 2)


def test_middleware_gets_the_worst():
    assert worst_of([ACK, Retry(), Bury("a"), Bury("b")]) == Bury("a")
    assert worst_of([ACK, Retry(error="x"), ACK]) == Retry(error="x")
    assert worst_of([ACK, ACK]) is ACK
