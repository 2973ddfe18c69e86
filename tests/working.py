"""Work a queue off in the test's own thread, with the consumer's own executor and settler."""

import threading
from functools import partial

from asgiref.sync import async_to_sync

from mq_django.conf import get_config
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker import call_path
from mq_django.consumers.worker.batches import BatchPath
from mq_django.consumers.worker.call_path import WorkItem, path_of
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.settler import Settler
from mq_django.core.messages import Undecodable
from mq_django.registry import find, of_call
from mq_django.stores import open_store
from mq_django.testing import runs
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.seeding import opened

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
        of_queue = Executor(config, 0, shared_state, settler)
        for delivery in deliveries:
            message = delivery.message
            handle(of_queue, delivery, of_call(find(message.queue, message.name), message))
        settler.settle(store)
    finally:
        shared_state.close()
    return [delivery.message for delivery in deliveries]


def take(queue):
    """Return the messages that are ready, whoever may handle them. They are not there a second time."""
    store = opened(queue)
    store.promote(limit=100)
    return [delivery.message for delivery in store.take(CONSUMER, count=100)]


def handle(of_queue, delivery, handler, slot=None):
    """Run a delivery, on a slot of the test or on one that calls the handler."""
    path = BatchPath(handler, of_queue, None) if handler.batch else path_of(handler, of_queue)
    job = WorkItem(delivery, path, ((delivery, path),) if handler.batch else ())
    if path.on_loop:
        async_to_sync(_awaited)(path, slot or LoopSlot(), job)
    else:
        path.run_in_thread(slot or Slot(), job)


async def _awaited(path, slot, job):
    await path.run(slot, job)


class Slot(call_path.Slot):
    """The test's own thread, within the transaction of the test."""

    def __init__(self):
        super().__init__(0)
        self.databases = Databases.of_this_thread()

    def call(self, function, argument, timeout):
        return function(argument)

    def cancel(self, job, *, force):
        pass


class LoopSlot(Slot):
    """A place on an event loop of the test."""

    async def call(self, function, argument, timeout):
        return await function(argument)
