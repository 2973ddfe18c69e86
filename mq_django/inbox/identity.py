"""What identifies a message in the inbox."""

import json
from hashlib import sha256
from typing import NamedTuple, Self

from mq_django.core.messages import Message
from mq_django.core.partitions import public_name
from mq_django.core.visible import escape


class Identity(NamedTuple):
    """What a row of the inbox is for: a message, a handler, and a pass.

    It has no partition, because the effects would happen again after repartitioning, and no generation of a group,
    because they would happen again after a seek.
    """

    #: The name of the queue as a whole, or of the group as `topic:group`.
    queue: str
    message_id: str
    #: In a queue with partitions, two messages with different keys may have the same id.
    key: str | None
    #: The name under which the handler is registered.
    handler: str
    #: The number of the pass.
    number: int = 0

    @classmethod
    def of(cls, message: Message, queue: str, handler: str) -> Self:
        """Return the identity in the first pass.

        Args:
            message: that is handled.
            queue: the name of its queue, of a partition, or of a group as `topic:group`.
            handler: the name under which the handler is registered.
        """
        return cls(public_name(queue), message.id, message.key, handler)

    def digest(self) -> str:
        """Return a SHA-256 in hexadecimal."""
        return digest_of(*self)


def digest_of(*parts: str | int | None) -> str:
    """Return the SHA-256 of some values in hexadecimal. JSON separates them: no value can look like two."""
    return sha256(json.dumps(parts).encode()).hexdigest()


def shown(text: str, limit: int) -> str:
    """Return text for people in a column of `limit` characters: in ASCII, whatever the database accepts."""
    return escape(text).encode("ascii", "backslashreplace").decode()[:limit]
