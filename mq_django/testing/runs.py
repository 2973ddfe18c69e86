"""Handle the ready messages of queues in the thread of a test."""

import asyncio
from collections.abc import Sequence

from django.core.exceptions import SynchronousOnlyOperation

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.worker.databases import databases_within
from mq_django.core.exceptions import repr_of
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.logs import get_logger
from mq_django.errors import TestKitError, UnknownQueue
from mq_django.producers.asynchronous import asynchronous
from mq_django.stores import open_store
from mq_django.testing.queue_run import Handled, QueueRun
from mq_django.testing.recording import Records
from mq_django.testing.relaying import relay
from mq_django.testing.started_runs import StartedRuns, run_supervised
from mq_django.transport.connections import open_wire
from mq_django.transport.test_server import standing_time

logger = get_logger(__name__)

#: More messages in one run are taken for an endless one.
LIMIT = 10_000


def run(*queues: str, raise_errors: bool = True, limit: int = LIMIT) -> list[Handled]:
    """Handle everything that is ready or due, also what handlers publish meanwhile, until nothing is ready.

    Messages run one after another in the caller's thread, with its database connections, through the same code as in
    a consumer: middleware, signals, retries, dead letters, limits and the results of tasks. Two things differ. The
    timeouts of functions do not apply. And in the transaction of a test nothing is committed: on-commit hooks of a
    handler run right after it, and if it catches an error of the database outside `atomic()`, all its changes are
    rolled back.

    Args:
        queues: names of queues, of groups such as `orders:billing`, or of topics, which stand for all their groups.
            None: all queues of this project, and all groups with a subscriber.
        raise_errors: raise what a handler raises, after it is settled, and TestKitError for a message that nobody
            handles. With False only what is no `Exception` is raised, such as `KeyboardInterrupt` and the outcomes of
            pytest.
        limit: the most messages.

    Returns:
        What was handled, in this order.

    Raises:
        EndlessRun: more than `limit` messages became ready.
        UnknownQueue: there is no such queue, group or topic.
        SynchronousOnlyOperation: this thread runs an event loop, which has to await arun().
        TestKitError: a name is no string, or no handler has the name of a message.
        NoServer, ConfigurationError, ConnectionLost: there is no usable server for tests.
    """
    handled: list[Handled] = []
    run_into(handled, queues, raise_errors=raise_errors, limit=limit)
    if not handled and (waiting := "\n".join(filter(None, [Records().waiting(), StartedRuns().waiting()]))):
        # Shown with the failure of a test.
        logger.warning("Nothing is ready. %s", waiting)
    return handled


arun = asynchronous(run)


def run_into(handled: list[Handled], queues: Sequence[str], *, raise_errors: bool, limit: int) -> None:
    """Handle everything that is ready like run(), and add it to a list, which may have up to `limit` items."""
    refuse_event_loop("await mq.arun() in place of mq.run()")
    relay()
    with databases_within() as databases, standing_time():
        runs = [QueueRun(config, databases) for config in configs_of(queues)]

        def handle_ready() -> bool:
            return any([each.handle_ready(handled, raise_errors=raise_errors, limit=limit) for each in runs])  # noqa: C419

        while handle_ready() or (run_supervised() and handle_ready()):
            pass


def ensure_groups() -> None:
    """Create the groups of all subscribers, so that those that start at the end get what is published from now on."""
    config = get_config()
    for name in _groups():
        for part in config.queue(name).each_part:
            open_store(part, open_wire("chores", part.connection)).create_groups()


def configs_of(queues: Sequence[str]) -> list[QueueConfig]:
    """Return the options of queues and groups, and of the partitions of a queue that has any: see run().

    Raises:
        UnknownQueue: there is no such queue, group or topic.
        TestKitError: a name is no string.
    """
    config = get_config()
    if not queues:
        own = [found for found in config.queues.values() if found.consume]
        return _parts([*own, *(config.queue(name) for name in _groups())])
    found: list[str] = []
    for name in [queues] if isinstance(queues, str) else queues:
        if not isinstance(name, str):
            raise TestKitError(f"A queue is named by a string, not {repr_of(name)}")
        if GROUP_SEPARATOR in name and name not in registry.groups() and not registry.own_names(name):
            known = ", ".join(registry.groups()) or "none"
            raise UnknownQueue(f"No subscriber has the group {repr_of(name)}; known: {known}")
        found += registry.groups(name) if name in config.topics else [name]
    return _parts([config.queue(name) for name in dict.fromkeys(found)])


def _parts(configs: Sequence[QueueConfig]) -> list[QueueConfig]:
    return [part for config in configs for part in config.each_part]


def refuse_event_loop(advice: str) -> None:
    """Raise SynchronousOnlyOperation, with what to do, if this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SynchronousOnlyOperation(f"This thread runs an event loop: {advice}")


def _groups() -> list[str]:
    """Return the groups with a subscriber whose topic is configured."""
    topics = get_config().topics
    return [name for name in registry.groups() if name.partition(GROUP_SEPARATOR)[0] in topics]
