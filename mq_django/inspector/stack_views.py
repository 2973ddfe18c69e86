"""Ask a consumer for the stacks of what it runs, and read its answer. Secrets are replaced."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.stacks import Stacks, read_stacks
from mq_django.inspector import processes
from mq_django.inspector.processes import ProcessView, SupervisorView
from mq_django.stores.stack_requests import StackRequests
from mq_django.transport.connections import open_wire

#: Seconds to wait for an answer: longer than a supervisor needs that has missed the notification.
WAIT = 3.0
#: Seconds between two looks for the answer.
LOOK_EVERY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRequest:
    """A request to a consumer."""

    consumer: str
    #: The queue through which it was asked.
    queue: str
    #: The time of the request by the clock of the queue's server, in ms since 1970.
    asked_ms: int


def find_process(consumer: str) -> tuple[SupervisorView, ProcessView] | None:
    """Return a consumer with its supervisor, None if there is none with this id.

    Raises:
        StoreError: cannot reach Redis.
    """
    found = ((one, process) for one in processes.everybody().supervisors for process in one.processes)
    return next(((one, process) for one, process in found if process.id == consumer), None)


def ask_for_stacks(consumer: str, queues: Sequence[str]) -> StackRequest | None:
    """Ask a consumer for the stacks of what it runs, through one of its queues; None if it is gone.

    Raises:
        UnknownQueue: a queue is not configured.
        StoreError: cannot reach Redis.
    """
    for part in [part for queue in queues for part in get_config().queue(queue).each_part]:
        asked = _requests(part.name).ask(consumer)
        if asked is not None:
            return StackRequest(consumer=consumer, queue=part.name, asked_ms=asked)
    return None


def read_answer(request: StackRequest, *, seconds: float = 0.0) -> Stacks | None:
    """Return the answer to a request, None if there is no valid one within some seconds.

    A consumer cannot answer while a handler holds the GIL.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    requests, deadline = _requests(request.queue), time.monotonic() + seconds
    while (text := requests.read(request.consumer, request.asked_ms)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(LOOK_EVERY, left))
    return read_stacks(text)


def _requests(queue: str) -> StackRequests:
    config = get_config().queue(queue)
    return StackRequests(config, open_wire("inspect", config.connection))
