"""Each message goes through the parts of a consumer: executor, middleware, signals and settling."""

import contextvars
from datetime import timedelta
from itertools import product

import pytest
from django.utils import translation

from mq_django import Ack, Bury, CancelResult, Retry, handler, queues
from mq_django.conf import get_config
from mq_django.core.messages import Cancel
from tests.seeding import publish, publish_many
from tests.stores.acts import make_due
from tests.working import run

pytestmark = pytest.mark.usefixtures("handlers")


@pytest.fixture
def fails():
    """Register a handler that raises, and return its error."""
    error = ValueError("no")

    @handler("emails", "fail")
    def fail(message):
        raise error

    return error


def test_a_message_that_was_cancelled_before_the_run_does_not_start(mq_settings):
    calls = []
    handler("emails", "n")(calls.append)
    cancelled, other = publish("emails", "n"), publish("emails", "n")
    assert queues["emails"].cancel(cancelled, running=True, on_commit=False) is CancelResult.ASKED
    first, second = run()
    assert (first.message.id, first.outcome) == (cancelled, Cancel("Cancelled before it started"))
    assert ([message.id for message in calls], second.outcome) == ([other], Ack())


def test_a_handler_that_raises_is_retried_and_then_buried(mq_settings, fails, depths, redis_client):
    mq_settings(QUEUES={"emails": {"MAX_ATTEMPTS": 2, "RETRY": {"delay": 60, "jitter": 0}}})
    message_id = publish("emails", "fail")
    (first,) = run()
    assert (first.outcome.delay, first.error, first.exception) == (timedelta(minutes=1), "ValueError: no", fails)
    assert depths("emails").delayed == 1
    make_due(redis_client, get_config().queue("emails").keys, message_id)
    (second,) = run()
    assert (second.message.attempt, type(second.outcome), second.outcome.reason) == (2, Bury, "attempts")
    assert "ValueError: no" in second.outcome.traceback
    assert depths("emails") == (0, 0, 0, 0, 1, 0)


def test_an_entry_that_is_no_message_is_buried_and_reported(redis_client, depths):
    publish("emails", "fine")
    handler("emails", "fine")(lambda message: None)
    redis_client.xadd(get_config().queue("emails").keys.ready, {"garbage": "1"})
    fine, garbage = run()
    assert isinstance(fine.outcome, Ack)
    assert (garbage.message, garbage.handler, garbage.outcome.reason) == (None, "", "undecodable")
    assert garbage.error == garbage.outcome.error != ""
    assert depths("emails") == (0, 0, 0, 0, 1, 0)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_can_be_raised_after_it_is_settled(is_async, depths):
    error = ValueError("no")

    def fail(message):
        raise error

    async def afail(message):
        raise error

    handler("emails", "fail")(afail if is_async else fail)
    publish_many("emails", [("fail", 1), ("fail", 2)])
    with pytest.raises(ValueError, match="no") as caught:
        run(raise_errors=True)
    assert caught.value is error
    assert caught.traceback[-1].name == ("afail" if is_async else "fail")
    assert depths("emails") == (1, 1, 0, 0, 0, 0)


def test_an_outcome_that_is_no_error_is_not_raised():
    handler("emails", "later")(lambda message: Retry(delay=60))
    publish("emails", "later")
    assert len(run(raise_errors=True)) == 1


def test_what_is_for_the_test_always_comes_out(depths, mq_settings):
    mq_settings(QUEUES={"emails": {"RETRY": {"delay": 3600}}})
    errors = (KeyboardInterrupt, pytest.fail.Exception, pytest.skip.Exception)
    for count, (error, is_async) in enumerate(product(errors, (False, True)), 1):

        def stop(message, error=error):
            raise error("stop")

        async def astop(message, error=error):
            raise error("stop")

        handler("emails", f"stop {count}")(astop if is_async else stop)
        publish("emails", f"stop {count}")
        with pytest.raises(error):
            run()
        assert depths("emails") == (0, count, 0, 0, 0, 0)


def test_a_handler_that_exits_is_retried_as_in_a_consumer():
    @handler("emails", "exit")
    def leave(message):
        raise SystemExit(1)

    publish("emails", "exit")
    (handled,) = run()
    assert isinstance(handled.outcome, Retry)
    assert isinstance(handled.exception, SystemExit)


def test_a_handler_finds_only_its_own_message_pending(depths):
    found = []
    handler("emails", "look")(lambda message: found.append(depths("emails")))
    publish_many("emails", [("look", number) for number in range(3)])
    run()
    assert [(each.ready, each.pending) for each in found] == [(2, 1), (1, 1), (0, 1)]


def test_context_and_language_end_with_the_message():
    variable = contextvars.ContextVar("variable", default="")

    @handler("emails", "change")
    def change(message):
        assert variable.get() == ""
        variable.set("changed")
        translation.activate("de")

    publish_many("emails", [("change", 1), ("change", 2)])
    assert [type(each.outcome) for each in run()] == [Ack, Ack]
    assert (variable.get(), translation.get_language()) == ("", "en-us")
