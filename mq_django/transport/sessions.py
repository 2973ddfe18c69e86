"""Send several commands in one round trip, on a connection for one thread or on a pooled one."""

import math
import os
import select
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import redis
from redis import exceptions

from mq_django.errors import ConnectionLost, ConnectionRejected, ReadOnly
from mq_django.transport import scripts
from mq_django.transport.failures import error_code, error_text, name_keys, translate, translate_connecting
from mq_django.transport.scripts import Argument, Command, in_full, several

# Limit the time that the round trips of a page may take in total, and ask no server again that did not answer.


class Budget:
    """The seconds that are left for round trips to one server, and why it cannot be reached, if that is known."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds
        self.error: ConnectionLost | None = None


#: The budget of each server, because several are asked at once; by the id of its client.
Budgets = defaultdict[int, Budget]

_budgets: ContextVar[Budgets | None] = ContextVar("mq_django_budgets", default=None)


def budgets_now() -> Budgets | None:
    """Return the budgets of the round trips that this thread or coroutine makes; None without a limit."""
    return _budgets.get()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the total time of all round trips of pooled connections to a server inside, such as a page's.

    A reply that has not arrived by then is ConnectionLost. Connecting has its own timeouts, so a server that was lost
    is not asked again. The time between round trips does not count: a process that computes for long is no reason to
    take Redis for unreachable.
    """
    token = _budgets.set(Budgets(partial(Budget, seconds)))
    try:
        yield
    finally:
        _budgets.reset(token)


# Poll one socket, on every system.


class Select:
    """Replaces `select.poll` for one socket on Windows, which has no poll."""

    def register(self, sock: Any, _mask: int) -> None:
        self._sock = sock

    def poll(self, timeout: int) -> list[Any]:
        return select.select([self._sock], [], [], timeout / 1000)[0]


#: Returns an object that checks whether a socket can be read.
poll: Callable[[], Any] = getattr(select, "poll", Select)
POLLIN: int = getattr(select, "POLLIN", 1)

_pack_command: Callable[[Command], bytes] | None = (
    import_module("hiredis").pack_command if find_spec("hiredis") else None
)


#: Queues in one call of a script. An idle queue takes Redis 10 to 25 µs of it.
TOGETHER = 128


