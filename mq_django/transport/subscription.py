"""Read the messages of pub/sub channels, for one thread."""

import select
import time
from collections.abc import Iterator, Sequence
from typing import Any

from mq_django.errors import ConnectionLost, StoreError
from mq_django.transport.cluster_transport import AnySession, ClusterSession
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import reply_or_raise

#: Seconds of silence after which the connection is pinged, and in which there must be a reply.
PING_EVERY = 30.0
PING_WITHIN = 5.0


class Subscription:
    """A subscription whose messages are read one after another. Pub/sub may lose them, so that callers also look.

    On a Redis Cluster it is on the node that has the first channel. The nodes tell each other what is published.
    """

    def __init__(self, session: AnySession, channels: Sequence[str]) -> None:
        self._session = session
        self._channels = channels
        self._is_open = False
        #: That of the subscription. A session may connect anew without a word, and then has none.
        self._socket: Any = None
        #: The time of the last message, and of a ping without a reply so far, on the monotonic clock.
        self._heard = 0.0
        self._pinged: float | None = None

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
        self._is_open, self._socket = True, self._session.socket
        self._heard, self._pinged = time.monotonic(), None
        return True

    def change(self, channels: Sequence[str]) -> None:
        """Subscribe to these channels instead. The first must stay the same, because on a cluster it chooses the node.

        Messages of a new channel may be lost until messages() yields it without data.

        Raises:
            ConnectionLost: cannot reach Redis.
        """
        before, self._channels = self._channels, channels
        if channels is before or not self._is_open:
            return
        added, removed = set(channels) - set(before), set(before) - set(channels)
        # The connection is that of the first channel. To subscribe to it again changes nothing.
        commands: list[Command] = [("SUBSCRIBE", channels[0], *added)]
        self._session.send([*commands, ("UNSUBSCRIBE", *removed)] if removed else commands)

    def messages(self, seconds: float) -> Iterator[tuple[str, bytes]]:
        """Yield channel and data of each message that is there, after a wait of up to so many seconds for the first.

        A channel that change() has added is yielded with b"" when its subscription has begun.

        Raises:
            ConnectionLost: the connection has ended, or leads to a node that no longer is the channels'.
        """
        while self._session.can_receive(seconds):
            seconds = 0.0
            reply = reply_or_raise(self._session.receive())
            self._heard, self._pinged = time.monotonic(), None
            if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":
                yield bytes(reply[1]).decode(errors="replace"), bytes(reply[2])
            elif isinstance(reply, list) and reply[0] == b"subscribe":
                yield bytes(reply[1]).decode(errors="replace"), b""
        self._check()

    def _check(self) -> None:
        """Look whether the connection still is one: half of it may have gone without a word."""
        now = time.monotonic()
        if self._session.socket is not self._socket:
            raise ConnectionLost("The connection of the subscription has ended")
        if self._pinged is not None and now > self._pinged + PING_WITHIN:
            raise ConnectionLost("Redis did not answer a ping in time")
        if isinstance(self._session, ClusterSession) and not self._session.is_at([("SUBSCRIBE", *self._channels)]):
            raise ConnectionLost("Another node of the Redis Cluster has the channels now")
        if self._pinged is None and now > self._heard + PING_EVERY:
            self._session.ping()
            self._pinged = now

    def interrupt(self) -> None:
        """End another thread's wait for a message. That thread gets ConnectionLost."""
        self._session.interrupt()

    def close(self) -> None:
        """Close the connection. The next open() subscribes again."""
        self._is_open = False
        self._session.close()


# Wait for a notification on a pub/sub channel, or for the end of another connection.


class WakeSubscription(Subscription):
    """A subscription that only says that there was a notification."""

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
