"""Read the messages of pub/sub channels, for one thread."""

from collections.abc import Iterator, Sequence

from mq_django.transport.sessions import Session, reply_or_raise


class Subscription:
    """A subscription whose messages are read one after another. Pub/sub may lose them, so that callers also look."""

    def __init__(self, session: Session, channels: Sequence[str]) -> None:
        self._session = session
        self._channels = channels
        self._is_open = False

    def open(self) -> bool:
        """Subscribe if not yet subscribed, and return whether this call did.

        Raises:
            ConnectionLost: cannot reach Redis.
            NotPermitted: the Redis user may not subscribe.
        """
        if self._is_open:
            return False
        self._session.send([("SUBSCRIBE", *self._channels)])
        for _ in self._channels:
            reply_or_raise(self._session.receive())
        self._is_open = True
        return True

    def messages(self, seconds: float) -> Iterator[bytes]:
        """Yield the messages that are there, after a wait of up to so many seconds for the first.

        Raises:
            ConnectionLost: the connection has ended.
        """
        while self._session.can_receive(seconds):
            seconds = 0.0
            reply = reply_or_raise(self._session.receive())
            if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":
                yield bytes(reply[2])

    def close(self) -> None:
        """Close the connection. The next open() subscribes again."""
        self._is_open = False
        self._session.close()
