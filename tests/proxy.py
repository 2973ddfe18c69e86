"""A TCP proxy in front of Redis that does to connections what networks do."""

import contextlib
import math
import socket
import struct
import threading
import time
from urllib.parse import unquote, urlsplit

#: Closing a socket with this option sends a RST, which cannot be taken for an orderly close.
RESET = struct.pack("ii", 1, 0)


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        server = socket.socket(socket.AF_UNIX)
        server.connect(unquote(parts.path))
        return server
    server = socket.create_connection((parts.hostname, parts.port))
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server


class _Link:
    """One connection through the proxy: two sockets, and a thread for each direction."""

    def __init__(self, proxy: "Proxy", client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        #: Nothing passes any more, and nobody is told: as behind a router that forgot the connection.
        self.hole = False
        self._doomed = False
        self._ended = threading.Lock()
        pumps = (self._requests, self._replies)
        self._threads = [threading.Thread(target=pump, daemon=True) for pump in pumps]
        for thread in self._threads:
            thread.start()

    def end(self, *, reset: bool = False) -> None:
        with self._ended, contextlib.suppress(OSError):
            if reset:
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        with self._ended:
            for sock in (self._client, self._server):
                with contextlib.suppress(OSError):
                    # Wakes the other thread, which closing alone would not.
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
        self._proxy.forget(self)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(5)

    def _requests(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._client.recv(65536):
                self._doomed = self._doomed or self._proxy.loses_reply_to(piece)
                if not (self.hole or self._proxy.dead):
                    self._server.sendall(piece)
        self.end()

    def _replies(self) -> None:
        is_lost = False
        with contextlib.suppress(OSError):
            while not is_lost and (piece := self._server.recv(65536)):
                if self.hole or self._proxy.dead:
                    continue
                is_lost = self._proxy.loses_reply(self._doomed)
                if not is_lost:
                    self._proxy.pass_on(piece, self._client)
        self.end(reset=is_lost)


class Proxy:
    """Passes connections on to a Redis, until told otherwise."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._links: set[_Link] = set()
        self._changing = threading.Lock()
        self._words: list[tuple[bytes, ...]] = []
        #: Seconds that every reply is late.
        self.latency = 0.0
        #: Replies come a byte at a time.
        self.trickles = False
        #: Nothing passes, and nobody is told.
        self.dead = False
        #: So many of the next replies are still to be lost: in their place their connections are reset.
        self.losing = 0.0
        self.lost_replies = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def reset_all(self) -> None:
        """Break every connection."""
        for link in self._all():
            link.end(reset=True)

    def forget_all(self) -> None:
        """Let every connection of now hang for ever; new ones work."""
        for link in self._all():
            link.hole = True

    def lose_replies(self, count: float = math.inf) -> None:
        """Let the next requests arrive, and instead of their replies reset the client's connection."""
        with self._changing:
            self.losing = count

    def lose_reply_to(self, *words: bytes) -> None:
        """Break the next connection whose request holds one of `words`, when the server has run it."""
        with self._changing:
            self._words.append(words)

    def redirect(self, target: str) -> None:
        """Lead new connections to another server."""
        self._target = target

    def revive(self) -> None:
        """Be a good proxy again; the connections that went dead are closed."""
        was_dead, self.dead = self.dead, False
        self.latency, self.trickles = 0.0, False
        for link in self._all() if was_dead else ():
            link.end()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        links = self._all()
        for link in links:
            link.end(reset=True)
        for link in links:
            link.join()

    def loses_reply_to(self, request: bytes) -> bool:
        with self._changing:
            found = next((words for words in self._words if any(word in request for word in words)), None)
            if found is not None:
                self._words.remove(found)
        return found is not None

    def loses_reply(self, is_doomed: bool) -> bool:
        with self._changing:
            if not (is_doomed or self.losing):
                return False
            self.losing -= not is_doomed
            self.lost_replies += 1
        return True

    def pass_on(self, reply: bytes, client: socket.socket) -> None:
        if self.latency:
            time.sleep(self.latency)
        at = 0
        while self.trickles and at < len(reply):
            client.sendall(reply[at : at + 1])
            at += 1
            time.sleep(0.001)
        client.sendall(reply[at:])

    def forget(self, link: _Link) -> None:
        with self._changing:
            self._links.discard(link)

    def _all(self) -> list[_Link]:
        with self._changing:
            return list(self._links)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    server = connected(self._target)
                except OSError:
                    client.close()
                    continue
                with self._changing:
                    self._links.add(_Link(self, client, server))
