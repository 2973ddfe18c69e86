"""RSMQ from Python: the same queues as npm's `rsmq`, PyRSMQ and others use, and the same calls.

    from mq_django.rsmq import RSMQ

    rsmq = RSMQ()
    rsmq.create_queue("jobs", vt=60)
    rsmq.send("jobs", "hello")
    received = rsmq.receive("jobs")

Messages that Django handles need none of this: see `"STORE": "rsmq"` in the settings.
"""

from collections.abc import Sequence

from mq_django.core.rsmq_format import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mq_django.errors import InvalidFormat
from mq_django.stores.rsmq_queues import Attributes, Received, RsmqQueues
from mq_django.transport.connections import open_wire

__all__ = ["RSMQ", "Attributes", "Received"]


class RSMQ:
    """The RSMQ queues of a namespace, on the Redis of `MQ_DJANGO["CONNECTION"]`.

    With `realtime`, a send publishes the number of messages on RSMQ's channel, as npm's option of that name does. All
    methods raise StoreError when Redis is away, and the errors under RSMQError, whose `name` is RSMQ's own.
    """

    def __init__(self, namespace: str = "rsmq", *, realtime: bool = False) -> None:
        self._queues = RsmqQueues(namespace, open_wire("produce"), realtime=realtime)

    def create_queue(
        self, queue: str, *, vt: int = DEFAULT_VT, delay: int = DEFAULT_DELAY, maxsize: int = DEFAULT_MAXSIZE
    ) -> None:
        """Create a queue; `vt` and `delay` are seconds up to 9999999, `maxsize` is 1024 to 65536 or -1.

        Raises:
            QueueExists: it is there; nothing was changed.
        """
        self._queues.create(queue, vt=vt, delay=delay, maxsize=maxsize)

    def list_queues(self) -> set[str]:
        """Return the names of all queues."""
        return self._queues.names()

    def get_queue_attributes(self, queue: str) -> Attributes:
        """Return the attributes and counts of a queue, or raise QueueNotFound."""
        return self._queues.attributes(queue)

    def set_queue_attributes(
        self, queue: str, *, vt: int | None = None, delay: int | None = None, maxsize: int | None = None
    ) -> Attributes:
        """Change what is given, and return all; raise QueueNotFound, or NoAttributeSupplied."""
        given = {"vt": vt, "delay": delay, "maxsize": maxsize}
        return self._queues.attributes(queue, {name: value for name, value in given.items() if value is not None})

    def delete_queue(self, queue: str) -> None:
        """Delete a queue and all its messages, or raise QueueNotFound."""
        self._queues.delete_queue(queue)

    def send(self, queue: str, message: str, *, delay: int | None = None) -> str:
        """Send a message, after `delay` seconds or what the queue says, and return its id.

        Raises:
            QueueNotFound, MessageNotString, MessageTooLong: nothing was sent.
        """
        return self._queues.send(queue, [message], delay=delay)[0]

    def send_many(self, queue: str, messages: Sequence[str], *, delay: int | None = None) -> list[str]:
        """Send up to 1000 messages in one step, all or none, and return their ids."""
        return self._queues.send(queue, messages, delay=delay) if messages else []

    def receive(self, queue: str, *, vt: int | None = None) -> Received | None:
        """Receive the oldest message that can be seen, and hide it for `vt` seconds or what the queue says."""
        found = self._queues.receive(queue, vt=vt)
        return found[0] if found else None

    def receive_many(self, queue: str, count: int, *, vt: int | None = None) -> list[Received]:
        """Receive up to `count` messages in one step, at most 500."""
        return self._queues.receive(queue, vt=vt, count=count)

    def pop(self, queue: str) -> Received | None:
        """Receive a message and delete it in one step: if this program ends now, the message is gone."""
        return self._queues.pop(queue)

    def delete(self, queue: str, message_id: str) -> bool:
        """Delete a message, whoever holds it, and tell whether it was there."""
        return bool(self._queues.delete(queue, [message_id]))

    def change_visibility(self, queue: str, message_id: str, vt: int) -> bool:
        """Hide a message for `vt` seconds from now, 0 to show it, and tell whether it was there.

        Raises:
            InvalidFormat: no message is called so.
        """
        if not message_id:
            raise InvalidFormat(f"Invalid id format: {message_id!r:.100}")
        return self._queues.show(queue, message_id, vt)
