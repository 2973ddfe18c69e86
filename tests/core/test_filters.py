import pytest

from mq_django.core.filters import NOTHING, FailureGroup, Filter, error_class
from mq_django.core.jsontext import dumps, loads
from mq_django.core.messages import Message
from mq_django.errors import InvalidFilter
from tests.foreign_errors import FOREIGN_ERRORS

MESSAGE = Message("m1", "order.paid", 1, "q", key="order:7", published_ms=1000)


def test_a_filter_takes_what_fits_all_of_it(subtests):
    for wanted, matches in [
        ({}, True),
        ({"id": "m1"}, True),
        ({"id": "m"}, False),
        ({"name": "ORDER"}, True),
        ({"name": "unpaid"}, False),
        ({"key": "order:7"}, True),
        ({"key": "order"}, False),
        ({"error": "smtp"}, True),
        ({"error": "hunter2"}, False),
        ({"since_ms": 1000, "until_ms": 1001}, True),
        ({"until_ms": 1000}, False),
        ({"since_ms": 1001}, False),
        ({"group": FailureGroup("order.paid", "mail.SMTPError")}, True),
        ({"group": FailureGroup("order", "mail.SMTPError")}, False),
        ({"group": FailureGroup("order.paid", "")}, False),
    ]:
        with subtests.test(wanted=wanted):
            assert Filter(**wanted).matches(MESSAGE, "mail.SMTPError: password=hunter2") is matches


def test_a_message_of_unknown_time_is_of_no_time():
    assert not Filter(since_ms=1).matches(MESSAGE._replace(published_ms=None))


def test_a_filter_comes_back_as_it_was_told(subtests):
    for wanted in [NOTHING, Filter(name="x", until_ms=3), Filter(group=FailureGroup("", ""))]:
        with subtests.test(wanted=wanted):
            assert Filter.of(loads(dumps(wanted.as_dict()))) == wanted


def test_what_is_no_filter_is_refused(subtests):
    for found in [
        *(None, [], "", 5, {"name": 5}, {"name": ""}, {"name": None}, {"name": ["a"]}, {"nmae": "a"}),
        *({"key": True}, {"since_ms": "1"}, {"until_ms": 1.5}, {"since_ms": True}),
        *({"group": "ab"}, {"group": ["a"]}, {"group": ["a", 1]}, {"group": {"name": "a", "error": "b"}}),
    ]:
        with subtests.test(found=found), pytest.raises(InvalidFilter):
            Filter.of(found)


def test_the_class_of_an_error_is_told_without_its_text(subtests):
    for error, name in [
        ("ValueError: no", "ValueError"),
        ("a.b.Error", "a.b.Error"),
        ("", ""),
        ("running when its process died", ""),
        ("no: x y", "no"),
        ("x" * 200 + ": no", "x" * 200),
        ("x" * 201 + ": no", ""),
        ("1Error: x", ""),
        ("Error\n", ""),
        *FOREIGN_ERRORS,
    ]:
        with subtests.test(error=error):
            assert error_class(error) == name
