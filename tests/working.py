"""Work a queue off in the test's own thread, with the consumer's own executor and settler."""

import asyncio
import threading
import time

from mq_django.conf import get_config
from mq_django.consumers.board import Board
from mq_django.consumers.executor import Executor
from mq_django.consumers.settler import Settler
from mq_django.core.messages import Undecodable
from mq_django.registry import find
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

CONSUMER = "the-test"


def work(queue, *, count=100):
    """Promote what is due, run what is ready once, settle it, and return the messages that ran."""
    config = get_config().queue(queue)
    store = open_store(config, Pooled(get_client("consume")))
    store.create_groups()
    store.promote(limit=100)
    deliveries = [item for item in store.take(CONSUMER, count=count) if not isinstance(item, Undecodable)]
    board = Board.create(1)
    try:
        settler = Settler(store, queue, CONSUMER, threading.Event(), threading.Event())
        executor = Executor(config, 0, board, settler)
        for delivery in deliveries:
            _run(executor, delivery)
        settler.settle(store)
    finally:
        board.close()
    return [delivery.message for delivery in deliveries]


def take(queue):
    """Return the messages that are ready, whoever may handle them. They are not there a second time."""
    store = open_store(get_config().queue(queue), Pooled(get_client("consume")))
    store.create_groups()
    store.promote(limit=100)
    return [delivery.message for delivery in store.take(CONSUMER, count=100)]


def _run(executor, delivery):
    handler = find(delivery.message.queue, delivery.message.name)
    started = time.monotonic()
    if not executor.begin(0, delivery):
        return
    try:
        returned = handler.call(delivery.message)
        if handler.is_async:
            returned = asyncio.run(_awaited(returned))
    except Exception as error:  # noqa: BLE001 - as in a consumer's lane
        executor.fail(delivery, handler, error, time.monotonic() - started)
    else:
        executor.end(delivery, handler, returned, time.monotonic() - started)


async def _awaited(coroutine):
    return await coroutine
