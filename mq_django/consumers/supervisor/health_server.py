"""A small HTTP server in a supervisor: its probes, and other paths. Each path is a function that answers at once."""

import errno
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger

logger = get_logger(__name__)

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
