"""The operations of npm's `rsmq` on RSMQ's own keys, each in one script."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mq_django.core import rsmq_format
from mq_django.core.jsontext import LAST_MS, whole
from mq_django.core.keys import RsmqKeys
from mq_django.core.texts import class_name
from mq_django.errors import MessageNotString, MessageTooLong, NoAttributeSupplied, QueueExists, QueueNotFound
from mq_django.stores.counters import slot
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Transport

#: Seconds or a size, also as text, as npm's rsmq takes them.
Number = int | float | str


class Attributes(NamedTuple):
    """The attributes and counts of an RSMQ queue, by RSMQ's names."""

    #: How long a message is hidden once it is received, in seconds.
    vt: int
    #: How long a new message is hidden, in seconds.
    delay: int
    #: The longest message, in UTF-16 units, or -1 for no limit.
    maxsize: int
    #: Messages that were received, and sent, since the queue was created.
    totalrecv: int
    totalsent: int
    #: Seconds since 1970, by the server's clock.
    created: int
    modified: int
    #: Messages in the queue, and how many of them are hidden.
    msgs: int
    hiddenmsgs: int


class Received(NamedTuple):
    """A message of an RSMQ queue."""

    id: str
    #: As it is in Redis; programs in other languages may send what is not UTF-8.
    body: bytes
    #: How often it was received.
    rc: int
    #: When it was first received, in milliseconds since 1970.
    fr: int
    #: When it was sent, in milliseconds since 1970, with fractions; None when its id does not contain it.
    sent: float | None

    @property
    def message(self) -> str:
        """Return the body as text; what is not UTF-8 is replaced."""
        return self.body.decode(errors="replace")


