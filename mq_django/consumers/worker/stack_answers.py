"""Answer requests for the stacks of what a consumer runs."""

from collections.abc import Callable, Sequence

from mq_django.conf import QueueConfig
from mq_django.core.stacks import Stack, stacks_text
from mq_django.stores.stack_requests import StackRequests
from mq_django.transport.connections import open_wire


class StackAnswers:
    """The answers to requests that come through one queue.

    Args:
        requests: those of the queue.
        consumer: the id of this consumer.
        take: returns the stacks, of the messages of all queues.
    """

    def __init__(self, requests: StackRequests, consumer: str, take: Callable[[], Sequence[Stack]]) -> None:
        self._requests = requests
        self._consumer = consumer
        self._take = take
        #: The time of the request that was answered last.
        self._answered: int | None = None

    def answer(self) -> None:
        """Answer if there is a new request.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        asked = self._requests.asked(self._consumer)
        if asked is not None and asked != self._answered:
            self._answered = asked
            self._requests.answer(self._consumer, asked, stacks_text(self._take()))


def open_answers(
    queues: Sequence[QueueConfig], consumer: str, take: Callable[[], Sequence[Stack]]
) -> list[StackAnswers]:
    """Return what answers the requests through each queue."""
    wires = [open_wire("chores", config.connection) for config in queues]
    requests = [StackRequests(config, wire) for config, wire in zip(queues, wires, strict=True)]
    return [StackAnswers(one, consumer, take) for one in requests]