class Transport(Protocol):
    """Sends the commands of stores to Redis."""

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip, and return their replies. An error reply is a `ResponseError` in its place.

        All keys must be in one hash slot: keys of one queue, or of one topic and its groups.

        Raises:
            ConnectionLost: the connection broke. It is unknown which commands ran.
        """

    def ask(self, command: Command) -> Any:
        """Send one command, and return its reply.

        Raises:
            ConnectionLost: the connection broke. It is unknown whether the command ran.
            StoreError: it is an error reply.
        """
        return reply_or_raise(self.pipeline([command])[0])

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands with keys of one hash slot, if any, and return their replies; see ask()."""
        return [reply_or_raise(reply) for reply in self.pipeline(commands)] if commands else []

    def ask_each(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands with keys of any hash slots, and return their replies; see ask()."""
        return [reply_or_raise(reply) for (reply,) in self.pipelines([[command] for command in commands])]

    def run(self, script: str, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run a script of `lua/` by its name, and return its reply; see ask()."""
        return self.ask(scripts.command(script, keys=keys, args=args))

    def pipelines(self, pipelines: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """Send several pipelines, each with keys of one hash slot, and return the replies of each.

        Pipelines to the same server are one round trip. An error reply does not affect the other pipelines.

        Raises:
            ConnectionLost: the connection broke. It is unknown which commands ran.
        """
        commands = [command for pipeline in pipelines for command in pipeline]
        replies = iter(self.pipeline(commands) if commands else ())
        return [[next(replies) for _ in pipeline] for pipeline in pipelines]

    def together(self, commands: Sequence[Command], *, most: int = TOGETHER) -> list[Any]:
        """Run a command for each of several queues, and return the replies. An error is in the place of a reply.

        A server that has all keys runs up to `most` alike as one script: an idle consumer sends few commands, however
        many queues it has. If the server refuses that, because the user lacks a right on one queue, or as a proxy of
        several others, they are sent one by one.

        Raises:
            ConnectionLost: the connection broke. It is unknown which commands ran.
        """
        numbers: dict[Argument, list[int]] = {}
        for number, command in enumerate(commands):
            numbers.setdefault(command[1] if command[0] == "EVALSHA" else command[0], []).append(number)
        shares = [each[at : at + most] for each in numbers.values() for at in range(0, len(each), most)]
        alone = [[commands[number] for number in share] for share in shares]
        sent = [several(share) if len(share) > 1 else share[0] for share in alone]
        answers: list[Any] = [None] * len(commands)
        for share, each, reply in zip(shares, alone, self.pipeline(sent) if sent else (), strict=True):
            replies = [reply] if len(share) == 1 else reply
            if isinstance(replies, Exception):
                replies = [found for (found,) in self.pipelines([[command] for command in each])]
            for number, one in zip(share, replies, strict=True):
                answers[number] = one
        return answers


def _with_new_scripts(connection: Any, commands: Sequence[Command]) -> Sequence[Command]:
    """Return the commands, with the full text of each script that this connection sends for the first time.

    A script that the server does not know runs only in a second round trip, after the commands that follow it. A
    message would then be settled before its result is written.
    """
    # Stored on the connection, which one thread holds at a time. A new socket may lead to a server without the scripts.
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
    """End another thread's wait on a connection of redis-py, without closing the socket that it uses."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class Session(Transport):
    """A transport on a connection of its own, for one thread. Sending and receiving may also be separate calls."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._pool = client.connection_pool
        self._connection: Any = None
        #: MasterFinder.is_old(), if Sentinels name the master.
        self._names_old = getattr(vars(self._pool).get("sentinel_manager"), "is_old", None)
        #: How often it has left a master that is none any more.
        self.moves = 0
        #: The socket that is registered with `poll`. Polling takes a third of the time of redis-py's own check.
        self._polled: Any = None
        self._poll = poll()
        #: The time on the monotonic clock by which replies must have arrived.
        self._ends = math.inf

    def limit(self, ends: float) -> None:
        """Set the time on the monotonic clock after which a missing reply is ConnectionLost; infinity: no limit."""
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
        # Connecting may take long: meanwhile another connection may have found the next master.
        while self._connection is None or self._is_old():
            self.moves += self._connection is not None
            self.close()
            self._connection = self._connect()
        try:
            self._connection.send_packed_command(self._packed(_with_new_scripts(self._connection, commands)))
        except (exceptions.RedisError, OSError) as error:
            self.close()
            raise translate(error) from error

    def _is_old(self) -> bool:
        """Return whether this process has found another master since this connection was made."""
        return bool(self._names_old and self._connection and self._names_old(self._connection))

    def _connect(self) -> Any:
        during = sys.exception()
        try:
            return self._pool.get_connection()
        except (exceptions.RedisError, OSError) as error:
            failure = translate_connecting(error, self._pool, during=during)
            failure.was_sent = False
            raise failure from error

    def _packed(self, commands: Sequence[Command]) -> list[bytes]:
        # As one bytes object. redis-py itself checks each argument, and sends long commands in several pieces.
        if _pack_command is None:
            return [b"".join(self._connection.pack_commands(commands))]
        return [b"".join(map(_pack_command, commands))]

    def ping(self) -> None:
        """Send PING on the connection that there is, without waiting for its reply."""
        self.send([("PING",)])

    def receive(self) -> Any:
        """Return the next reply. An error reply is returned, not raised."""
        if self._ends != math.inf:
            self._set_timeout()
        try:
            return self._connection.read_response()
        except exceptions.ResponseError as error:
            return error
        except (exceptions.RedisError, OSError) as error:
            self.close()
            raise translate(error) from error

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """See Transport.pipeline()."""
        self.send(commands)
        replies = [self.receive() for _ in commands]
        if any([isinstance(reply, exceptions.ResponseError) for reply in replies]):  # noqa: C419 - a list is faster
            replies = self.again_in_full(commands, replies)
            name_keys(commands, replies)
            if any(isinstance(reply, exceptions.ResponseError) and _requires_reconnect(reply) for reply in replies):
                # A demoted master would reply like this for ever. The next connection is made to the new master.
                self.close()
        return replies

    def again_in_full(self, commands: Sequence[Command], replies: list[Any]) -> list[Any]:
        """Run the scripts that the server did not know again, by their text, and return all replies."""
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
        if unknown:
            # WAIT is about what was written before it.
            unknown += [at for at, command in enumerate(commands) if command[0] == "WAIT"]
            self.send([in_full(commands[at]) if commands[at][0] == "EVALSHA" else commands[at] for at in unknown])
            for at in unknown:
                replies[at] = self.receive()
        return replies

    def another(self) -> "Session":
        """Return a session on a connection of its own to the same server."""
        return Session(self._client)

    @property
    def socket(self) -> Any:
        """The connection's socket, for select(); None while not connected."""
        return getattr(self._connection, "_sock", None)

    def can_receive(self, seconds: float = 0.0) -> bool:
        """Return whether there is data to receive, after a wait of up to so many seconds for it.

        Raises:
            ConnectionLost: the connection has ended.
        """
        try:
            return self._connection is not None and bool(self._connection.can_read(timeout=seconds))
        except (exceptions.RedisError, OSError) as error:
            self.close()
            raise translate(error) from error

    def is_quiet(self) -> bool:
        """Return whether there is no data to read. On an idle connection, data means that the server has closed it."""
        sock = self.socket
        if sock is None:
            return True
        if self._polled is not sock:
            self._polled, self._poll = sock, poll()
            self._poll.register(sock, POLLIN)
        return not self._poll.poll(0)

    def interrupt(self) -> None:
        """End another thread's wait for a reply. That thread gets ConnectionLost."""
        interrupt(self._connection)

    def release(self) -> None:
        """Put the connection back into the pool, with no reply outstanding."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)

    def close(self) -> None:
        """Disconnect, so that a late reply cannot be taken for the reply to another command."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)


class Idle:
    """The idle connections of a client."""

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
        """Keep a session for the next round trip."""
        self._sessions.append(session)


class Pooled(Transport):
    """A transport for any thread, which takes an idle connection for each round trip.

    Idle connections are kept outside redis-py's pool, because that would add a fifth to the time of a publish.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        # Stored on the client, so that all its transports share them.
        self._idle: Idle = vars(client).setdefault("mq_django_idle", Idle())

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """See Transport.pipeline()."""
        budgets = budgets_now()
        budget = None if budgets is None else budgets[id(self._client)]
        if budget and budget.error:
            raise budget.error
        session = self._idle.take(self._client)
        began = time.monotonic() if budget else 0.0
        try:
            if budget:
                session.limit(began + budget.left)
            replies = session.pipeline(commands)
            if budget:
                session.limit(math.inf)
        except BaseException as error:
            session.close()
            if budget and isinstance(error, ConnectionLost):
                budget.error = error
            raise
        finally:
            if budget:
                budget.left -= time.monotonic() - began
        self._idle.put(session)
        return replies


def _requires_reconnect(reply: exceptions.ResponseError) -> bool:
    return isinstance(translate(reply), ReadOnly | ConnectionLost) or error_code(reply) == "UNBLOCKED"


def is_gone(reply: Any) -> bool:
    """Return whether an error reply means that the stream or its consumer group does not exist, or was deleted."""
    if not isinstance(reply, Exception):
        return False
    return error_code(reply) in ("NOGROUP", "UNBLOCKED") or error_text(reply) == "no such key"


def reply_or_raise(reply: Any) -> Any:
    """Return a reply, or raise the StoreError for an error reply."""
    if isinstance(reply, Exception):
        found = translate(reply)
        if found is reply:
            raise found
        raise found from reply
    return reply


# A transport that waits until a replica has what was written.

#: Milliseconds until a replica must have confirmed. A publish fails within 5 s in total.
REPLICA_MS = 500


class ReplicaTransport(Transport):
    """Sends WAIT behind the commands of each pipeline, in the same round trip."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        #: Of each thread: whether a replica has confirmed all pipelines since `begin()`.
        self._state = threading.local()

    def begin(self) -> None:
        """Begin what `is_confirmed()` is about."""
        self._state.confirmed = True

    def is_confirmed(self) -> bool:
        """Return whether a replica had in time what this thread has written since `begin()`."""
        return bool(self._state.confirmed)

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """See Transport.pipeline()."""
        *replies, confirming = self._transport.pipeline([*commands, ("WAIT", 1, REPLICA_MS)])
        # An error, such as that of a user without the right, confirms nothing.
        if not (isinstance(confirming, int) and confirming > 0):
            self._state.confirmed = False
        return replies


# Send pipelines to several servers at the same time.


def fan_out(transports: Sequence[Transport], pipelines: Sequence[Sequence[Command]]) -> list[list[Any]]:
    """Send each pipeline over its transport, all at once, and return the replies of each: one round trip per transport.

    A server that cannot be reached has an error in the place of each reply, as long as another one can be reached.

    Raises:
        ConnectionRejected: no server can be used.
        ConnectionLost: no server could be reached, or the connection broke. It is unknown which commands ran.
    """
    shares: dict[int, list[int]] = {}
    for number, transport in enumerate(transports):
        shares.setdefault(id(transport), []).append(number)
    if len(shares) < 2:
        return transports[0].pipelines(pipelines) if transports else []
    replies: list[list[Any]] = [[] for _ in pipelines]
    lost: list[ConnectionLost | ConnectionRejected] = []
    with ThreadPoolExecutor(len(shares)) as pool:
        # The context has the budgets of a page.
        asked = [
            (
                share,
                pool.submit(
                    copy_context().run, transports[share[0]].pipelines, [pipelines[number] for number in share]
                ),
            )
            for share in shares.values()
        ]
        for share, reply in asked:
            try:
                found = reply.result()
            except (ConnectionLost, ConnectionRejected) as error:
                lost.append(error)
                found = [[error for _ in pipelines[number]] for number in share]
            for number, one in zip(share, found, strict=True):
                replies[number] = one
    if len(lost) == len(shares):
        raise lost[0]
    return replies
