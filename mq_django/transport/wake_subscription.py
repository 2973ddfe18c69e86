"""Wait for a notification on a pub/sub channel, or for the end of another connection."""

import select
from collections.abc import Sequence

from mq_django.errors import StoreError
from mq_django.transport.cluster_wires import AnySession


class WakeSubscription:
    """A subscription for one thread. Pub/sub may lose notifications, so callers also poll."""

    def __init__(self, session: AnySession, channels: Sequence[str]) -> None:
        self._session = session
        self._channels = channels
        self._is_subscribed = False

    def listen(self) -> bool:
        """Subscribe if not yet subscribed, and return whether this call did.

        Raises:
            ConnectionLost: cannot reach Redis.
        """
        if self._is_subscribed:
            return False
        self._session.send([("SUBSCRIBE", *self._channels)])
        for _ in self._channels:
            self._session.receive()
        self._is_subscribed = True
        return True

    def wait(self, seconds: float, *, beside: AnySession) -> None:
        """Return after a notification, when the connection `beside` has data or ends, or after `seconds`."""
        sockets = [sock for sock in (self._session.socket, beside.socket) if sock is not None]
        if self._drain():
            return
        select.select(sockets, [], [], seconds)
        self._drain()

    def _drain(self) -> bool:
        """Read all notifications, and return whether there were any."""
        received = False
        try:
            while self._session.can_receive():
                self._session.receive()
                received = True
        except StoreError:
            self.close()
            return True
        return received

    def close(self) -> None:
        """Close the subscription. The next `listen` subscribes again."""
        self._is_subscribed = False
        self._session.close()
