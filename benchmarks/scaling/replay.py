"""Send recorded requests over many connections, so that the server's core is full and not the client's."""

import itertools
import select
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import redis

from benchmarks.scaling.server_use import ServerUse

#: Connections, each with one request on its way.
CONNECTIONS = 32
#: Seconds that are measured.
SECONDS = 1.0


class Replayed(NamedTuple):
    """How fast a server was."""

    #: Requests a second.
    rate: float
    #: Microseconds of the server's main thread a request.
    micros: float
    #: How much of a core the server used.
    share: float
    #: Bytes a request to the server, and back.
    received: float
    sent: float


def replay(url: str, requests: Sequence[bytes], *, seconds: float = SECONDS) -> Replayed:
    """Send requests in turn, each after the reply to the one before it on the same connection.

    Args:
        url: that of the server.
        requests: whole requests, each with a short reply.
        seconds: how long.

    Raises:
        ValueError: the server has refused a request.
    """
    parts = urlsplit(url)
    found = [socket.create_connection((str(parts.hostname), int(parts.port or 6379))) for _ in range(CONNECTIONS)]
    sockets = {each.fileno(): each for each in found}
    following = itertools.cycle(requests)
    poll = select.epoll()
    try:
        with redis.Redis.from_url(url) as client:
            for number, each in sockets.items():
                poll.register(number, select.EPOLLIN)
                each.sendall(next(following))
            _send(poll, sockets, following, seconds / 10)
            before, began = ServerUse.of(client), time.perf_counter()
            count = _send(poll, sockets, following, seconds)
            took, used = time.perf_counter() - began, ServerUse.of(client).since(before)
    finally:
        poll.close()
        for each in found:
            each.close()
    return Replayed(count / took, used.cpu / count * 1e6, used.cpu / took, used.received / count, used.sent / count)


def _send(
    poll: select.epoll, sockets: dict[int, socket.socket], requests: "itertools.cycle[bytes]", seconds: float
) -> int:
    """Send for some seconds, and return the number of replies."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, _ in poll.poll(seconds):
            reply = sockets[number].recv(65536)
            if reply[:1] in {b"-", b""}:
                raise ValueError(f"the server replied {reply[:200]!r}")
            sockets[number].sendall(next(requests))
            count += 1
    return count
