"""What runs on a lane, and what a lane does for it."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from mq_django.consumers.receipts import Receipt
from mq_django.consumers.worker.databases import Databases
from mq_django.core.messages import Delivery, Message
from mq_django.registry import Handler

#: What a handler gets.
Argument = Message | list[Message]


class WorkItem(NamedTuple):
    """A delivery, its handler and what runs it."""

    delivery: Delivery
    handler: Handler
    executor: "DeliveryRunner"


class ThreadLane(Protocol):
    """A thread that runs one delivery at a time."""

    #: Its number in the shared state.
    number: int
    databases: Databases
    #: What it runs, or has run last.
    job: WorkItem | None
    #: Somebody has cancelled what it runs, or has run last.
    cancelled: bool

    def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """Call a handler; raise HandlerTimeout when it takes longer than `timeout` seconds."""


class LoopLane(Protocol):
    """A place on an event loop that runs one delivery at a time."""

    #: Its number in the shared state.
    number: int
    #: What it runs, or has run last.
    job: WorkItem | None
    #: Somebody has cancelled what it runs, or has run last.
    cancelled: bool
    #: The connections of the thread in which `sync_to_async` runs database operations.
    databases: Databases

    def is_alone(self) -> bool:
        """Return whether nothing else runs on the loop."""

    async def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """Call a coroutine function; raise HandlerTimeout when it takes longer than `timeout` seconds."""


class DeliveryRunner(Protocol):
    """Runs deliveries on lanes: one with each call, or a batch."""

    #: The number of the queue in this process; -1 for a batch, which cannot be interrupted.
    number: int

    def run(self, lane: ThreadLane, delivery: Delivery, handler: Handler) -> None:
        """Run a delivery in this thread."""

    async def run_coroutine(self, lane: LoopLane, delivery: Delivery, handler: Handler) -> None:
        """Run a delivery on this event loop."""

    def overdue(self, lane: int, delivery: Delivery, *, since: float) -> None:
        """Mark what a lane runs as past its deadline, so that the supervisor replaces the process."""

    def receipt(self, delivery: Delivery) -> Receipt:
        """Return the receipt of a delivery in the shared state; of a batch that of its first."""

    def receipts(self, delivery: Delivery) -> Sequence[Receipt]:
        """Return the receipts of all that it runs with a delivery."""

    def hand_back(self, delivery: Delivery) -> None:
        """Hand back a delivery that has not started."""

    def rescue(self, delivery: Delivery, handler: Handler, error: BaseException) -> None:
        """Have a delivery retried whose run has failed outside of its handler: each has an outcome."""


class RunningState(Protocol):
    """The part of the shared state that running a delivery needs: see `SharedState` for each method."""

    def run(self, lane: int, queue: int, stream: int, entry: bytes, since: float, deadline: float = math.inf) -> None:
        """Note that a lane has been running a delivery since a time on the monotonic clock."""

    def run_batch(
        self, lane: int, row: int, receipts: Iterable[tuple[int, int, bytes]], since: float, deadline: float
    ) -> None:
        """Note that a lane has been running several deliveries since a time; their receipts are in a row of a table."""

    def largest_batch(self) -> int:
        """Return how many messages a batch may have."""

    def idle(self, lane: int) -> None:
        """Note that a lane is idle."""

    def ended(self, state: int, queue: int, stream: int, entry: bytes) -> None:
        """Note that a delivery was HANDLED, FAILED or RETURNED."""

    def batch_handled(self, row: int, count: int) -> None:
        """Note that all the deliveries of a row were HANDLED."""

    def holds(self, queue: int, read_at: float) -> bool:
        """Return whether the consumer holds a delivery now that it has read at a time; 0: it was not read."""

    def may_run(self, queue: int, read_at: float) -> bool:
        """Return whether a delivery may start: the consumer holds it, and its queue is not paused."""
