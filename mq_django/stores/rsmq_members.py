"""The members of a queue in RSMQ's format."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from mq_django.conf import RsmqConfig
from mq_django.stores.members import Members, Membership, read_membership
from mq_django.stores.rsmq_store import RsmqStore
from mq_django.transport.sessions import Wire, reply_or_raise


class RsmqMembers(Members):
    """The consumers of one queue and their supervisors."""

    def __init__(self, config: RsmqConfig, wire: Wire) -> None:
        super().__init__(config, wire)
        self._store = RsmqStore(config, wire)
        self._vt = config.vt
        #: Until when nobody else can receive what was extended last, in seconds of the monotonic clock.
        self._hidden_until = 0.0

    def beat(
        self,
        supervisor: str,
        description: Mapping[str, Any],
        consumers: Mapping[str, Mapping[str, Any]],
        *,
        generation: str = "",
    ) -> Membership | None:
        """Record a heartbeat, and extend all messages that the consumers hold.

        Other programs do not know heartbeats, and receive every message that becomes visible.
        """
        membership = super().beat(supervisor, description, consumers, generation=generation)
        if membership is not None:
            self._extend(consumers)
        return membership

    def keep_alive(self, supervisor: str) -> bool:
        """See Members.keep_alive()."""
        is_alive = super().keep_alive(supervisor)
        fields = reply_or_raise(self._wire.trip([("HGETALL", self._keys.consumers)])[0]) if is_alive else []
        membership = read_membership(dict(zip(fields[::2], fields[1::2], strict=True)))
        if held := membership.consumers_of(supervisor):
            self._extend(held)
        return is_alive

    def _extend(self, consumers: Iterable[str]) -> None:
        """Extend all messages that consumers hold. After too long, others may have received some of them."""
        began = time.monotonic()
        self._store.extend_all(consumers)
        now = time.monotonic()
        if now > self._hidden_until:
            self.held_since = now
        self._hidden_until = began + self._vt

    def leave(self, consumers: Iterable[str], *, supervisor: str = "") -> list[str]:
        """See Members.leave()."""
        names = list(consumers)
        holding = [consumer for consumer in names if self._store.holds(consumer)]
        gone = [consumer for consumer in names if consumer not in holding]
        return [*super().leave(gone, supervisor="" if holding else supervisor), *holding]
