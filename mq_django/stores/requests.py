"""Requests to cancel messages that do not wait any more: their consumers drop or interrupt them."""

from collections.abc import Mapping

from mq_django.conf import QueueConfig
from mq_django.core.messages import CancelResult
from mq_django.core.numbers import LAST_MS, score, whole
from mq_django.core.stacks import MAX_BYTES
from mq_django.transport import scripts
from mq_django.transport.sessions import Wire, reply_or_raise


class CancelRequests:
    """The requests of one queue. Each is kept for a day, or until its message is cancelled or redriven."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._keys = config.keys
        self._wire = wire

    def ask(self, id_or_unique: str | bytes, *, force: bool) -> CancelResult:
        """Ask the consumers to cancel a message, by its id or by `u:` + a unique key that it claims."""
        keys = self._keys
        key_names = [keys.cancels, keys.claims, keys.consumers]
        command = scripts.command("cancels_ask", keys=key_names, args=[id_or_unique, "1" if force else "", keys.wake])
        reply = reply_or_raise(self._wire.trip([command])[0])
        return CancelResult.ASKED if reply == b"ASKED" else CancelResult.NOT_WAITING

    def read(self) -> Mapping[str, bool]:
        """Return the ids, each with whether its process may be replaced."""
        (reply,) = self._wire.trip([("ZRANGE", self._keys.cancels, 0, -1, "WITHSCORES")])
        flat = reply_or_raise(reply)
        return {
            known.decode(errors="replace"): (score(at) or 0.0) % 1 > 0
            for known, at in zip(flat[::2], flat[1::2], strict=True)
        }

    def has(self, message_id: str) -> bool:
        """Return whether there is a request for a message. One that was redriven since has none."""
        return reply_or_raise(self._wire.trip([("ZSCORE", self._keys.cancels, message_id)])[0]) is not None


# Requests for the stacks of what a consumer runs, and its answers. Both keys have a TTL, and exist only when used.

#: How long a request and an answer are kept, in ms.
KEPT_MS = 60_000
#: The most bytes of the first line of an answer: the time of the request that it is for.
_HEAD = 16


class StackRequests:
    """The requests to the consumers of one queue.

    A request is its time by the server's clock. An answer is for all requests up to the one that it names, so several
    operators who ask at once get the same one.
    """

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self.queue = config.name
        self._keys = config.keys
        self._wire = wire

    def ask(self, consumer: str) -> int | None:
        """Ask a consumer of the queue, and return the time of the request in ms since 1970; None if it is gone.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        keys = self._keys
        args: list[scripts.Argument] = [consumer, KEPT_MS, keys.wake]
        command = scripts.command("stacks_ask", keys=[keys.stacks, keys.consumers], args=args)
        return whole(reply_or_raise(self._wire.trip([command])[0]), LAST_MS)

    def asked(self, consumer: str) -> int | None:
        """Return the time of the latest request to a consumer; None without one.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        return whole(reply_or_raise(self._wire.trip([("HGET", self._keys.stacks, consumer)])[0]), LAST_MS)

    def answer(self, consumer: str, asked: int, text: bytes) -> None:
        """Answer the requests to a consumer up to a time.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        key = self._keys.stacks_of(consumer)
        reply_or_raise(self._wire.trip([("SET", key, b"%d\n%b" % (asked, text), "PX", KEPT_MS)])[0])

    def read(self, consumer: str, asked: int) -> bytes | None:
        """Return the text of the answer to a request, or to a later one; None while there is none.

        Raises:
            StoreError: Redis cannot be reached.
        """
        key = self._keys.stacks_of(consumer)
        # Only its beginning, because the answer to an earlier request may be large, and is looked at several times.
        if _answered(self._wire.trip([("GETRANGE", key, 0, _HEAD - 1)])[0]) < asked:
            return None
        (found,) = self._wire.trip([("GETRANGE", key, 0, _HEAD + MAX_BYTES)])
        return found.partition(b"\n")[2] if _answered(found) >= asked else None


def _answered(reply: object) -> int:
    """Return the time of the request that an answer is for; -1 if it is none, as a key of another type."""
    head, end, _ = reply.partition(b"\n") if isinstance(reply, bytes) else (b"", b"", b"")
    found = whole(head, LAST_MS) if end else None
    return -1 if found is None else found
