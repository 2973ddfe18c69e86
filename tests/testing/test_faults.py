"""The process dies at a point, and the message is recovered by what recovers those of dead consumers."""

from itertools import product

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction

from mq_django import Ack, handler, queues, subscriber, topics
from mq_django.errors import TestKitError
from mq_django.middleware import around_handling
from mq_django.signals import handler_finished, message_buried
from mq_django.testing.faults import POINTS, crash_at
from mq_django.testing.runs import ensure_groups, run
from tests.hearing import hears
from tests.seeding import publish, publish_many
from tests.testapp.models import Tag

pytestmark = pytest.mark.usefixtures("handlers")


@around_handling
def atomically(handle):
    def middleware(handling):
        with transaction.atomic():
            return handle(handling)

    return middleware


@around_handling
def finally_note(handle):
    def middleware(handling):
        Tag.objects.create(name="before")
        try:
            return handle(handling)
        except Exception:
            Tag.objects.create(name="caught")
            raise

    return middleware


@pytest.fixture
def events():
    return []


@pytest.fixture
def pays(only_functions, events):
    """Register the handler `pay`, which notes what it does, and publish a message for it."""

    @handler("emails", "pay")
    def pay(message):
        with transaction.atomic():
            Tag.objects.create(name="paid")
            transaction.on_commit(lambda: events.append("hook"))
        events.append("handled")

    return publish("emails", "pay", {"amount": 5}, key="k")


def tags():
    return sorted(Tag.objects.values_list("name", flat=True))


def test_a_function_gets_as_far_as_the_point(events, depths):
    for point, is_async in product(POINTS, (False, True)):

        def call(message):
            events.append("handled")

        async def acall(message):
            events.append("handled")

        events.clear()
        name = f"{point} {is_async}"
        handler("emails", name)(acall if is_async else call)
        message_id = publish("emails", name, 1)
        message = crash_at(point)
        assert (message.id, message.data, message.attempt) == (message_id, 1, 1)
        assert events == ([] if point == "before_handler" else ["handled"]), name
        assert depths("emails") == (1, 0, 0, 0, 0, 0)
        (handled,) = run()
        assert (handled.message.id, handled.message.attempt, type(handled.outcome)) == (message_id, 2, Ack)


@pytest.mark.django_db
class TestInTheTransactionOfATest:
    def test_before_the_commit_hooks_the_changes_are_there_and_the_hooks_are_lost(self, pays, events):
        crash_at("before_on_commit")
        assert (tags(), events) == (["paid"], ["handled"])
        run()
        assert (tags(), events) == (["paid", "paid"], ["handled", "handled", "hook"])

    def test_the_tests_own_hooks_wait_for_its_commit(self, pays, events):
        transaction.on_commit(lambda: events.append("of the test"))
        crash_at("before_on_commit")
        assert len(connection.run_on_commit) == 1

    def test_the_transaction_of_middleware_is_committed_first(self, mq_settings, pays, events):
        mq_settings(MIDDLEWARE=[f"{__name__}.atomically"])
        crash_at("before_on_commit")
        assert (tags(), events) == (["paid"], ["handled"])

    def test_a_transaction_that_the_handler_has_left_open_is_rolled_back(self):
        @handler("emails", "leave")
        def leave(message):
            transaction.atomic().__enter__()
            Tag.objects.create(name="x")

        publish("emails", "leave")
        crash_at("before_on_commit")
        assert tags() == []
        assert connection.needs_rollback is False

    def test_coroutine_functions_have_hooks_too(self, events):
        @handler("emails", "pay")
        async def pay(message):
            await Tag.objects.acreate(name="paid")
            await sync_to_async(transaction.on_commit)(lambda: events.append("hook"))

        publish("emails", "pay")
        crash_at("before_on_commit")
        assert (tags(), events) == (["paid"], [])


@pytest.mark.django_db(transaction=True)
class TestOutsideOfATransaction:
    def test_the_process_dies_at_the_first_commit_with_a_hook(self, pays, events):
        crash_at("before_on_commit")
        assert (tags(), events) == (["paid"], [])
        assert connection.run_on_commit == []
        run()
        assert events == ["hook", "handled"]

    def test_without_a_hook_it_dies_at_the_end_of_the_function(self, events):
        @handler("emails", "change")
        def change(message):
            with transaction.atomic():
                Tag.objects.create(name="x")
            events.append("handled")

        publish("emails", "change")
        crash_at("before_on_commit")
        assert (tags(), events) == (["x"], ["handled"])


