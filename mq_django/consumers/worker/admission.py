"""Decide whether a delivery may run now."""

import math
import time
from collections.abc import Mapping, Sequence

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import settled_as
from mq_django.consumers.settlements import send
from mq_django.consumers.worker.lanes import RunningState
from mq_django.consumers.worker.settler import Settler
from mq_django.core import clock
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import Bury, Cancel, Expire, HandBack, Outcome
from mq_django.errors import StoreError
from mq_django.registry import Handler, find
from mq_django.signals import handler_started
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.stores.results import EXPIRED
from mq_django.transport.connections import open_wire

# The messages of a queue that are to be cancelled although they do not wait any more.

logger = get_logger(__name__)


class _Unread(dict[str, bool]):
    """Any message may be among them: a consumer that has just started may fetch before it has read the requests."""

    def __bool__(self) -> bool:
        return True

    def __contains__(self, message_id: object) -> bool:
        return True


class Cancels:
    """The messages of one queue that are to be cancelled. Nearly always there are none."""

    def __init__(self, store: Store) -> None:
        #: For any thread: its wire takes a connection for each round trip.
        self._store = store
        self.queue = store.config.name
        #: The ids of the messages, each with whether its process may be replaced.
        self.ids: Mapping[str, bool] = _Unread()

    def read(self) -> None:
        """Read the requests.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        self.ids = self._store.cancel_requests()

    def is_current(self, message_id: str) -> bool:
        """Return whether a message that is to be cancelled still is: it may have been redriven since.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        return self._store.is_cancelled(message_id)

    def has(self, message_id: str) -> bool | None:
        """Return whether a message is to be cancelled before it starts; None if Redis cannot say so now."""
        try:
            if isinstance(self.ids, _Unread):
                self.read()
            return message_id in self.ids and self.is_current(message_id)
        except StoreError as error:
            logger.warning("It is not known whether message %s is still to be cancelled: %s", message_id, error)
            return None


def open_cancels(queues: Sequence[QueueConfig]) -> list[Cancels]:
    """Return the messages of each queue that are to be cancelled."""
    return [Cancels(open_store(config, open_wire("chores", config.connection))) for config in queues]


# Decide whether a delivery may run now.


class Admission:
    """Decides whether deliveries of one queue may run.

    Args:
        config: of the queue.
        number: of the queue in this process.
        shared_state: says what this consumer holds, and whether the queue is paused.
        settler: gets the outcomes of what must not run.
        cancels: the messages that are to be cancelled; None: none are.
    """

    def __init__(
        self,
        config: QueueConfig,
        number: int,
        shared_state: RunningState,
        settler: Settler,
        cancels: Cancels | None,
    ) -> None:
        self._config = config
        self._number = number
        self._shared_state = shared_state
        self._settler = settler
        self.cancels = cancels

    def admit(self, lane: int, delivery: Delivery, handler: Handler, timeout: float | None) -> float | Outcome:
        """Note that a lane runs a delivery, and return the time; or settle it if it must not run."""
        message, state, number, now = delivery.message, self._shared_state, self._number, time.monotonic()
        # Noted before held_until is read: the supervisor sets that first, then hands back what a suspended process has
        # not noted. What is not held another consumer may have. The clock is read again, because this thread may have
        # been suspended meanwhile. A hand-back is fenced.
        deadline = math.inf if timeout is None else now + timeout
        state.run(lane, number, delivery.stream, delivery.entry, now, deadline)
        if (
            not state.may_run(number, delivery.read_at)
            or message.expires_ms is not None
            or (self.cancels is not None and self.cancels.ids)
        ):
            outcome = self.refusal(delivery)
            if outcome is not None:
                state.idle(lane)
                self.refuse(delivery, handler, outcome)
                return outcome
        if handler_started.receivers:
            self.announce(message)
        return now

    def refusal(self, delivery: Delivery) -> Outcome | None:
        """Return the outcome of a delivery that must not run now, or None. It is in the shared state already."""
        message = delivery.message
        if not self._shared_state.may_run(self._number, delivery.read_at):
            return HandBack()
        if self.cancels is not None and message.id in self.cancels.ids:
            is_asked = self.cancels.has(message.id)
            if is_asked is None:
                return HandBack()
            if is_asked:
                return Cancel("Cancelled before it started")
        if message.expires_ms is not None and clock.now() * 1000 > message.expires_ms:
            return Expire() if self._config.on_expire == "discard" else Bury(EXPIRED, reason="expired")
        return None

    def admits(self, deliveries: Sequence[Delivery]) -> bool:
        """Return whether all these deliveries may run now, as nearly always. If not, refusal() says which."""
        state, number = self._shared_state, self._number
        if self.cancels is not None and self.cancels.ids:
            return False
        # A list is faster than a generator.
        if any([delivery.message.expires_ms is not None for delivery in deliveries]):  # noqa: C419
            return False
        return all(state.may_run(number, read_at) for read_at in {delivery.read_at for delivery in deliveries})

    def refuse(self, delivery: Delivery, handler: Handler, outcome: Outcome) -> None:
        """Pass on the outcome of a delivery that must not run."""
        if isinstance(outcome, Cancel):
            logger.info("Message %s was cancelled before handler %s started", delivery.message.id, handler.where)
        known = find(delivery.message.queue, delivery.message.name)
        self._settler.add(settled_as(delivery, outcome, known))

    @staticmethod
    def announce(message: Message) -> None:
        """Send the signal that a handler starts."""
        if handler_started.receivers:
            send(handler_started, queue=message.queue, message=message)
