"""A TCP proxy in front of Redis that does to connections what networks do."""

import contextlib
import socket
import struct
import threading
import time


class _Link:
    """One connection through the proxy: two sockets, and a thread for each direction."""

    def __init__(self, proxy: "Proxy", client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        #: Nothing passes any more, and nobody is told: as behind a router that forgot the connection.
        self.hole = False
        self._doomed = False
        self._ended = threading.Lock()
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._requests, self._replies)]
        for thread in self._threads:
            thread.start()

    def reset(self) -> None:
        """End the client's side with a RST, which cannot be taken for an orderly close."""
        with contextlib.suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(5)

    def _requests(self) -> None:
        while piece := self._read(self._client):
            self._doomed = self._doomed or self._proxy.is_to_lose(piece)
            self._pass(piece, self._server)
        self._end()

    def _replies(self) -> None:
        while piece := self._read(self._server):
            if self._doomed:
                self._proxy.lost_replies += 1
                self.reset()
                return
            self._pass(piece, self._client)
        self._end()

    @staticmethod
    def _read(source: socket.socket) -> bytes:
        try:
            return source.recv(65536)
        except OSError:
            return b""

    def _pass(self, piece: bytes, target: socket.socket) -> None:
        if self._proxy.latency:
            time.sleep(self._proxy.latency)
        step = self._proxy.trickle or len(piece)
        for at in range(0, len(piece), step):
            if self.hole:
                return
            with contextlib.suppress(OSError):
                target.sendall(piece[at : at + step])
            if self._proxy.trickle:
                time.sleep(0.001)

    def _end(self) -> None:
        with self._ended:
            for sock in (self._client, self._server):
                with contextlib.suppress(OSError):
                    # Wakes the other thread, which closing alone would not.
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
        self._proxy.forget(self)


class Proxy:
    """Passes connections on to a Redis at a loopback port, until told otherwise."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._links: set[_Link] = set()
        self._changing = threading.Lock()
        self._lose: list[tuple[bytes, ...]] = []
        #: Seconds that each piece waits, and bytes that pass in a millisecond (0: all at once).
        self.latency = 0.0
        self.trickle = 0
        self.lost_replies = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def reset_all(self) -> None:
        """Break every connection."""
        for link in self._all():
            link.reset()

    def forget_all(self) -> None:
        """Let every connection of now hang for ever; new ones work."""
        for link in self._all():
            link.hole = True

    def lose_reply_to(self, *words: bytes) -> None:
        """Break the next connection whose request holds one of `words`, when the server has run it."""
        with self._changing:
            self._lose.append(words)

    def redirect(self, target: int) -> None:
        """Lead new connections to another port."""
        self._target = target

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        links = self._all()
        for link in links:
            link.reset()
        for link in links:
            link.join()

    def is_to_lose(self, piece: bytes) -> bool:
        with self._changing:
            found = next((words for words in self._lose if any(word in piece for word in words)), None)
            if found is not None:
                self._lose.remove(found)
        return found is not None

    def forget(self, link: _Link) -> None:
        with self._changing:
            self._links.discard(link)

    def _all(self) -> list[_Link]:
        with self._changing:
            return list(self._links)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changing:
                self._links.add(_Link(self, client, server))
