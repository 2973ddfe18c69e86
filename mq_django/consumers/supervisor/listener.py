"""Receive notifications that should not wait for the next poll: an earlier due time, a pause."""

from collections.abc import Callable, Mapping
from typing import Any

import redis

from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.transport.failures import translated
from mq_django.transport.sessions import interrupt

logger = get_logger(__name__)

#: Seconds that a read of the subscription waits, and seconds of silence after which the connection is pinged.
LISTEN = 5.0
PING_EVERY = 30.0
#: Reported for a channel when its subscription begins, because earlier notifications were missed.
SUBSCRIBED = "subscribed"


class Listener(Service):
    """Subscribes to the wake channels of the queues. Pub/sub may lose notifications, so all queues are polled, too."""

    name = "listener"

    def __init__(self, client: redis.Redis, channels: Mapping[str, int], heard: Callable[[int, str], None]) -> None:
        super().__init__()
        self._client = client
        self._channels = channels
        self._heard = heard
        self._subscription: Any = None
        #: Whether the subscription is active.
        self.is_subscribed = False

    def run_once(self) -> float:
        """Wait for a notification and report it."""
        with translated():
            if self._subscription is None:
                self._subscribe()
            event = self._subscription.get_message(timeout=LISTEN)
        if event is not None and event["type"] == "subscribe":
            self.is_subscribed = True
            self._heard(self._channels[event["channel"].decode()], SUBSCRIBED)
        elif event is not None and event["type"] == "message":
            self._heard(self._channels[event["channel"].decode()], event["data"].decode(errors="replace"))
        return 0.0

    def recover(self, error: Exception) -> None:
        """Subscribe again."""
        self.close()

    def stop(self) -> None:
        """End the loop, and interrupt its wait."""
        super().stop()
        interrupt(getattr(self._subscription, "connection", None))

    def close(self) -> None:
        """Close the subscription."""
        self.is_subscribed = False
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _subscribe(self) -> None:
        subscription = self._client.pubsub()  # type: ignore[no-untyped-call]
        self._subscription = subscription
        subscription.health_check_interval = PING_EVERY
        subscription.subscribe(*self._channels)
