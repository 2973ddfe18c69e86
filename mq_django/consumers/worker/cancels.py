"""The messages of a queue that must not run: to be cancelled although they do not wait, or held."""

from collections.abc import Mapping, Sequence

from mq_django.conf import QueueConfig
from mq_django.core import clock
from mq_django.core.holds import Hold, subjects_of
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Park
from mq_django.errors import StoreError
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.transport.connections import open_transport

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
        #: For any thread: its transport takes a connection for each round trip.
        self._store = store
        self.queue = store.config.name
        #: The ids of the messages, each with whether its process may be replaced.
        self.ids: Mapping[str, bool] = _Unread()
        #: What is held, by subject.
        self.holds: Mapping[str, Hold] = {}
        #: Whether any message may be among them: asked for each message.
        self.any = True

    def read(self) -> None:
        """Read the requests and the holds.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        self.holds, self.ids = self._store.current_holds(), self._store.cancel_requests()
        self.any = bool(self.ids or self.holds)

    def forget(self) -> None:
        """Have them read before the next message starts."""
        self.ids, self.any = _Unread(), True

    def is_current(self, message_id: str) -> bool:
        """Return whether a message that is to be cancelled still is: it may have been redriven since.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        return self._store.is_cancelled(message_id)

    def held(self, delivery: Delivery) -> Park | None:
        """Return the outcome of a message that is held, or None. A breaker lets its probes through."""
        if not self.holds or delivery.probe:
            return None
        now = clock.now_ms()
        found = (self.holds.get(subject) for subject in subjects_of(delivery.message))
        return next((Park(hold.subject, hold.first_ms) for hold in found if hold is not None and hold.holds(now)), None)

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
    return [Cancels(open_store(config, open_transport("chores", config.connection))) for config in queues]
