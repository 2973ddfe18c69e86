"""The patterns that the documentation has for the keys and channels of each feature suffice, and each is needed."""

import asyncio

import pytest

from mq_django import CancelResult, aread_stream, get_result, inspector, queues, schedules, topics, wait_result
from mq_django.conf import get_config
from mq_django.core.keys import outbox_channel
from mq_django.core.messages import ACK, Retry
from mq_django.errors import StoreError, WaitTimeout
from mq_django.inspector import actions
from mq_django.outbox.insertion import Notifier
from mq_django.producers.message_streams import hubs
from mq_django.stores import open_members, open_store
from mq_django.stores.base import Settlement
from mq_django.stores.line_store import Shares
from mq_django.transport.connections import get_client, open_transport
from mq_django.workflows import chain
from tests.testapp import tasks
from tests.users import granted_to, line_of, noting_commands, rules_of, user
from tests.waiting import wait_until
from tests.working import work

pytestmark = pytest.mark.single_server(why="a user is made on one server")

SETTINGS = {
    "QUEUES": {"emails": {}, "payments": {"PARTITIONS": 3, "RATE_LIMIT": "1000/s"}},
    "TOPICS": {"events": {"PARTITIONS": 3}},
}


def listen(*channels):
    with get_client("chores").pubsub() as subscription:
        for channel in channels:
            try:
                subscription.subscribe(channel)
                assert subscription.get_message(timeout=5)["type"] == "subscribe"
            except Exception as error:
                raise StoreError(str(error)) from error


def consume(name):
    """Be a consumer and the supervisor of what has partitions."""
    for part in get_config().queue(name).each_part:
        transport = open_transport("consume")
        open_members(part, transport).beat("s1", {}, {"c1": {}})
        store = open_store(part, transport)
        store.create_groups()
        store.promote(limit=10)
        first, *others = [*store.take("c1", count=10), None]
        held = [Settlement(item, Retry(), 50_000) for item in others if item]
        held += [Settlement(first, ACK)] if first else []
        assert store.settle("c1", held) == []
        listen(part.keys.wake, part.keys.arrivals)
    for switched in (actions.pause(name), actions.resume(name)):
        assert switched
    view = inspector.queue(name)
    if view.error:
        raise StoreError(view.error)


def use_partitions():
    queue = queues["payments"]
    assert queue.publish_many([("pay", number) for number in range(20)])
    assert queue.cancel(queue.publish("pay", 1, delay=60, key="user:7"), key="user:7")
    consume("payments")
    shares = Shares(queue.config, open_transport("consume"), "c1")
    assert shares.ask(0, 5).messages
    listen(shares.channel)


def use_partitions_of_a_topic():
    events = topics["events"]
    events.group("billing").subscribe("beginning")
    assert events.publish_many([("paid", number) for number in range(20)])
    consume("events:billing")


def use_workflows():
    run = chain(tasks.note.using(queue_name="emails"), tasks.note.using(queue_name="emails")).start()
    for _ in range(2):
        work("emails")
    assert run.state


def use_outbox():
    channel = outbox_channel(get_config().namespace)
    if not Notifier._send("", channel):
        raise StoreError("not notified")
    listen(channel)


FEATURES = {
    "partitions": use_partitions,
    "topic partitions": use_partitions_of_a_topic,
    "workflows": use_workflows,
    "outbox": use_outbox,
}


@pytest.mark.parametrize("feature", FEATURES)
def test_the_patterns_of_a_feature_suffice_and_each_is_needed(
    feature, mq_settings, redis_client, redis_url, namespace, subtests
):
    own = [rule for rule in rules_of(feature, namespace) if rule[0] in "~&"]
    rules = [*rules_of("stream", namespace), *own]
    assert own
    for missing in ("", *own):
        with subtests.test(missing=missing), user(redis_client, redis_url, [r for r in rules if r != missing]) as url:
            mq_settings(CONNECTION=url, **SETTINGS)
            if not missing:
                FEATURES[feature]()
                continue
            with pytest.raises(StoreError, match=r"permission|can't publish|not notified"):
                FEATURES[feature]()


def publish_and_look():
    """Do what a process does that neither consumes nor shows the admin."""
    emails, orders = queues["emails"], topics["orders"]
    emails.publish("welcome", headers={"tenant": "north"})
    emails.publish_many([("welcome", number) for number in range(3)])
    emails.publish("welcome", priority=5)
    emails.publish("welcome", unique="u", unique_for="handled")
    for conflict in ("replace", "keep", "earliest"):
        waits = emails.publish("welcome", delay=60, unique="v", on_conflict=conflict)
    assert emails.find(waits)
    assert emails.reschedule(waits, delay=70)
    assert emails.cancel(waits)
    assert emails.cancel(emails.publish("welcome"), running=True) is CancelResult.ASKED
    assert emails.progress("nobody") is None
    assert orders.publish("paid", message_id="a") == orders.publish("paid", message_id="a")
    orders.publish_many([("paid", 1)])
    topics["events"].publish("paid", message_id="a")
    for name in ("payments", "ordered", "full"):
        queues[name].publish("pay", key="user:7", expires=60)
        assert queues[name].cancel(queues[name].publish("pay", key="user:7", delay=60), key="user:7")
    result = tasks.note.using(queue_name="emails").enqueue(1)
    tasks.note.using(queue_name="emails", delay=60).enqueue(1)
    assert get_result(result.id).args == [1]
    with pytest.raises(WaitTimeout):
        wait_result(result, timeout=0.01)
    run = chain(tasks.note.using(queue_name="emails"), tasks.note.using(queue_name="emails")).start()
    assert (run.state, run.cancel()) == ("running", True)
    schedules.create("daily", message="welcome", every=3600)
    schedules.update("daily", every=7200)
    schedules.pause("daily")
    schedules.resume("daily")
    assert schedules.get("daily")
    schedules.delete("daily")
    read_streams()
    use_outbox_as_publisher()


def read_streams():
    """Subscribe to a stream, and unsubscribe: what neither a lookup nor a stream that has ended does."""
    key = queues["full"].config.keys.message_stream("nobody")

    def await_subscribers(number):
        wait_until(lambda: get_client("produce").publish(key, b"") == number)

    async def begin_to_read():
        reading = asyncio.ensure_future(anext(aread_stream("nobody", queue="full", timeout=60)))
        await asyncio.to_thread(await_subscribers, 1)
        reading.cancel()

    asyncio.run(begin_to_read())
    await_subscribers(0)
    hubs.forget_all()


def use_outbox_as_publisher():
    assert Notifier._send("", outbox_channel(get_config().namespace))


def test_the_commands_of_a_process_that_only_publishes_suffice_and_each_is_needed(
    mq_settings, redis_client, redis_url, namespace
):
    needed = set()
    with user(redis_client, redis_url, [*line_of("web"), f"~{namespace}:*", f"&{namespace}:*"]) as url:
        more = {"default": {}, "ordered": {"ORDERED": True}, "full": {"MAX_DEPTH": 9, "RESULT_TTL": 0, "STREAM": True}}
        mq_settings(CONNECTION=url, QUEUES={**SETTINGS["QUEUES"], **more}, TOPICS={**SETTINGS["TOPICS"], "orders": {}})
        with noting_commands(redis_client, needed):
            publish_and_look()
    assert sorted(granted_to("web")) == sorted(needed)
