"""Whether a `runconsumer` is alive, ready and started: for its probes over HTTP, and for systemd.

systemd is told by the protocol of sd_notify(3), for `Type=notify`.
"""

import errno
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from mq_django.consumers.service import STUCK, Service
from mq_django.consumers.supervisor.heartbeat import Heartbeat
from mq_django.core.logs import get_logger

logger = get_logger(__name__)

# A small HTTP server in a supervisor: its probes, and other paths. Each path is a function that answers at once.


#: Connections at once. For a further one, that which has sent nothing for longest is dropped; without any it is
#: refused.
MOST = 16
#: Seconds that a request may take from its connection to its answer.
REQUEST = 5.0
#: Seconds that requests have when the server is closed, and again when their connections are broken.
LAST_ANSWERS = 0.5
#: Seconds between two checks for late requests, and for the end of the server.
POLL = 0.2

REFUSED = b"HTTP/1.0 503 Service Unavailable\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n"


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    content_type: str
    body: bytes


#: Answers each request of one path.
Route = Callable[[], Answer]


class HealthServer(Service):
    """Serves some paths, each request in a thread of its own.

    Args:
        listener: the socket that accepts connections. It is closed with the server.
        routes: the function that answers for each path.
    """

    name = "health server"

    def __init__(self, listener: socket.socket, routes: Mapping[str, Route]) -> None:
        super().__init__()
        self._listener = listener
        self._listener.setblocking(False)
        self._routes = routes
        #: The thread of each request -> its connection, and when that was accepted, on the monotonic clock.
        self._requests: dict[threading.Thread, tuple[socket.socket, float]] = {}
        #: The threads whose requests are complete.
        self._answering: set[threading.Thread] = set()

    def run_once(self) -> float:
        """Accept a connection, if there is one soon."""
        self._end_late(time.monotonic() - REQUEST)
        if not select.select([self._listener], [], [], POLL)[0]:
            return 0.0
        with suppress(BlockingIOError, ConnectionAbortedError):
            connection, client = self._listener.accept()
            self._serve(connection, client)
        return 0.0

    def close(self) -> None:
        """Close the port, and end the requests."""
        self._listener.close()
        # Those that are just answered have a moment.
        self._join_requests(time.monotonic() + LAST_ANSWERS)
        self._end_late(time.monotonic())
        self._join_requests(time.monotonic() + LAST_ANSWERS)

    def _join_requests(self, until: float) -> None:
        for thread in self._requests:
            thread.join(max(0.0, until - time.monotonic()))

    def _serve(self, connection: socket.socket, client: Any) -> None:
        self._requests = {thread: request for thread, request in self._requests.items() if thread.is_alive()}
        connection.settimeout(REQUEST)
        if len(self._requests) >= MOST and not self._drop_idle():
            with connection, suppress(OSError):
                connection.sendall(REFUSED)
            return
        thread = threading.Thread(
            target=self._handle, args=(connection, client), name=f"mq_django {self.name}", daemon=True
        )
        self._requests[thread] = connection, time.monotonic()
        thread.start()

    def _drop_idle(self) -> bool:
        """Break the oldest connection whose request is not complete, and return whether there is one."""
        idle = next((thread for thread in self._requests if thread not in self._answering), None)
        if idle is None:
            return False
        connection, _ = self._requests.pop(idle)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        return True

    def _handle(self, connection: socket.socket, client: Any) -> None:
        # The peer may go away at any moment.
        try:
            with connection, suppress(OSError):
                RequestHandler(connection, client, self._routes, self._answering.add)
        finally:
            self._answering.discard(threading.current_thread())

    def _end_late(self, before: float) -> None:
        """Break the connections of requests that began before a time: one byte a second would hold them for ever."""
        for connection, since in self._requests.values():
            if since < before:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class RequestHandler(BaseHTTPRequestHandler):
    """Answers one request, and closes the connection."""

    server_version, sys_version = "mq_django", ""
    timeout = REQUEST

    def __init__(
        self,
        connection: socket.socket,
        client: Any,
        routes: Mapping[str, Route],
        begin: Callable[[threading.Thread], None],
    ) -> None:
        self._routes = routes
        self._begin = begin
        # It handles the request in its constructor. The server is for subclasses.
        super().__init__(connection, client, None)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer a HEAD."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self._begin(threading.current_thread())
        route = self._routes.get(self.path.partition("?")[0])
        try:
            found = Answer(404, "text/plain", b"Not found.\n") if route is None else route()
        except Exception:
            logger.exception("The health server cannot answer %s", self.path.partition("?")[0])
            found = Answer(500, "text/plain", b"Error. See the log.\n")
        self.send_response(found.status)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(found.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base class
        """Log nothing: probes come every few seconds."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections; without a host on all addresses.

    Raises:
        OSError: the port is in use or not permitted, or the host is not one of this machine.
    """
    if host:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _bound(kind, address)
    try:
        return _bound(socket.AF_INET6, ("::", port))
    except OSError as error:
        # The system may have no IPv6.
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise
    return _bound(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 - probes come from other machines


def _bound(kind: int, address: Any) -> socket.socket:
    listener = socket.socket(kind, socket.SOCK_STREAM)
    try:
        # A port that was just in use, before the program was executed again, is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == socket.AF_INET6:
            # `::` means all addresses of IPv4, too.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


@contextmanager
def serving(listener: socket.socket, routes: Mapping[str, Route]) -> Iterator[None]:
    """Serve these paths inside."""
    server = HealthServer(listener, routes)
    server.start()
    try:
        yield
    finally:
        server.stop()
        server.join(REQUEST)


#: A server of Redis answers if a heartbeat has reached it within this many intervals, and at least so many seconds.
MISSED_BEATS = 3
SHORTEST = 5.0
#: Seconds that a main loop without recent progress gets to show some: the whole process may have been stopped.
SECOND_CHECK = 0.5


class Check(NamedTuple):
    """One part of a probe."""

    name: str
    ok: bool
    sentence: str


class MainLoop(NamedTuple):
    """What the main loop of a supervisor has seen in its latest round."""

    #: On the monotonic clock.
    at: float
    #: Consumers that have started and are announced, and how many should run. 0: it starts no consumers.
    ready: int
    processes: int
    #: Services that have ended or are stuck.
    stuck: Sequence[str]
    stopping: bool
    #: It was asked to reload (SIGHUP), or executes the command line again, and has not finished yet.
    reloading: bool = False
    #: How often it was asked to reload.
    reloads: int = 0


class Health:
    """What the probes of a `runconsumer` find. The main loop reports to it, and any thread may ask it."""

    def __init__(self) -> None:
        self._heartbeats: Sequence[Heartbeat] = ()
        #: The latest that the main loop has seen; None before its first round.
        self.loop: MainLoop | None = None
        self._has_started = False

    def watch(self, heartbeats: Sequence[Heartbeat]) -> None:
        """Judge by these heartbeats whether Redis answers: one for each server."""
        self._heartbeats = heartbeats

    def report(self, found: MainLoop) -> None:
        """Take over what the main loop has seen."""
        self.loop = found
        if not self._has_started:
            self._has_started = all(check.ok for check in self.ready())

    def live(self) -> list[Check]:
        """Return whether the loops of the supervisor go on. An outage of Redis does not stop them."""
        return [self._main_loop(), self._services()]

    def ready(self) -> list[Check]:
        """Return whether messages are handled."""
        return [*self.live(), self._consumers(), self._redis(), self._running()]

    def startup(self) -> list[Check]:
        """Return whether messages have been handled at least once since the start: the process is ready or was."""
        if self._has_started:
            return [Check("startup", True, "The consumers have started.")]
        return self.ready()

    def routes(self) -> dict[str, Route]:
        """Return the paths of the probes."""
        return {"/live": _route(self.live), "/ready": _route(self.ready), "/startup": _route(self.startup)}

    def _main_loop(self) -> Check:
        if self.loop is None:
            # A start that takes too long is for the startup probe.
            return Check("main loop", True, "The supervisor is starting.")
        if time.monotonic() - self.loop.at > STUCK:
            time.sleep(SECOND_CHECK)
        still = time.monotonic() - self.loop.at
        if still > STUCK:
            return Check("main loop", False, f"The main loop is stuck for {still:.0f} s.")
        return Check("main loop", True, "The main loop goes on.")

    def _services(self) -> Check:
        stuck = self.loop.stuck if self.loop is not None else ()
        return Check("services", not stuck, f"{'; '.join(stuck)}." if stuck else "The services go on.")

    def _consumers(self) -> Check:
        if self.loop is None:
            return Check("consumers", False, "No consumer was started yet.")
        if not self.loop.processes:
            return Check("consumers", True, "It starts no consumers, and does only the housekeeping.")
        ready, processes = self.loop.ready, self.loop.processes
        # One that died is replaced: the others handle messages meanwhile.
        enough = 1 if self._has_started else processes
        return Check("consumers", ready >= enough, f"{ready} of {processes} consumers are ready.")

    def _redis(self) -> Check:
        answers = [_answers(heartbeat) for heartbeat in self._heartbeats]
        silent = [answer.sentence for answer in answers if not answer.ok]
        # Queues on the other servers are handled.
        is_ok = len(silent) < len(answers)
        sentences = silent or [answer.sentence for answer in answers] or ["Redis was not asked yet."]
        return Check("redis", is_ok, " ".join(sentences))

    def _running(self) -> Check:
        stopping = self.loop is not None and self.loop.stopping
        return Check("running", not stopping, "It is shutting down." if stopping else "It is not shutting down.")


def _answers(heartbeat: Heartbeat) -> Check:
    # With several servers, the name of a heartbeat has its queues. Addresses are not for everybody.
    redis = f"Redis{heartbeat.name.removeprefix(Heartbeat.name)}"
    if heartbeat.answered is None:
        return Check("redis", False, f"{redis} has not answered yet.")
    ago = time.monotonic() - heartbeat.answered
    if ago > max(SHORTEST, MISSED_BEATS * heartbeat.interval):
        return Check("redis", False, f"{redis} has not answered a heartbeat for {ago:.1f} s.")
    return Check("redis", True, f"{redis} has answered a heartbeat {ago:.1f} s ago.")


def _route(probe: Callable[[], Sequence[Check]]) -> Route:
    """Return the function that answers a probe."""

    def answer() -> Answer:
        checks = probe()
        is_ok = all(check.ok for check in checks)
        found: Mapping[str, object] = {
            "status": "ok" if is_ok else "failing",
            "checks": [check._asdict() for check in checks],
        }
        return Answer(200 if is_ok else 503, "application/json", json.dumps(found).encode())

    return answer


#: The environment variables of the protocol.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
#: Seconds for the last notification when the process ends.
LAST_NOTIFICATION = 2.0


class NotifySocket:
    """Sends notifications to systemd. A notification that cannot be sent is logged once, and has no other effect.

    Args:
        address: the path of a socket, or `@` and the name of an abstract one.
    """

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._has_failed = False

    def send(self, **fields: object) -> bool:
        """Send fields in one notification, and return whether that succeeded."""
        lines = "\n".join(f"{name}={value}" for name, value in fields.items())
        try:
            self._socket.sendto(lines.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning("Cannot notify systemd at NOTIFY_SOCKET: %s", error)
            self._has_failed = True
            return False
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class SystemdNotifier(Service):
    """Notifies systemd of what the probes find.

    Args:
        notify_socket: is closed with the service.
        watchdog: the seconds within which systemd expects each sign of life; 0: it expects none.
    """

    name = "systemd notifier"

    def __init__(self, notify_socket: NotifySocket, health: Health, *, watchdog: float) -> None:
        super().__init__()
        self._socket = notify_socket
        self._health = health
        self._ping_every = watchdog / 2
        self._pause = min(POLL, self._ping_every) if watchdog else POLL
        self._next_ping = 0.0
        #: systemd knows that the process is ready, that it stops, and how many reloads it was asked for.
        self._is_ready = False
        self._is_stopping = False
        self._reloads = 0
        self._status: object = None

    def run_once(self) -> float:
        """Send what has changed, and the sign of life if that is due."""
        self._notify()
        return self._pause

    def close(self) -> None:
        """Send the last state, and close the socket."""
        # The program may be executed again, which takes a while.
        self._next_ping = 0.0
        self._notify()
        self._socket.close()

    def _notify(self) -> None:
        loop = self._health.loop
        if loop is not None:
            self._notify_stopping(loop)
            self._notify_reload(loop)
        self._notify_ready(loop)
        self._notify_status()
        self._ping()

    def _notify_stopping(self, loop: MainLoop) -> None:
        if loop.stopping and not loop.reloading and not self._is_stopping:
            self._is_stopping = self._socket.send(STOPPING=1)

    def _notify_reload(self, loop: MainLoop) -> None:
        if loop.reloads == self._reloads or self._is_stopping:
            return
        # systemd compares the time with that of its request.
        if self._socket.send(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000):
            self._reloads = loop.reloads
            self._is_ready = False

    def _notify_ready(self, loop: MainLoop | None) -> None:
        if self._is_ready or self._is_stopping or (loop is not None and loop.reloading):
            return
        # After a reload as well: it has ended also while Redis cannot be reached.
        if _are_ok(self._health.startup()):
            self._is_ready = self._socket.send(READY=1)

    def _notify_status(self) -> None:
        checks = self._health.ready()
        failing = [check for check in checks if not check.ok]
        # Sentences about failures may have the time that has passed.
        status = tuple(check.name for check in failing) or _summary(checks)
        sentences = " ".join(check.sentence for check in failing) or _summary(checks)
        if status != self._status and self._socket.send(STATUS=sentences):
            self._status = status

    def _ping(self) -> None:
        now = time.monotonic()
        if self._ping_every and now >= self._next_ping and _are_ok(self._health.live()):
            # One that could not be sent is due at once.
            self._next_ping = now + self._ping_every if self._socket.send(WATCHDOG=1) else now


def _are_ok(checks: Sequence[Check]) -> bool:
    return all(check.ok for check in checks)


def _summary(checks: Sequence[Check]) -> str:
    return next(check.sentence for check in checks if check.name == "consumers")


@contextmanager
def notifying(health: Health) -> Iterator[None]:
    """Notify systemd inside, if it has started this process with `Type=notify`.

    The processes that are started inside do not get the variables of the protocol: notifications of theirs would count
    as this process's. They are there again afterwards, for the case that the program is executed again.
    """
    variables = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
    try:
        if not variables.get("NOTIFY_SOCKET"):
            yield
            return
        notify_socket = NotifySocket(variables["NOTIFY_SOCKET"])
        notifier = SystemdNotifier(notify_socket, health, watchdog=_watchdog_seconds(variables))
        notifier.start()
        try:
            yield
        finally:
            notifier.stop()
            notifier.join(LAST_NOTIFICATION)
    finally:
        os.environ.update(variables)


def _watchdog_seconds(variables: Mapping[str, str]) -> float:
    """Return the seconds of WATCHDOG_USEC, or 0 if it is not there, or for another process."""
    usec, pid = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(usec) / 1e6
