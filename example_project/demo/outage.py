"""An outage of Redis while visitors go on ordering: its server is killed, and started again with its data."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from example_project.demo.visitors import Visitors
from mq_django.transport.private_server import PrivateServer

#: Seconds from the first visitor until Redis is killed, and for how long it is away.
AFTER, LASTS = 10.0, 5.0
#: Of a demo that ends by itself, at most these shares of its time.
AFTER_SHARE, LASTS_SHARE = 0.3, 0.25
#: It lasts until so many orders were placed: a slow machine needs longer. At most for so many seconds.
ORDERS, LIMIT = 2, 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A time in which there was no Redis."""

    since: datetime
    until: datetime
    #: Visits that ended with an error meanwhile.
    failures: int

    @property
    def seconds(self) -> float:
        """Return how long it was."""
        return (self.until - self.since).total_seconds()


class Outage:
    """Kills the server of the demo once, and starts it again.

    Args:
        server: is killed by its process id. None: it belongs to somebody else, and there is no outage.
        visitors: go on meanwhile.
        seconds: how long the demo runs; None: until somebody ends it.
        say: is called with a line about what happens.
    """

    def __init__(
        self, server: PrivateServer | None, visitors: Visitors, *, seconds: float | None, say: Callable[[str], None]
    ) -> None:
        share = float("inf") if seconds is None else seconds
        self._server = server
        self._visitors = visitors
        self._say = say
        self._lasts = min(LASTS, share * LASTS_SHARE)
        self._begins = time.monotonic() + min(AFTER, share * AFTER_SHARE)
        self._killed = 0.0
        self._since = timezone.now()
        self._orders = self._failures = 0
        self.away: Away | None = None

    @property
    def is_on(self) -> bool:
        """Return whether Redis is away now."""
        return bool(self._killed) and self.away is None

    def tend(self) -> None:
        """Kill the server, or start it again, when it is time to.

        Raises:
            ConnectionLost: the server does not start again.
        """
        if self.is_on:
            lasted = time.monotonic() - self._killed
            enough = self._visitors.orders - self._orders >= ORDERS
            if lasted >= LIMIT or (lasted >= self._lasts and enough):
                self.end()
        elif self._server is not None and not self._killed and time.monotonic() >= self._begins:
            self._kill(self._server)

    def end(self) -> None:
        """Start the server again if it is away.

        Raises:
            ConnectionLost: it does not start.
        """
        if not self.is_on or self._server is None:
            return
        # Noted before the start, during which orders are still placed without it, and those after it are no concern.
        until, failures = timezone.now(), self._visitors.failures - self._failures
        self._server.start()
        self.away = Away(since=self._since, until=until, failures=failures)
        self._say(f"Redis is back after {self.away.seconds:.1f} s, with its data: process {self._server.pid}.")

    def _kill(self, server: PrivateServer) -> None:
        pid = server.pid
        self._orders, self._failures = self._visitors.orders, self._visitors.failures
        server.kill()
        self._since, self._killed = timezone.now(), time.monotonic()
        self._say(f"Redis is killed: process {pid}. Visitors go on ordering.")
