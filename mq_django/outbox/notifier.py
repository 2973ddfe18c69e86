"""Notify relays of new rows, from a thread in the background: no request waits for it.

Notifications of one server are coalesced. After a failure none is sent for a second. Relays also look by themselves, so
that a notification that is lost only costs time.
"""

import os
import threading
import time

from mq_django.core.delivery_options import DeliveryOptions
from mq_django.core.keys import outbox_channel
from mq_django.core.logs import get_logger
from mq_django.errors import MQError
from mq_django.transport.connections import open_wire
from mq_django.transport.sessions import reply_or_raise

logger = get_logger(__name__)

#: Seconds without notifications after a failure.
SILENCE = 1.0
#: Seconds without rows after which the thread ends.
LINGER = 30.0


class Notifier:
    """Sends notifications in a thread that starts at the first one, and ends when there are none any more."""

    def __init__(self) -> None:
        self._due = threading.Condition()
        #: The servers to notify: CONNECTION and channel.
        self._waiting: set[tuple[str, str]] = set()
        self._is_running = False

    def notify(self, connection: str, channel: str) -> None:
        """Have a notification sent to a server."""
        with self._due:
            self._waiting.add((connection, channel))
            if self._is_running:
                self._due.notify()
                return
            self._is_running = True
        threading.Thread(target=self._run, name="mq_django outbox notifier", daemon=True).start()

    def _run(self) -> None:
        while servers := self._next():
            failed = [self._send(*server) for server in servers].count(False)
            if failed:
                time.sleep(SILENCE)

    def _next(self) -> set[tuple[str, str]]:
        with self._due:
            if not self._waiting:
                self._due.wait(LINGER)
            servers, self._waiting = self._waiting, set()
            self._is_running = bool(servers)
            return servers

    @staticmethod
    def _send(connection: str, channel: str) -> bool:
        try:
            reply_or_raise(open_wire("produce", connection).trip([("PUBLISH", channel, "rows")])[0])
        except MQError as error:
            logger.info("Relays are not notified of rows of the outbox, and find them later: %s", error)
            return False
        except BaseException:
            logger.exception("Relays are not notified of rows of the outbox, and find them later")
            return False
        return True


_notifier = Notifier()


def notify(destination: DeliveryOptions) -> None:
    """Notify the relays of the server of a queue or topic that there are rows."""
    _notifier.notify(destination.connection, outbox_channel(destination.namespace))


def _restart() -> None:
    global _notifier  # noqa: PLW0603 - the thread and the lock of the parent are not in a forked child
    _notifier = Notifier()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart)
