"""Several commands in one round trip, on a connection of one's own or one from the pool."""

import math
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import redis
from redis import exceptions

from mq_django.errors import ConnectionLost, ReadOnly
from mq_django.transport.failures import error_code, error_text, translate, translate_connecting
from mq_django.transport.scripts import Command, in_full

_pack_command: Callable[[Command], bytes] | None = (
    import_module("hiredis").pack_command if find_spec("hiredis") else None
)


class Wire(Protocol):
    """What a store talks through."""

    def trip(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip and return a reply each; an error reply is a `ResponseError` in its place.

        All their keys are in one hash slot: those of one queue, or of one topic with its groups.

        Raises:
            ConnectionLost: the connection broke; which commands ran is not known.
        """

    def trips(self, trips: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """Send several trips, each for a hash slot of its own, and return the replies of each.

        Trips to one server are one round trip. An error reply stays in its place and says nothing of the other trips.

        Raises:
            ConnectionLost: the connection broke; which commands ran is not known.
        """
        commands = [command for trip in trips for command in trip]
        replies = iter(self.trip(commands) if commands else ())
        return [[next(replies) for _ in trip] for trip in trips]


def _introduced(connection: Any, commands: Sequence[Command]) -> Sequence[Command]:
    """Return the commands, with each script in full the first time that a connection sends it.

    A script that turned out to be unknown would run after the commands behind it: a message would be settled before
    what belongs before that.
    """
    # Kept with the connection, which one thread holds at a time; a new socket may lead to a server that knows nothing.
    socket_now = getattr(connection, "_sock", None)
    socket_then, known = getattr(connection, "mq_django_scripts", (None, frozenset()))
    if socket_then is not socket_now:
        known = frozenset()
    new = {command[1] for command in commands if command[0] == "EVALSHA"} - known
    if not new:
        return commands
    connection.mq_django_scripts = (socket_now, known | new)
    return [in_full(command) if command[0] == "EVALSHA" and command[1] in new else command for command in commands]


def interrupt(connection: Any) -> None:
    """End another thread's wait on a connection of redis-py, without taking its socket from under it."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class _Select:
    """Does for one socket what `select.poll` does, where there is none: on Windows."""

    def register(self, sock: Any, _mask: int) -> None:
        self._sock = sock

    def poll(self, timeout: int) -> list[Any]:
        return select.select([self._sock], [], [], timeout / 1000)[0]


#: Returns what tells whether a socket can be read.
_poll: Callable[[], Any] = getattr(select, "poll", _Select)
_POLLIN: int = getattr(select, "POLLIN", 1)


class Session(Wire):
    """A connection of one's own, for one thread: what was sent and what is still to come are known."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._pool = client.connection_pool
        self._connection: Any = None
        #: The socket that is registered for polling, which takes a third of asking redis-py.
        self._polled: Any = None
        self._poll = _poll()
        #: When the last reply must have come, in seconds on the monotonic clock.
        self._ends = math.inf

    def limit(self, ends: float) -> None:
        """Let every reply come by a moment of the monotonic clock, or ConnectionLost is raised; infinite: as usual."""
        self._ends = ends
        sock = self.socket
        if ends == math.inf and sock is not None:
            sock.settimeout(self._connection.socket_timeout)

    def _set_timeout(self) -> None:
        left, sock = self._ends - time.monotonic(), self.socket
        if left <= 0:
            self.close()
            raise ConnectionLost("Redis did not answer in time")
        if sock is not None:
            sock.settimeout(min(left, self._connection.socket_timeout or left))

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands without waiting for their replies."""
        if self._ends != math.inf:
            self._set_timeout()
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.send_packed_command(self._packed(_introduced(self._connection, commands)))
        except (exceptions.RedisError, OSError) as error:
            self.close()
            raise translate(error) from error

    def _connect(self) -> Any:
        during = sys.exception()
        try:
            return self._pool.get_connection()
        except (exceptions.RedisError, OSError) as error:
            raise translate_connecting(error, self._pool, during=during) from error

    def _packed(self, commands: Sequence[Command]) -> list[bytes]:
        # In one piece: redis-py's own way looks at each argument, and sends what is long in several.
        if _pack_command is None:
            return [b"".join(self._connection.pack_commands(commands))]
        return [b"".join(map(_pack_command, commands))]

    def receive(self) -> Any:
        """Return the next reply; an error reply is returned, not raised."""
        if self._ends != math.inf:
            self._set_timeout()
        try:
            return self._connection.read_response()
        except exceptions.ResponseError as error:
            return error
        except (exceptions.RedisError, OSError) as error:
            self.close()
            raise translate(error) from error

    def trip(self, commands: Sequence[Command]) -> list[Any]:
        """See Wire.trip()."""
        self.send(commands)
        replies = [self.receive() for _ in commands]
        if any([isinstance(reply, exceptions.ResponseError) for reply in replies]):  # noqa: C419 - a list is faster
            replies = self.again_in_full(commands, replies)
            if any(isinstance(reply, exceptions.ResponseError) and _is_elsewhere(reply) for reply in replies):
                # A master that was demoted answers for ever. The next connection is made to whoever is master then.
                self.close()
        return replies

    def again_in_full(self, commands: Sequence[Command], replies: list[Any]) -> list[Any]:
        """Run again, by their text, the scripts that the server did not know, and return all replies."""
        forgotten = [place for place, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
        if forgotten:
            self.send([in_full(commands[place]) for place in forgotten])
            for place in forgotten:
                replies[place] = self.receive()
        return replies

    def another(self) -> "Session":
        """Return a session on a connection of its own to the same server."""
        return Session(self._client)

    @property
    def socket(self) -> Any:
        """The connection's socket, to wait for beside others; None while there is none."""
        return getattr(self._connection, "_sock", None)

    def can_receive(self) -> bool:
        """Tell whether something has come.

        Raises:
            ConnectionLost: the connection has ended.
        """
        try:
            return self._connection is not None and bool(self._connection.can_read(timeout=0))
        except (exceptions.RedisError, OSError) as error:
            self.close()
            raise translate(error) from error

    def is_quiet(self) -> bool:
        """Tell whether nothing has come, which could only be the end of the connection."""
        sock = self.socket
        if sock is None:
            return True
        if self._polled is not sock:
            self._polled, self._poll = sock, _poll()
            self._poll.register(sock, _POLLIN)
        return not self._poll.poll(0)

    def interrupt(self) -> None:
        """End a wait for a reply in another thread: it gets ConnectionLost."""
        interrupt(self._connection)

    def release(self) -> None:
        """Put the connection back into the pool, with no reply outstanding."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)

    def close(self) -> None:
        """Give the connection up: no late reply can then be taken for another command's."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)


#: Until when the round trips of pooled connections must be over, in seconds on the monotonic clock.
_ends: ContextVar[float] = ContextVar("mq_django_ends", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give all round trips of pooled connections inside so many seconds together: who waits for a page waits no longer.

    What has not come by then raises ConnectionLost. A new connection is made within its own timeouts.
    """
    token = _ends.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.reset(token)


class Idle:
    """The connections of a client that wait for their next round trip."""

    def __init__(self) -> None:
        self._sessions: list[Session] = []
        self._pid = os.getpid()

    def take(self, client: redis.Redis) -> Session:
        """Return a session that is ready to send."""
        if self._pid != os.getpid():
            # Forked: these sockets are the parent's.
            self._sessions, self._pid = [], os.getpid()
        while True:
            try:
                session = self._sessions.pop()
            except IndexError:
                return Session(client)
            if session.is_quiet():
                return session
            session.close()

    def put(self, session: Session) -> None:
        """Keep a session for the next who needs one."""
        self._sessions.append(session)


class Pooled(Wire):
    """A connection for each round trip, for any thread.

    Connections are kept beside redis-py's pool, whose taking and putting back is a fifth of a publish.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        # With the client, so that all who use it share them.
        self._idle: Idle = vars(client).setdefault("mq_django_idle", Idle())

    def trip(self, commands: Sequence[Command]) -> list[Any]:
        """See Wire.trip()."""
        ends = _ends.get()
        session = self._idle.take(self._client)
        try:
            if ends != math.inf:
                session.limit(ends)
            replies = session.trip(commands)
            if ends != math.inf:
                session.limit(math.inf)
        except BaseException:
            session.close()
            raise
        self._idle.put(session)
        return replies


def _is_elsewhere(reply: exceptions.ResponseError) -> bool:
    return isinstance(translate(reply), ReadOnly | ConnectionLost) or error_code(reply) == "UNBLOCKED"


def is_gone(reply: Any) -> bool:
    """Tell whether a reply says that the stream or its group is not there (any more)."""
    if not isinstance(reply, Exception):
        return False
    return error_code(reply) in ("NOGROUP", "UNBLOCKED") or error_text(reply) == "no such key"


def reply_or_raise(reply: Any) -> Any:
    """Return a reply, or raise what an error reply means."""
    if isinstance(reply, exceptions.RedisError):
        raise translate(reply) from reply
    return reply
