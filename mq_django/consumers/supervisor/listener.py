"""Receive notifications that should not wait for the next poll: an earlier due time, a pause."""

from collections.abc import Callable, Mapping

from mq_django.consumers.service import Service
from mq_django.transport.cluster_wires import AnySession
from mq_django.transport.subscription import Subscription

#: Seconds that a read of the subscription waits.
LISTEN = 5.0
#: Reported for a channel when its subscription begins, because earlier notifications were missed.
SUBSCRIBED = "subscribed"


class Listener(Service):
    """Subscribes to the wake channels of the queues. Pub/sub may lose notifications, so all queues are polled, too."""

    name = "listener"

    def __init__(self, session: AnySession, channels: Mapping[str, int], heard: Callable[[int, str], None]) -> None:
        super().__init__()
        self._subscription = Subscription(session, list(channels))
        self._channels = channels
        self._heard = heard
        #: Whether the subscription is active.
        self.is_subscribed = False

    def run_once(self) -> float:
        """Wait for notifications and report them."""
        if self._subscription.open():
            self.is_subscribed = True
            for number in self._channels.values():
                self._heard(number, SUBSCRIBED)
        for channel, text in self._subscription.messages(LISTEN):
            self._heard(self._channels[channel], text.decode(errors="replace"))
        return 0.0

    def recover(self, error: Exception) -> None:
        """Subscribe again."""
        self.close()

    def stop(self) -> None:
        """End the loop, and interrupt its wait."""
        super().stop()
        self._subscription.interrupt()

    def close(self) -> None:
        """Close the subscription."""
        self.is_subscribed = False
        self._subscription.close()
