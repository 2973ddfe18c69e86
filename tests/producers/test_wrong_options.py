"""An option that no message can have is the same error of ours wherever it is given, and names the option."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import transaction

from mq_django import queues, topics
from mq_django.errors import InvalidMessage
from tests.testapp import tasks


@pytest.fixture(autouse=True)
def configured(mq_settings):
    # Nothing may get there.
    mq_settings(CONNECTION="redis://127.0.0.1:1", QUEUES={"default": {}, "emails": {}}, TOPICS={"orders": {}})


#: An option and a value that it cannot have -> the words of the error, in all ways that take the option.
EVERYWHERE = [
    ("expires", -1, "expires must be above zero, not -1"),
    ("expires", 0, "expires must be above zero, not 0"),
    ("expires", timedelta(seconds=-5), "expires must be above zero"),
    ("expires", date(2030, 1, 1), "expires must be a datetime, a timedelta or a number of seconds"),
    ("expires", True, "expires must be a datetime"),
    ("key", 5, "key must be"),
    ("on_commit", "no", "on_commit must be True or False, not 'no'"),
    ("on_commit", 0, "on_commit must be True or False"),
    ("robust", "x", "robust must be True or False"),
    ("using", "nope", "using must be the alias of a database, not 'nope'; DATABASES has default"),
    ("using", 5, "using must be the alias"),
    ("using", ["default"], "using must be the alias"),
]
DELAYED = [
    ("delay", -1, "delay must be 0 to 3660 days, not -1"),
    ("delay", "soon", "delay must be a timedelta or a number of seconds"),
    ("delay", float("nan"), "delay must be"),
]
ONE = [
    ("unique", 5, "unique must be"),
    ("unique_for", -1, "unique_for must be 0 to 3660 days, not -1"),
    ("unique_for", 0, "unique_for must be above zero"),
    ("unique_for", "x", 'unique_for must be "handled", a timedelta or a number of seconds'),
    ("on_conflict", "bogus", "on_conflict must be one of replace, keep, earliest, error"),
    ("on_conflict", ["keep"], "on_conflict must be one of"),
    ("at_most", -1, "at_most must be 0 to 3660 days, not -1"),
    ("at_most", 4000 * 86_400, "at_most must be 0 to 3660 days"),
    ("at_most", "x", "at_most must be a timedelta or a number of seconds"),
]

WAYS = {
    "publish": (lambda options: queues["emails"].publish("welcome", 1, **options), [*EVERYWHERE, *DELAYED, *ONE]),
    "publish_many": (
        lambda options: queues["emails"].publish_many([("welcome", 1)], **options),
        [*EVERYWHERE, *DELAYED],
    ),
    "a topic": (lambda options: topics["orders"].publish("paid", 1, **options), EVERYWHERE),
    "many of a topic": (lambda options: topics["orders"].publish_many([("paid", 1)], **options), EVERYWHERE),
    # Already here, and not first at enqueue().
    "a task": (lambda options: tasks.noop.using(**options), [*EVERYWHERE, *DELAYED, *ONE]),
}


def test_a_wrong_value_is_refused_and_named(subtests):
    for way, (call, cases) in WAYS.items():
        for option, value, said in cases:
            options = {option: value}
            if option in ("unique_for", "on_conflict", "at_most"):
                options["unique"] = "k"
            if option in ("unique", "on_conflict", "at_most"):
                options["delay"] = 5
            with subtests.test(way, **{option: value}), pytest.raises(InvalidMessage, match=f"^{said}"):
                call(options)


def test_options_that_need_another_are_refused(subtests):
    for options, said in [
        ({"unique": "k"}, r"^unique= needs delay=, deliver_at= \(run_after= of a task\) or unique_for=$"),
        ({"unique_for": 5}, "^unique_for= needs unique=$"),
        ({"on_conflict": "keep"}, "^on_conflict= needs unique=$"),
        ({"on_conflict": "replace", "delay": 5}, "^on_conflict= needs unique=$"),
        ({"at_most": 5}, "^at_most= needs unique= and delay=: it limits"),
        ({"at_most": 5, "delay": 5}, "^at_most= needs unique= and delay="),
        ({"at_most": 5, "unique": "k", "unique_for": 5}, "^at_most= needs unique= and delay="),
        ({"at_most": 5, "unique": "k", "delay": 6}, "^at_most=5 is shorter than delay=6$"),
        ({"at_most": 5, "unique": "k", "delay": 5, "unique_for": 5}, "^at_most= contradicts unique_for=, with which"),
        ({"at_most": 5, "unique": "k", "delay": 5, "on_conflict": "keep"}, "^at_most= contradicts on_conflict='keep'"),
        ({"delay": 5, "expires": 4}, "would expire before it is due"),
    ]:
        with subtests.test(options=options, said=said):
            with pytest.raises(InvalidMessage, match=said):
                queues["emails"].publish("welcome", 1, **options)
            with pytest.raises(InvalidMessage, match=said):
                tasks.noop.using(**options).enqueue()


def test_a_moment_cannot_be_postponed():
    given = {"at_most": 5, "unique": "k"}
    with pytest.raises(InvalidMessage, match="at_most= needs unique= and delay=: it"):
        queues["emails"].publish("welcome", deliver_at=datetime(2040, 1, 1, tzinfo=UTC), **given)
    with pytest.raises(InvalidMessage, match="at_most= needs unique= and delay=: it"):
        tasks.noop.using(run_after=datetime(2040, 1, 1, tzinfo=UTC), **given).enqueue()


def test_cancelling_refuses_them_too(subtests):
    for options in [{"using": "nope"}, {"on_commit": "no"}, {"robust": "x"}]:
        with subtests.test(options=options):
            with pytest.raises(InvalidMessage):
                queues["emails"].cancel("x", **options)
            with pytest.raises(InvalidMessage):
                queues["emails"].reschedule("x", delay=5, **options)


@pytest.mark.django_db(transaction=True)
def test_they_are_refused_at_the_call_and_not_at_the_commit():
    with transaction.atomic(), pytest.raises(InvalidMessage, match="robust"):
        queues["emails"].publish("welcome", 1, robust="x")


def test_a_deadline_may_have_passed(mq_settings):
    options = {"expires": datetime(2020, 1, 1, tzinfo=UTC), "using": "other", "robust": True, "on_commit": False}
    assert tasks.noop.using(**options).publishing.expires == options["expires"]
