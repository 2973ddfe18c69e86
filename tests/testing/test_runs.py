"""What is ready is handled in the test's own thread, and nothing stays behind."""

import asyncio
import threading

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation

from mq_django import Ack, Bury, Retry, handler, queues, subscriber, topics
from mq_django.consumers.worker import databases
from mq_django.core.messages import SetAside
from mq_django.errors import EndlessRun, TestKitError
from mq_django.inspector import actions
from mq_django.testing import runs
from mq_django.testing.runs import Handled, configs_of, ensure_groups
from tests.seeding import publish, publish_many
from tests.waiting import wait_until
from tests.working import arun, run

pytestmark = pytest.mark.usefixtures("handlers")


@pytest.fixture
def seen():
    """The data of what the handler `note` of the queues `default` and `emails` got."""
    found = []
    for queue in ("default", "emails"):
        handler(queue, "note")(lambda message: found.append(message.data))
    return found


def data_of(handled):
    return [each.message.data for each in handled]


@pytest.mark.versions
def test_what_is_ready_is_handled_in_its_order(seen, depths):
    publish_many("emails", [("note", number) for number in range(3)])
    handled = run()
    assert seen == data_of(handled) == [0, 1, 2]
    assert {type(each.outcome) for each in handled} == {Ack}
    assert depths("emails").depth == 0


def test_it_says_what_it_handled():
    @handler("emails", "pass on")
    def pass_on(message):
        return Bury("not mine")

    message_id = publish("emails", "pass on", {"n": 1}, key="k")
    (handled,) = run()
    assert (handled.message.id, handled.message.data, handled.message.key) == (message_id, {"n": 1}, "k")
    assert handled == Handled(handled.message, Bury("not mine"), f"{__name__}.{pass_on.__qualname__}", "not mine")
    assert handled.exception is None
    assert handled.seconds > 0


def test_only_the_queues_that_are_named_are_run(seen):
    publish("default", "note", 1)
    publish("emails", "note", 2)
    assert data_of(run("emails")) == [2]
    assert data_of(run("default")) == [1]


def test_a_queue_that_other_programs_handle_is_run_only_if_it_is_named(seen, mq_settings):
    mq_settings(QUEUES={"default": {"EXTERNAL": True}})
    publish("default", "note", 1)
    assert run() == []
    assert data_of(run("default")) == [1]


def test_what_a_handler_publishes_is_handled_in_the_same_run(seen):
    @handler("emails", "first")
    def first(message):
        queues["default"].publish("note", "second")

    publish("emails", "first")
    assert [each.message.name for each in run()] == ["first", "note"]
    assert seen == ["second"]


def test_a_handler_that_publishes_endlessly_is_an_error_and_leaves_nothing_pending(depths):
    @handler("emails", "again")
    def again(message):
        queues["emails"].publish("again", message.data + 1)

    publish("emails", "again", 1)
    with pytest.raises(EndlessRun, match=r"After 20 messages, queue 'emails'"):
        run(limit=20)
    found = depths("emails")
    assert (found.ready, found.pending) == (1, 0)


def test_a_retry_without_delay_is_handled_in_the_same_run():
    @handler("emails", "flaky")
    def flaky(message):
        return Retry(delay=0) if message.attempt < 3 else None

    publish("emails", "flaky")
    assert [(each.message.attempt, type(each.outcome)) for each in run()] == [(1, Retry), (2, Retry), (3, Ack)]


def test_a_message_without_a_handler_is_set_aside_until_there_is_one(depths):
    publish("emails", "later", 1)
    (handled,) = run()
    assert (handled.message.name, handled.outcome, handled.handler) == ("later", SetAside(), "")
    assert depths("emails").unhandled == 1
    assert run() == []
    handler("emails", "later")(lambda message: None)
    assert [type(each.outcome) for each in run()] == [Ack]


def test_a_message_without_a_handler_is_an_error_unless_it_is_expected(depths):
    publish_many("emails", [("later", 1), ("note", 2)])
    with pytest.raises(TestKitError, match=r"'emails' has no handler of 'later'\. Known: .*note"):
        runs.run()
    assert (depths("emails").unhandled, depths("emails").ready) == (1, 1)


