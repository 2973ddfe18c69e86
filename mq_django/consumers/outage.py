"""Log that Redis cannot be reached: once when that begins, once a minute, and once when it is over."""

import threading
import time
from collections.abc import Iterator, Mapping
from typing import ClassVar

from django.db import connections

from mq_django.consumers.measuring import Measurers
from mq_django.core.logs import get_logger
from mq_django.core.texts import path_of
from mq_django.errors import ConfigurationError, StoreError
from mq_django.transport.connections import address_of

# The pools of connections that Django makes for PostgreSQL, compared with the threads that need connections.

#: Handlers that a consumer process runs at once, unless it is started with another number.
DEFAULT_THREADS = 8
#: Connections of a pool without `min_size` and `max_size`, as psycopg_pool makes it.
_DEFAULT_SIZE = 4


def pools() -> Iterator[tuple[str, int]]:
    """Yield the alias of each database with a pool, and the most connections that the pool has."""
    for alias in connections:
        database = connections.databases[alias]
        options = database.get("OPTIONS", {}).get("pool")
        if options and "postg" in database["ENGINE"]:
            given: Mapping[str, object] = options if isinstance(options, Mapping) else {}
            most = given.get("max_size") or given.get("min_size") or _DEFAULT_SIZE
            if isinstance(most, int):
                yield alias, most


def small_pools(threads: int) -> list[str]:
    """Return a sentence for each database whose pool has fewer connections than a consumer process has threads."""
    return [
        f"The pool of DATABASES[{alias!r}] has at most {most} connections, and a consumer process runs up to {threads} "
        "handlers at once: the others wait for a connection, and fail after a time"
        for alias, most in pools()
        if most < threads
    ]


def pool_hint(error: BaseException) -> str:
    """Return what to look at if an error says that a pool had no free connection; "" for any other error."""
    # Not error.__cause__, which a class may let fail.
    cause = path_of(type(vars(BaseException)["__cause__"].__get__(error)))
    if not (cause.startswith("psycopg_pool") and cause.endswith(".PoolTimeout")):
        return ""
    sizes = [f"that of DATABASES[{alias!r}] has at most {most}" for alias, most in pools()]
    return f" The pool had no free connection ({', '.join(sizes)}): raise its max_size, or start with fewer --threads."


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
        #: When a service has recovered, the first one since any has failed: others wait up to 5 s for a reply.
        self._reached: float | None = None

    def failed(self, service: object, error: StoreError) -> None:
        """Note that a service could not reach Redis, and log that when it is time for a line."""
        now = time.monotonic()
        with self._lock:
            if not self._affected:
                self._since, self._next_line = now, now + self.grace
                if Measurers.supervisor is not None:
                    Measurers.report(Measurers.supervisor.lost_redis)
            self._affected.add(service)
            self._reached = None
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
            if self._reached is None:
                self._reached = now
            lasted = self._reached - self._since
            is_over = not self._affected and self._next_line > self._since + self.grace
        if is_over:
            logger.info("Redis at %s has been reached again after %.0f s", self._at, lasted)
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
