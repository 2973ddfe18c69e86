"""A wire that waits until a replica has what was written."""

import threading
from collections.abc import Sequence
from typing import Any

from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire

#: Milliseconds until a replica must have confirmed. A publish fails within 5 s in total.
REPLICA_MS = 500


class ReplicaWire(Wire):
    """Sends WAIT behind the commands of each trip, in the same round trip."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        #: Of each thread: whether a replica has confirmed all trips since `begin()`.
        self._state = threading.local()

    def begin(self) -> None:
        """Begin what `is_confirmed()` is about."""
        self._state.confirmed = True

    def is_confirmed(self) -> bool:
        """Return whether a replica had in time what this thread has written since `begin()`."""
        return bool(self._state.confirmed)

    def trip(self, commands: Sequence[Command]) -> list[Any]:
        """See Wire.trip()."""
        *replies, confirming = self._wire.trip([*commands, ("WAIT", 1, REPLICA_MS)])
        # An error, such as that of a user without the right, confirms nothing.
        if not (isinstance(confirming, int) and confirming > 0):
            self._state.confirmed = False
        return replies