def test_a_paused_queue_is_not_run(seen, depths):
    publish("emails", "note", 1)
    actions.pause("emails")
    assert run() == []
    assert (depths("emails").ready, seen) == (1, [])
    actions.resume("emails")
    assert data_of(run()) == [1]


def test_a_queue_in_the_format_of_rsmq_is_run(seen, mq_settings, namespace, depths):
    mq_settings(QUEUES={"emails": {"STORE": "rsmq", "NAMESPACE": namespace, "MAX_ATTEMPTS": 1}})

    @handler("emails", "fail")
    def fail(message):
        raise ValueError("no")

    publish("emails", "note", 1)
    publish("emails", "fail")
    publish("emails", "unknown")
    assert [type(each.outcome) for each in run()] == [Ack, Bury, SetAside]
    assert depths("emails")._replace(delayed=0) == (0, 0, 1, 0, 1, 0)


class TestTopics:
    @pytest.fixture(autouse=True)
    def _orders(self, mq_settings):
        mq_settings(TOPICS={"orders": {}})

    @pytest.fixture
    def billed(self):
        found = []
        subscriber("orders", group="billing")(lambda message: found.append(message.data))
        return found

    def test_every_group_is_run(self, billed):
        sent = []
        subscriber("orders", group="post", name="paid")(lambda message: sent.append(message.data))
        topics["orders"].publish_many([("paid", 1), ("refunded", 2)])
        handled = run()
        assert [(each.message.queue, each.message.data) for each in handled] == [
            ("orders:billing", 1),
            ("orders:billing", 2),
            ("orders:post", 1),
            ("orders:post", 2),
        ]
        assert (billed, sent) == ([1, 2], [1])

    def test_a_topic_stands_for_its_groups(self, billed):
        topics["orders"].publish("paid", 1)
        assert [each.name for each in configs_of(["orders"])] == ["orders:billing"]
        assert run("default") == []
        assert data_of(run("orders")) == [1]
        assert run("orders:billing") == []

    def test_a_group_that_starts_at_the_end_gets_what_is_published_after_its_start(self):
        found = []
        subscriber("orders", group="late", start="end")(lambda message: found.append(message.data))
        topics["orders"].publish("paid", "before")
        ensure_groups()
        topics["orders"].publish("paid", "after")
        run()
        assert found == ["after"]

    def test_a_group_of_a_topic_that_is_not_configured_is_left_out(self, mq_settings, billed):
        mq_settings()
        ensure_groups()
        assert run() == []


def test_coroutine_functions_run_one_after_another(depths):
    events = []

    @handler("emails", "slow")
    async def slow(message):
        events.append(("begins", message.data))
        await asyncio.sleep(0)
        events.append(("ends", message.data))

    publish_many("emails", [("slow", 1), ("slow", 2)])
    assert len(run()) == 2
    assert events == [("begins", 1), ("ends", 1), ("begins", 2), ("ends", 2)]
    assert depths("emails").depth == 0


def test_an_event_loop_awaits_it(seen):
    @handler("emails", "shout")
    async def shout(message):
        seen.append(message.data.upper())

    async def test():
        await queues["emails"].apublish("shout", "a")
        await queues["emails"].apublish("note", "b")
        return await arun("emails")

    assert data_of(async_to_sync(test)()) == ["a", "b"]
    assert seen == ["A", "b"]


def test_a_thread_with_an_event_loop_is_told_to_await_it():
    async def test():
        run()

    with pytest.raises(SynchronousOnlyOperation, match=r"await mq\.arun\(\)"):
        asyncio.run(test())


def test_nothing_outlives_a_run(seen):
    publish_many("emails", [("note", 1), ("note", 2)])
    # A thread of a test before this one may be about to end.
    before, own = set(threading.enumerate()), databases._thread.databases
    threads = []
    handler("emails", "thread")(lambda message: threads.append(threading.current_thread()))
    publish("emails", "thread")
    run()
    assert threads == [threading.current_thread()]
    assert set(threading.enumerate()) <= before
    assert databases._thread.databases == own


def test_the_thread_of_an_event_loop_ends(seen):
    @handler("emails", "shout")
    async def shout(message):
        seen.append(message.data)

    before = set(threading.enumerate())
    publish("emails", "shout", 1)
    run()
    wait_until(lambda: set(threading.enumerate()) <= before)
    assert seen == [1]
