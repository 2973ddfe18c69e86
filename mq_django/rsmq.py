"""RSMQ in Python: the same queues and operations as npm's `rsmq`, PyRSMQ and other clients.

    from mq_django.rsmq import RSMQ

    rsmq = RSMQ()
    rsmq.create_queue("jobs", vt=60)
    rsmq.send("jobs", "hello")
    received = rsmq.receive("jobs")

For messages that Django handles, configure a queue with `"STORE": "rsmq"` instead.
"""

from collections.abc import Sequence

from mq_django.core.rsmq_format import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mq_django.stores.rsmq_queues import Attributes, Number, Received, RsmqQueues
from mq_django.transport.connections import open_transport

__all__ = ["RSMQ", "Attributes", "Received"]


class RSMQ:
    """The RSMQ queues of a namespace, on the Redis of `MQ_DJANGO["CONNECTION"]` or another one.

    All methods raise StoreError when Redis cannot be reached or refuses the command, MissingParameter for a name that
    is None or empty, and InvalidFormat for a name that no queue can have. The subclasses of RSMQError have RSMQ's own
    name of the error in `name`, and their text begins with RSMQ's own.

    Seconds and sizes may be text, as in `vt="5"`, and fractions are cut off, as npm's `rsmq` does.

    Args:
        namespace: the prefix of all keys; the option `ns` of other clients.
        realtime: each send publishes the number of messages on RSMQ's channel, like the same option of npm's `rsmq`.
        connection: the server, if it is not that of the project: a URL, or a django-redis alias of `CACHES`.
    """

    def __init__(self, namespace: str = "rsmq", *, realtime: bool = False, connection: str = "") -> None:
        self._queues = RsmqQueues(namespace, open_transport("produce", connection), realtime=realtime)

    def create_queue(
        self, queue: str, *, vt: Number = DEFAULT_VT, delay: Number = DEFAULT_DELAY, maxsize: Number = DEFAULT_MAXSIZE
    ) -> None:
        """Create a queue.

        Args:
            queue: 1 to 160 letters, digits, _ and -.
            vt: how long a message is hidden once it is received, in seconds: 0 to 9999999.
            delay: how long a new message is hidden, in seconds: 0 to 9999999.
            maxsize: the longest message, in UTF-16 units: 1024 to 65536, or -1 for no limit.

        Raises:
            InvalidFormat, InvalidValue: the name or a number cannot be used.
            QueueExists: the queue exists already; nothing was changed.
        """
        self._queues.create(queue, vt=vt, delay=delay, maxsize=maxsize)

    def list_queues(self) -> set[str]:
        """Return the names of all queues."""
        return self._queues.names()

    def get_queue_attributes(self, queue: str) -> Attributes:
        """Return the attributes and counts of a queue.

        Args:
            queue: its name.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        return self._queues.attributes(queue)

    def set_queue_attributes(
        self, queue: str, *, vt: Number | None = None, delay: Number | None = None, maxsize: Number | None = None
    ) -> Attributes:
        """Change attributes of a queue, and return all.

        Args:
            queue: its name.
            vt, delay, maxsize: as for create_queue(); None: unchanged.

        Raises:
            InvalidValue: a number is out of bounds.
            NoAttributeSupplied: all three are None.
            QueueNotFound: the queue does not exist.
        """
        given = {"vt": vt, "delay": delay, "maxsize": maxsize}
        return self._queues.attributes(queue, {name: value for name, value in given.items() if value is not None})

    def delete_queue(self, queue: str) -> None:
        """Delete a queue and all its messages.

        Args:
            queue: its name.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        self._queues.delete_queue(queue)

    def send(self, queue: str, message: str, *, delay: Number | None = None) -> str:
        """Send a message, and return its id.

        Args:
            queue: its name.
            message: text. A lone surrogate, which UTF-8 cannot have, becomes a replacement character.
            delay: how long the message is hidden, in seconds: 0 to 9999999; None: the queue's delay.

        Raises:
            QueueNotFound, MessageNotString, MessageTooLong, InvalidValue: nothing was sent.
        """
        return self._queues.send(queue, [message], delay=delay)[0]

    def send_many(self, queue: str, messages: Sequence[str], *, delay: Number | None = None) -> list[str]:
        """Send messages in one step, all or none, and return their ids in the same order.

        Args:
            queue: its name.
            messages: up to 1000 texts.
            delay: as for send().

        Raises:
            QueueNotFound, MessageNotString, MessageTooLong, InvalidValue: nothing was sent.
        """
        return self._queues.send(queue, messages, delay=delay) if messages else []

    def receive(self, queue: str, *, vt: Number | None = None) -> Received | None:
        """Receive the oldest message that is not hidden, and hide it.

        Args:
            queue: its name.
            vt: the seconds for which it is hidden: 0 to 9999999; None: the queue's vt.

        Returns:
            The message, or None when there is none.

        Raises:
            InvalidValue: `vt` is out of bounds.
            QueueNotFound: the queue does not exist.
        """
        found = self._queues.receive(queue, vt=vt)
        return found[0] if found else None

    def receive_many(self, queue: str, count: int, *, vt: Number | None = None) -> list[Received]:
        """Receive several messages in one step, the oldest first.

        Args:
            queue: its name.
            count: maximum messages to receive, 1 to 500.
            vt: as for receive().

        Raises:
            InvalidValue: `count` or `vt` is out of bounds.
            QueueNotFound: the queue does not exist.
        """
        return self._queues.receive(queue, vt=vt, count=count)

    def pop(self, queue: str) -> Received | None:
        """Receive a message and delete it in one step. If this program crashes afterwards, the message is lost.

        Args:
            queue: its name.

        Returns:
            The message, or None when there is none.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        return self._queues.pop(queue)

    def delete(self, queue: str, message_id: str) -> bool:
        """Delete a message, even if a consumer holds it, and return whether it existed.

        Args:
            queue: its name.
            message_id: the id that send() returned, or the `id` of a received message.

        Raises:
            MissingParameter: the id is None or empty.
            InvalidFormat: the id is invalid, and no message has it.
        """
        return bool(self._queues.delete(queue, [message_id]))

    def change_visibility(self, queue: str, message_id: str, vt: Number) -> bool:
        """Hide a message for `vt` seconds from now, and return whether it existed.

        Args:
            queue: its name.
            message_id: the id that send() returned, or the `id` of a received message.
            vt: the seconds for which it is hidden: 0 to 9999999; 0 makes it visible.

        Raises:
            MissingParameter: the id is None or empty.
            InvalidFormat: the id is invalid, and no message has it.
            InvalidValue: `vt` is out of bounds.
            QueueNotFound: the queue does not exist.
        """
        return self._queues.show(queue, message_id, vt)