@pytest.mark.django_db
def test_no_except_exception_of_middleware_catches_it(only_functions, mq_settings):
    mq_settings(MIDDLEWARE=[f"{__name__}.finally_note"])
    handler("emails", "note")(lambda message: None)
    publish("emails", "note")
    crash_at("before_handler")
    assert tags() == ["before"]


def test_nothing_is_said_of_an_outcome():
    handler("emails", "note")(lambda message: None)
    publish("emails", "note")
    with hears(handler_finished) as told:
        crash_at("after_effect")
    assert told == []


def test_what_is_for_the_test_comes_out(depths, mq_settings):
    mq_settings(QUEUES={"emails": {"RETRY": {"delay": 3600}}})

    @handler("emails", "stop")
    def stop(message):
        pytest.fail("stop")

    for count, point in enumerate(("before_on_commit", "after_effect"), 1):
        publish("emails", "stop")
        with pytest.raises(pytest.fail.Exception):
            crash_at(point)
        assert depths("emails").delayed == count


def test_a_crash_at_the_last_attempt_makes_a_dead_letter(mq_settings, depths):
    mq_settings(QUEUES={"emails": {"MAX_ATTEMPTS": 2}})
    handler("emails", "note")(lambda message: None)
    publish("emails", "note")
    with hears(message_buried) as told:
        crash_at("before_handler")
        crash_at("before_handler")
    assert ([given["reason"] for given in told], depths("emails").dead, run()) == (["crashed"], 1, [])


def test_only_one_message_runs(events, depths):
    handler("emails", "note")(lambda message: events.append(message.data))
    publish_many("emails", [("note", 1), ("note", 2)])
    crash_at("after_effect")
    assert events == [1]
    assert sorted(each.message.data for each in run()) == [1, 2]


def test_messages_without_a_handler_are_passed_over(depths):
    handler("emails", "note")(lambda message: None)
    publish_many("emails", [("unknown", 1), ("note", 2)])
    assert crash_at("before_handler").name == "note"
    assert depths("emails").unhandled == 1


@pytest.mark.parametrize("options", [{"CONCURRENCY": 1}, {"RATE_LIMIT": "10/s"}, {"STORE": "rsmq"}])
def test_each_kind_of_queue_recovers_its_message(mq_settings, namespace, options):
    mq_settings(QUEUES={"emails": {**options, **({"NAMESPACE": f"{namespace}:r"} if "STORE" in options else {})}})
    handler("emails", "note")(lambda message: None)
    publish("emails", "note", 1)
    crash_at("after_effect")
    (handled,) = run()
    assert handled.message.data == 1


def test_the_group_of_a_topic_recovers_its_message(mq_settings):
    mq_settings(TOPICS={"orders": {}})
    found = []
    subscriber("orders", group="billing", name="paid")(lambda message: found.append(message.data))
    ensure_groups()
    topics["orders"].publish("paid", 7, on_commit=False)
    assert crash_at("after_effect", "orders").queue == "orders:billing"
    assert len(run()) == 1
    assert found == [7, 7]


def test_an_unknown_point_is_refused():
    with pytest.raises(TestKitError, match="before_handler, before_on_commit, after_effect, not 'later'"):
        crash_at("later")


def test_without_a_ready_message_it_says_which_queue_is_empty():
    publish("emails", "note", delay=60)
    with pytest.raises(TestKitError, match="No message is ready in 'emails'"):
        crash_at("after_effect", "emails")


@pytest.mark.django_db
def test_a_message_that_waits_for_the_commit_is_named():
    queues["emails"].publish("note", 1)
    with pytest.raises(TestKitError, match=r"1 message waits for the commit: call mq\.commit"):
        crash_at("after_effect", "emails")


def test_on_an_event_loop_it_says_what_to_await():
    async def crash():
        crash_at("after_effect")

    with pytest.raises(SynchronousOnlyOperation, match=r"await sync_to_async\(mq\.crash_at\)"):
        async_to_sync(crash)()