class RsmqQueues:
    """The RSMQ queues of one namespace."""

    def __init__(self, namespace: str, transport: Transport, *, realtime: bool = False) -> None:
        self.namespace = namespace
        self._transport = transport
        self._realtime = realtime

    def _keys(self, queue: str) -> RsmqKeys:
        return RsmqKeys(self.namespace, rsmq_format.check_existing(queue))

    def create_queue(
        self,
        queue: str,
        *,
        vt: Number = rsmq_format.DEFAULT_VT,
        delay: Number = rsmq_format.DEFAULT_DELAY,
        maxsize: Number = rsmq_format.DEFAULT_MAXSIZE,
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
        numbers = [
            rsmq_format.check_seconds("vt", vt),
            rsmq_format.check_seconds("delay", delay),
            rsmq_format.check_maxsize(maxsize),
        ]
        keys = RsmqKeys(self.namespace, rsmq_format.check_queue(queue))
        if self._transport.run("rsmq_create", [keys.hash, keys.names], [queue, *numbers]) == b"EXISTS":
            raise QueueExists(f"Queue exists: {queue!r}")

    def list_queues(self) -> set[str]:
        """Return the names of all queues."""
        reply = self._transport.ask(("SMEMBERS", RsmqKeys(self.namespace, "-").names))
        return {name.decode(errors="replace") for name in reply}

    def get_queue_attributes(self, queue: str) -> Attributes:
        """Return the attributes and counts of a queue.

        Args:
            queue: its name.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        return self._attributes(queue, [])

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
        seconds = {name: value for name, value in (("vt", vt), ("delay", delay)) if value is not None}
        args = [part for name, value in seconds.items() for part in (name, rsmq_format.check_seconds(name, value))]
        args += [] if maxsize is None else ["maxsize", rsmq_format.check_maxsize(maxsize)]
        if not args:
            raise NoAttributeSupplied("No attribute was supplied")
        return self._attributes(queue, args)

    def _attributes(self, queue: str, changes: Sequence[Argument]) -> Attributes:
        keys = self._keys(queue)
        return Attributes(*self._there(queue, self._transport.run("rsmq_attributes", [keys.zset, keys.hash], changes)))

    def delete_queue(self, queue: str) -> None:
        """Delete a queue and all its messages.

        Args:
            queue: its name.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        keys = self._keys(queue)
        self._there(
            queue, self._transport.run("rsmq_delete_queue", [keys.zset, keys.hash, keys.names, *keys.own()], [queue])
        )

    def send(self, queue: str, message: str, *, delay: Number | None = None) -> str:
        """Send a message, and return its id.

        Args:
            queue: its name.
            message: text. A lone surrogate, which UTF-8 cannot have, becomes a replacement character.
            delay: how long the message is hidden, in seconds: 0 to 9999999; None: the queue's delay.

        Raises:
            QueueNotFound, MessageNotString, MessageTooLong, InvalidValue: nothing was sent.
        """
        return self.send_many(queue, [message], delay=delay)[0]

    def send_many(self, queue: str, messages: Sequence[str], *, delay: Number | None = None) -> list[str]:
        """Send messages in one step, all or none, and return their ids in the same order.

        Args:
            queue: its name.
            messages: up to 1000 texts.
            delay: as for send().

        Raises:
            QueueNotFound, MessageNotString, MessageTooLong, InvalidValue: nothing was sent.
        """
        if not messages:
            return []
        keys = self._keys(queue)
        rsmq_format.check_count("messages", len(messages), rsmq_format.MAX_SENT)
        where = slot(keys)
        mode, ms = ("", 0) if delay is None else ("+", rsmq_format.check_seconds("delay", delay) * 1000)
        args: list[Argument] = [0, where.minute, where.hour, keys.realtime if self._realtime else "", keys.wake]
        for message in messages:
            if not isinstance(message, str):
                raise MessageNotString(f"Message must be a string, not {class_name(type(message))}")
            args += (rsmq_format.tail(), rsmq_format.units(message), mode, ms, "", rsmq_format.encode_text(message))
        reply = self._there(queue, self._transport.run("rsmq_send", [keys.zset, keys.hash, *where.keys], args))
        if reply == b"TOOLONG":
            raise MessageTooLong(f"Message too long: more than the maxsize of queue {queue!r}")
        return [message_id.decode() for message_id in reply]

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
        found = self.receive_many(queue, 1, vt=vt)
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
        keys = self._keys(queue)
        hide: Argument = "" if vt is None else rsmq_format.check_seconds("vt", vt) * 1000
        key_names = [keys.zset, keys.hash, keys.owners, keys.notes, keys.control, keys.unhandled, keys.consumers]
        args: list[Argument] = ["", rsmq_format.check_count("count", count, rsmq_format.MAX_RECEIVED), hide]
        _, *flat = self._there(queue, self._transport.run("rsmq_receive", key_names, args))
        return [_received(*flat[at : at + 4]) for at in range(0, len(flat), 7)]

    def pop(self, queue: str) -> Received | None:
        """Receive a message and delete it in one step. If this program crashes afterwards, the message is lost.

        Args:
            queue: its name.

        Returns:
            The message, or None when there is none.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        keys = self._keys(queue)
        found = self._there(queue, self._transport.run("rsmq_pop", [keys.zset, keys.hash]))
        return _received(*found) if found else None

    def delete(self, queue: str, message_id: str) -> bool:
        """Delete a message, even if a consumer holds it, and return whether it existed.

        Args:
            queue: its name.
            message_id: the id that send() returned, or the `id` of a received message.

        Raises:
            MissingParameter: the id is None or empty.
            InvalidFormat: the id is invalid, and no message has it.
        """
        removed = self._delete_all(queue, [rsmq_format.check_id(message_id)]) == 1
        if not removed:
            rsmq_format.check_missing(message_id)
        return removed

    def _delete_all(self, queue: str, ids: Sequence[str]) -> int:
        keys = self._keys(queue)
        key_names = [keys.zset, keys.hash, keys.owners, keys.notes, keys.unhandled]
        return int(self._transport.run("rsmq_delete", key_names, ids))

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
        keys = self._keys(queue)
        args: list[Argument] = [rsmq_format.check_id(message_id), rsmq_format.check_seconds("vt", vt) * 1000, keys.wake]
        found = bool(
            self._there(queue, self._transport.run("rsmq_change_visibility", [keys.zset, keys.hash], args)) == 1
        )
        if not found:
            rsmq_format.check_missing(message_id)
        return found

    def _there(self, queue: str, reply: Any) -> Any:
        if reply == b"NOQUEUE":
            # A name that only other programs give is invalid here unless one of them did.
            raise QueueNotFound(f"Queue not found: {rsmq_format.check_queue(queue)!r}")
        return reply


def _received(message_id: bytes, body: bytes, count: int, first_ms: bytes) -> Received:
    text = message_id.decode(errors="replace")
    sent = rsmq_format.sent_micros(text)
    return Received(text, body, count, whole(first_ms, LAST_MS) or 0, None if sent is None else sent / 1000)
