"""The waiting room of a queue: bodies in a hash, due times in a sorted set."""

import hashlib
from collections.abc import Iterable, Sequence

from mq_django.conf import QueueConfig
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.messages import Message
from mq_django.core.wire import encode_body
from mq_django.errors import AlreadyPublished, QueueFull
from mq_django.stores.base import Outgoing, Promoted
from mq_django.stores.counters import slot
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise


def member_of(message: Message) -> str:
    """Return what a delayed message waits under: its unique key when it has one, else its id."""
    return message.id if message.unique is None else UNIQUE_PREFIX + message.unique


def name_score(name: str) -> int:
    """Return the score under which a name's unhandled messages lie together: 52 bits, which a double holds exactly."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:13], 16)


class WaitingRoom:
    """Messages that are not deliverable yet."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._config = config
        self._keys = config.keys
        self._wire = wire

    def add(
        self, outgoing: Sequence[Outgoing], *, on_conflict: str = "replace", also: Sequence[Command] = ()
    ) -> list[str]:
        """Put messages in, and return the ids that wait now: those that were there where a conflict keeps them."""
        keys, where = self._keys, slot(self._keys)
        args: list[Argument] = [self._config.max_depth or 0, where.minute, where.hour, keys.wake, on_conflict]
        for message, data_text, delay_ms, due_ms in outgoing:
            member = member_of(message)
            mode, ms = ("=", due_ms) if due_ms is not None else ("+", delay_ms or 0)
            args += (
                message.id,
                member,
                mode,
                ms,
                message.name,
                encode_body(message, data_text, member=member),
            )
        command = scripts.command(
            "waiting_add", keys=[keys.due, keys.waiting, keys.unique, keys.ready, *where.keys], args=args
        )
        reply = reply_or_raise(self._wire.trip([*also, command])[-1])
        if reply == b"FULL":
            raise QueueFull(f"Queue {self._config.name!r} is at its MAX_DEPTH of {self._config.max_depth}")
        if reply == b"EXISTS":
            raise AlreadyPublished(f"Queue {self._config.name!r} has a message with this unique key")
        return [message_id.decode() for message_id in reply]

    def promote(self, *, limit: int) -> Promoted:
        """Make up to `limit` due messages ready, by the server's clock."""
        keys = self._keys
        command = scripts.command(
            "waiting_promote",
            keys=[keys.due, keys.waiting, keys.unique, keys.ready, keys.unhandled, keys.control],
            args=[limit],
        )
        moved, next_ms, paused, unhandled = reply_or_raise(self._wire.trip([command])[0])
        return Promoted(moved, None if next_ms < 0 else next_ms, bool(paused), unhandled)

    def cancel(self, member: str | bytes) -> bool:
        """Remove a message that waits under its id, or `u:` and its unique key; tell whether it was there."""
        keys = self._keys
        command = scripts.command(
            "waiting_cancel", keys=[keys.due, keys.unhandled, keys.waiting, keys.unique], args=[member]
        )
        return bool(reply_or_raise(self._wire.trip([command])[0]) == b"CANCELLED")

    def release(self, names: Iterable[str], *, limit: int) -> int:
        """Make up to `limit` unhandled messages of each name ready, and return how many."""
        keys = self._keys
        commands = [
            scripts.command(
                "waiting_release",
                keys=[keys.unhandled, keys.waiting, keys.ready],
                args=[name_score(name), limit],
            )
            for name in names
        ]
        return sum(reply_or_raise(reply) for reply in self._wire.trip(commands)) if commands else 0
