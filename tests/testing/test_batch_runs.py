"""In a test, handlers of batches get lists, and each of their messages is handled as in a consumer."""

import pytest

from mq_django import Ack, Bury, Retry, handler, subscriber, topics
from mq_django.errors import EndlessRun, InvalidOutcomes
from mq_django.middleware import around_handling
from mq_django.testing.faults import crash_at
from mq_django.testing.idempotence import assert_idempotent
from mq_django.testing.runs import ensure_groups
from tests.seeding import publish, publish_many
from tests.testapp.models import Tag
from tests.working import run

pytestmark = pytest.mark.usefixtures("handlers", "only_functions")


@pytest.fixture
def calls():
    return []


@pytest.fixture
def stores(calls):
    """Register a handler of batches, which notes its calls and fails for the data "bad"."""

    @handler("emails", "store", batch=4)
    def store(messages):
        calls.append([message.data for message in messages])
        if "bad" in calls[-1]:
            raise ValueError("bad")

    return store


def data_of(handled):
    return [each.message.data for each in handled]


def test_a_call_gets_the_messages_that_are_ready(stores, calls, depths):
    publish_many("emails", [("store", number) for number in range(6)])
    handled = run()
    assert calls == [[0, 1, 2, 3], [4, 5]]
    assert data_of(handled) == list(range(6))
    assert {type(each.outcome) for each in handled} == {Ack}
    assert depths("emails").depth == 0


def test_coroutine_functions_get_lists_too(calls):
    @handler("emails", "store", batch=10, linger=30)
    async def store(messages):
        calls.append([message.data for message in messages])

    publish_many("emails", [("store", number) for number in range(3)])
    run()
    # The time of a test stands still, so nothing waits.
    assert calls == [[0, 1, 2]]


def test_the_message_that_fails_is_alone_in_the_end(stores, calls):
    publish_many("emails", [("store", data) for data in (0, 1, "bad", 3)])
    handled = {each.message.data: each for each in run("emails")}
    assert calls[:5] == [[0, 1, "bad", 3], [0, 1], ["bad", 3], ["bad"], [3]]
    assert {data for data, each in handled.items() if isinstance(each.outcome, Ack)} == {0, 1, 3}
    assert isinstance(handled["bad"].exception, ValueError)
    assert handled["bad"].error == "ValueError: bad"


def test_a_wrong_return_value_is_an_error_of_the_test():
    @handler("emails", "store", batch=10)
    def store(messages):
        return [None]

    publish_many("emails", [("store", number) for number in range(2)])
    with pytest.raises(InvalidOutcomes, match="1 outcomes for 2 messages"):
        run(raise_errors=True)


def test_a_subscriber_gets_lists(calls, mq_settings):
    mq_settings(QUEUES={"default": {}}, TOPICS={"orders": {}})

    @subscriber("orders", group="billing", batch=10)
    def bill(messages):
        calls.append([message.name for message in messages])

    ensure_groups()
    topics["orders"].publish("order.paid", 1)
    topics["orders"].publish("order.sent", 2)
    run()
    assert calls == [["order.paid", "order.sent"]]


def test_more_messages_than_expected_are_an_error(stores):
    publish_many("emails", [("store", number) for number in range(6)])
    with pytest.raises(EndlessRun):
        run(limit=5)


@pytest.mark.django_db
def test_a_handler_of_batches_can_be_idempotent():
    @handler("emails", "tag", batch=10)
    def tag(messages):
        for message in messages:
            Tag.objects.get_or_create(name=message.data)

    assert_idempotent(tag, "a")


@pytest.mark.django_db
def test_a_handler_of_batches_that_is_not_idempotent_is_found():
    @handler("emails", "tag", batch=10)
    def tag(messages):
        Tag.objects.bulk_create([Tag(name=message.data) for message in messages])

    with pytest.raises(AssertionError, match="is not idempotent"):
        assert_idempotent(tag, "a")


@pytest.mark.django_db
@pytest.mark.parametrize(("point", "tags"), [("before_handler", 0), ("before_on_commit", 1), ("after_effect", 1)])
def test_its_process_can_die_with_a_message(point, tags):
    @handler("emails", "tag", batch=10)
    def tag(messages):
        Tag.objects.bulk_create([Tag(name=message.data) for message in messages])

    publish("emails", "tag", "a")
    died = crash_at(point)
    assert died.data == "a"
    assert Tag.objects.count() == tags
    run()
    assert Tag.objects.count() == tags + 1


class TestMiddleware:
    @pytest.fixture
    def seen(self, mq_settings):
        seen = []

        @around_handling
        def note(handle):
            def middleware(handling):
                outcome = handle(handling)
                seen.append(([message.data for message in handling.messages], outcome, handling.exception))
                return Bury("refused") if "refuse" in seen[-1][0] else outcome

            return middleware

        mq_settings(QUEUES={"default": {}, "emails": {}}, MIDDLEWARE=[f"{__name__}.noting"])
        globals()["noting"] = note
        yield seen
        del globals()["noting"]

    def test_it_runs_around_each_call(self, stores, seen):
        publish_many("emails", [("store", data) for data in (0, "bad")])
        run("emails", limit=2)
        (both, outcome, error), (zero, acked, _), (bad, retried, _) = seen
        assert both == [0, "bad"]
        assert isinstance(outcome, Retry)
        assert not outcome.delay
        assert isinstance(error, ValueError)
        assert (zero, acked) == ([0], Ack())
        assert bad == ["bad"]
        assert retried.delay

    def test_its_own_outcome_is_that_of_all(self, stores, seen):
        publish_many("emails", [("store", data) for data in (0, "refuse")])
        assert [each.outcome for each in run("emails")] == [Bury("refused")] * 2

    def test_it_gets_the_worst_outcome_and_each_message_its_own(self, seen):
        @handler("emails", "store", batch=10)
        def store(messages):
            return [None, Bury("odd")]

        publish_many("emails", [("store", data) for data in (0, 1)])
        assert [each.outcome for each in run("emails")] == [Ack(), Bury("odd")]
        assert seen == [([0, 1], Bury("odd"), None)]


def test_a_replay_gives_lists_of_one(calls, mq_settings):
    mq_settings(QUEUES={"default": {}}, TOPICS={"orders": {}})

    @subscriber("orders", group="billing", batch=10)
    def bill(messages):
        calls.append([message.data for message in messages])
        return [Bury("odd") if message.data % 2 else None for message in messages]

    for number in range(2):
        topics["orders"].publish("order.paid", number)
    replayed = topics["orders"].group("billing").replay()
    assert calls == [[0], [1]]
    assert [message.data for message in replayed.handled] == [0]
    assert [error for _, error in replayed.failed] == ["odd"]
