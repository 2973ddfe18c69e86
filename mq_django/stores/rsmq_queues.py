"""The operations of npm's `rsmq` on RSMQ's own keys, each in one script."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.core.keys import RsmqKeys
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.rsmq_format import (
    DEFAULT_DELAY,
    DEFAULT_MAXSIZE,
    DEFAULT_VT,
    MAX_RECEIVED,
    MAX_SENT,
    check_count,
    check_existing,
    check_id,
    check_maxsize,
    check_missing,
    check_queue,
    check_seconds,
    encode_text,
    sent_micros,
    tail,
    units,
)
from mq_django.core.texts import class_name
from mq_django.errors import MessageNotString, MessageTooLong, NoAttributeSupplied, QueueExists, QueueNotFound
from mq_django.stores.counters import slot
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Transport, reply_or_raise

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
        return RsmqKeys(self.namespace, check_existing(queue))

    def _run(self, script: str, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        return reply_or_raise(self._transport.pipeline([scripts.command(script, keys=keys, args=args)])[0])

    def create(
        self, queue: str, *, vt: Number = DEFAULT_VT, delay: Number = DEFAULT_DELAY, maxsize: Number = DEFAULT_MAXSIZE
    ) -> None:
        """Create a queue.

        Raises:
            InvalidFormat, InvalidValue: the name or a number is invalid.
            QueueExists: the queue exists; nothing was changed.
        """
        numbers = [check_seconds("vt", vt), check_seconds("delay", delay), check_maxsize(maxsize)]
        keys = RsmqKeys(self.namespace, check_queue(queue))
        if self._run("rsmq_create", [keys.hash, keys.names], [queue, *numbers]) == b"EXISTS":
            raise QueueExists(f"Queue exists: {queue!r}")

    def names(self) -> set[str]:
        """Return the names of all queues."""
        (reply,) = self._transport.pipeline([("SMEMBERS", RsmqKeys(self.namespace, "-").names)])
        return {name.decode(errors="replace") for name in reply_or_raise(reply)}

    def attributes(self, queue: str, changes: Mapping[str, Number] | None = None) -> Attributes:
        """Change attributes of a queue, if any are given, and return all.

        Raises:
            NoAttributeSupplied: `changes` is empty.
            InvalidValue: a number is out of bounds.
            QueueNotFound: the queue does not exist.
        """
        keys, args = self._keys(queue), list[Argument]()
        for name, value in (changes or {}).items():
            args += (name, check_maxsize(value) if name == "maxsize" else check_seconds(name, value))
        if changes is not None and not args:
            raise NoAttributeSupplied("No attribute was supplied")
        return Attributes(*self._there(queue, self._run("rsmq_attributes", [keys.zset, keys.hash], args)))

    def delete_queue(self, queue: str) -> None:
        """Delete a queue with its messages. Its dead letters stay.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        keys = self._keys(queue)
        self._there(queue, self._run("rsmq_delete_queue", [keys.zset, keys.hash, keys.names, *keys.own()], [queue]))

    def send(self, queue: str, messages: Sequence[str], *, delay: Number | None = None) -> list[str]:
        """Send messages, all or none, and return their ids.

        Raises:
            MessageNotString, MessageTooLong: a message is invalid; none was sent.
            QueueNotFound: the queue does not exist.
        """
        keys = self._keys(queue)
        check_count("messages", len(messages), MAX_SENT)
        where = slot(keys)
        mode, ms = ("", 0) if delay is None else ("+", check_seconds("delay", delay) * 1000)
        args: list[Argument] = [0, where.minute, where.hour, keys.realtime if self._realtime else "", keys.wake]
        for message in messages:
            if not isinstance(message, str):
                raise MessageNotString(f"Message must be a string, not {class_name(type(message))}")
            args += (tail(), units(message), mode, ms, "", encode_text(message))
        reply = self._there(queue, self._run("rsmq_send", [keys.zset, keys.hash, *where.keys], args))
        if reply == b"TOOLONG":
            raise MessageTooLong(f"Message too long: more than the maxsize of queue {queue!r}")
        return [message_id.decode() for message_id in reply]

    def receive(self, queue: str, *, vt: Number | None = None, count: int = 1) -> list[Received]:
        """Receive up to `count` messages, at most 500, and hide them for `vt` seconds, by default the queue's.

        Raises:
            InvalidValue: `count` or `vt` is out of bounds.
            QueueNotFound: the queue does not exist.
        """
        keys = self._keys(queue)
        hide: Argument = "" if vt is None else check_seconds("vt", vt) * 1000
        key_names = [keys.zset, keys.hash, keys.owners, keys.notes, keys.control, keys.unhandled]
        args: list[Argument] = ["", check_count("count", count, MAX_RECEIVED), hide]
        _, *flat = self._there(queue, self._run("rsmq_receive", key_names, args))
        return [_received(*flat[at : at + 4]) for at in range(0, len(flat), 7)]

    def pop(self, queue: str) -> Received | None:
        """Receive a message and delete it at once.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        keys = self._keys(queue)
        found = self._there(queue, self._run("rsmq_pop", [keys.zset, keys.hash]))
        return _received(*found) if found else None

    def delete(self, queue: str, ids: Sequence[str]) -> int:
        """Delete messages, also held ones, and return how many existed.

        Raises:
            InvalidFormat: an id is invalid, and no message has it.
        """
        keys = self._keys(queue)
        key_names = [keys.zset, keys.hash, keys.owners, keys.notes, keys.unhandled]
        removed = int(self._run("rsmq_delete", key_names, [check_id(each) for each in ids]))
        if removed < len(ids):
            for each in ids:
                check_missing(each)
        return removed

    def show(self, queue: str, message_id: str, vt: Number) -> bool:
        """Hide a message for `vt` seconds from now, and return whether it existed.

        Raises:
            InvalidFormat: the id is invalid, and no message has it.
            QueueNotFound: the queue does not exist.
        """
        keys = self._keys(queue)
        args: list[Argument] = [check_id(message_id), check_seconds("vt", vt) * 1000, keys.wake]
        found = bool(self._there(queue, self._run("rsmq_change_visibility", [keys.zset, keys.hash], args)) == 1)
        if not found:
            check_missing(message_id)
        return found

    def _there(self, queue: str, reply: Any) -> Any:
        if reply == b"NOQUEUE":
            # A name that only other programs give is invalid here unless one of them did.
            raise QueueNotFound(f"Queue not found: {check_queue(queue)!r}")
        return reply


def _received(message_id: bytes, body: bytes, count: int, first_ms: bytes) -> Received:
    text = message_id.decode(errors="replace")
    sent = sent_micros(text)
    return Received(text, body, count, whole(first_ms, LAST_MS) or 0, None if sent is None else sent / 1000)
