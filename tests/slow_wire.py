"""A transport whose time is a parameter: replies of Redis come late, or not at all, and nobody has to wait for them."""

from types import SimpleNamespace
from typing import Any

import pytest
from redis.connection import AbstractConnection
from redis.exceptions import TimeoutError as ReplyTimeout

from mq_django.transport import sessions


class SlowWire:
    """Makes each reply late, and after some of them lets none arrive: then a read ends by its timeout.

    With a port, this is so for the server there only.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, replies: int = 0, late: float = 0.0, port: int = 0) -> None:
        #: The time on the clock that budgets use: what was spent on waiting for replies.
        self.seconds = 0.0
        #: How many reads have ended by their timeout.
        self.timeouts = 0
        self._left, self._late, self._port = replies, late, port
        self._awaited: set[int] = set()
        self._read, self._send = AbstractConnection.read_response, AbstractConnection.send_packed_command

        def read_response(connection: Any, *args: Any, **options: Any) -> Any:
            return self._reply(connection, *args, **options)

        def send_packed_command(connection: Any, *args: Any, **options: Any) -> None:
            self._ask(connection, *args, **options)

        monkeypatch.setattr(AbstractConnection, "read_response", read_response)
        monkeypatch.setattr(AbstractConnection, "send_packed_command", send_packed_command)
        monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=lambda: self.seconds))

    def _ask(self, connection: Any, *args: Any, **options: Any) -> None:
        self._awaited.add(id(connection))
        self._send(connection, *args, **options)

    def _reply(self, connection: Any, *args: Any, **options: Any) -> Any:
        if self._port and getattr(connection, "port", None) != self._port:
            return self._read(connection, *args, **options)
        # What was sent together is answered together.
        if id(connection) in self._awaited:
            self._awaited.remove(id(connection))
            self._left -= 1
            timeout = connection._sock.gettimeout()
            if self._left < 0 or self._late > timeout:
                self.seconds += timeout
                self.timeouts += 1
                connection.disconnect()
                raise ReplyTimeout("Timeout reading from socket")
            self.seconds += self._late
        return self._read(connection, *args, **options)
