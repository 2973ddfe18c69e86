"""Work a queue off in the test's own thread, with the consumer's own executor and settler."""

import asyncio
import threading
from functools import partial

from mq_django.conf import get_config
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.settler import Settler
from mq_django.core.messages import Undecodable
from mq_django.registry import find, of_call
from mq_django.stores import open_store
from mq_django.testing import runs
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

CONSUMER = "the-test"

#: As run() of the test kit, for tests that look at the outcomes of what fails.
run, arun = partial(runs.run, raise_errors=False), partial(runs.arun, raise_errors=False)


def work(queue, *, count=100):
    """Promote what is due, run what is ready once, settle it, and return the messages that ran."""
    config = get_config().queue(queue)
    store = open_store(config, Pooled(get_client("consume")))
    store.create_groups()
    store.promote(limit=100)
    deliveries = [item for item in store.take(CONSUMER, count=count) if not isinstance(item, Undecodable)]
    shared_state = SharedState.create(1)
    try:
        settler = Settler(store, queue, CONSUMER, threading.Event(), threading.Event())
        executor = Executor(config, 0, shared_state, settler)
        lane = Lane()
        for delivery in deliveries:
            message = delivery.message
            executor.run(lane, delivery, of_call(find(message.queue, message.name), message))
        settler.settle(store)
    finally:
        shared_state.close()
    return [delivery.message for delivery in deliveries]


def take(queue):
    """Return the messages that are ready, whoever may handle them. They are not there a second time."""
    store = open_store(get_config().queue(queue), Pooled(get_client("consume")))
    store.create_groups()
    store.promote(limit=100)
    return [delivery.message for delivery in store.take(CONSUMER, count=100)]


class Lane:
    """The test's own thread, within the transaction of the test."""

    number = 0

    def __init__(self):
        self.databases = Databases.of_this_thread()

    @staticmethod
    def call(handler, message, timeout):
        returned = handler.call([message] if handler.batch else message)
        return asyncio.run(_awaited(returned)) if handler.is_async else returned


async def _awaited(coroutine):
    return await coroutine
