"""Log that Redis cannot be reached: once when that begins, once a minute, and once when it is over."""

import threading
import time
from typing import ClassVar

from mq_django.consumers.measuring import Measurers
from mq_django.core.logs import get_logger
from mq_django.errors import ConfigurationError, StoreError
from mq_django.transport.connections import address_of

logger = get_logger(__name__)

#: Seconds between two lines.
LOG_AGAIN = 60.0


class Outage:
    """The outage of a server that the services of a process notice, if there is one. It may be used by any thread."""

    #: Seconds until the first line. A consumer waits for a minute, because its supervisor logs the same outage.
    grace: ClassVar[float] = 0.0

    def __init__(self, at: str) -> None:
        #: The address of the server, for the log.
        self._at = at
        self._lock = threading.Lock()
        self._affected: set[object] = set()
        #: On the monotonic clock.
        self._since = self._next_line = 0.0

    def failed(self, service: object, error: StoreError) -> None:
        """Note that a service could not reach Redis, and log that when it is time for a line."""
        now = time.monotonic()
        with self._lock:
            if not self._affected:
                self._since, self._next_line = now, now + self.grace
                if Measurers.supervisor is not None:
                    Measurers.report(Measurers.supervisor.lost_redis)
            self._affected.add(service)
            if now < self._next_line:
                return
            self._next_line = now + LOG_AGAIN
        logger.warning("Waiting for Redis at %s for %.0f s: %s", self._at, now - self._since, error)

    def recovered(self, service: object) -> bool:
        """Note that a service has reached Redis, and return whether it could not before. The last one is logged."""
        now = time.monotonic()
        with self._lock:
            if service not in self._affected:
                return False
            self._affected.discard(service)
            is_over = not self._affected and self._next_line > self._since + self.grace
        if is_over:
            logger.info("Redis at %s has been reached again after %.0f s", self._at, now - self._since)
        return True

    def forget(self, service: object) -> None:
        """Forget a service that has ended."""
        with self._lock:
            self._affected.discard(service)


#: By address: several connections may lead to one server, such as to databases of it.
_outages: dict[str, Outage] = {}


def failed(connection: str, service: object, error: StoreError) -> None:
    """Note that a service of this process could not reach a server."""
    try:
        at = address_of(connection)
    except (ConfigurationError, StoreError):  # the embedded server does not start
        at = connection
    _outages.setdefault(at, Outage(at)).failed(service, error)


def recovered(service: object) -> bool:
    """Note that a service has reached all its servers, and return whether it could not before."""
    # Of each server, so no generator.
    found = [outage.recovered(service) for outage in list(_outages.values())]
    return any(found)


def forget(service: object) -> None:
    """Forget a service that has ended."""
    for outage in list(_outages.values()):
        outage.forget(service)
