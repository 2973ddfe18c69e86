"""Requests to cancel messages that do not wait any more: their consumers drop or interrupt them."""

from collections.abc import Mapping

from mq_django.conf import QueueConfig
from mq_django.core.lookup import CancelResult
from mq_django.core.numbers import score
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
