"""Wait until something is heard on a pub/sub channel, or another connection ends."""

import select
from collections.abc import Sequence

from mq_django.errors import StoreError
from mq_django.transport.sessions import Session


class WakeSubscription:
    """A subscription for one thread that waits. Pub/sub may lose messages, so nothing may depend on hearing."""

    def __init__(self, session: Session, channels: Sequence[str]) -> None:
        self._session = session
        self._channels = channels
        self._listens = False

    def listen(self) -> bool:
        """Subscribe if that has not been done, and tell whether it was done just now.

        Raises:
            ConnectionLost: Redis is away.
        """
        if self._listens:
            return False
        self._session.send([("SUBSCRIBE", *self._channels)])
        for _ in self._channels:
            self._session.receive()
        self._listens = True
        return True

    def wait(self, seconds: float, *, beside: Session) -> None:
        """Return when something was heard, when the connection `beside` has ended, or after some seconds."""
        sockets = [sock for sock in (self._session.socket, beside.socket) if sock is not None]
        if self._heard():
            return
        select.select(sockets, [], [], seconds)
        self._heard()

    def _heard(self) -> bool:
        """Take up what has come, and tell whether there was anything."""
        heard = False
        try:
            while self._session.can_receive():
                self._session.receive()
                heard = True
        except StoreError:
            self.close()
            return True
        return heard

    def close(self) -> None:
        """Give the subscription up; the next `listen` makes it anew."""
        self._listens = False
        self._session.close()
