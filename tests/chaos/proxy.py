"""A bad road to Redis: it loses replies, goes dead, is slow, or trickles."""

import contextlib
import socket
import struct
import threading
import time
from urllib.parse import unquote, urlsplit

#: Closing a socket with this option sends a reset.
_RESET = struct.pack("ii", 1, 0)


class Road:
    """Passes bytes between clients and a server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        #: Seconds that every reply is late.
        self.latency = 0.0
        #: Replies come a byte at a time.
        self.trickles = False
        #: Nothing passes, and nobody is told.
        self.dead = False
        self._resets = 0
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def reset_after_request(self, count: int = 1) -> None:
        """Let the next requests arrive, and instead of their replies reset the client's connection."""
        with self._lock:
            self._resets = count

    @property
    def resets_left(self) -> int:
        """Return how many replies are still to be lost."""
        return self._resets

    def revive(self) -> None:
        """Be a good road again; the connections that went dead are closed."""
        was_dead, self.dead = self.dead, False
        self.latency, self.trickles = 0.0, False
        if was_dead:
            self._close_all()

    def close(self) -> None:
        """Close the road."""
        _close(self._listener)
        self._close_all()

    def _close_all(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _close(end)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._connect()
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._pairs.append((client, server))
                for pump in (self._requests, self._replies):
                    threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _connect(self) -> socket.socket:
        parts = urlsplit(self._url)
        if parts.scheme == "unix":
            server = socket.socket(socket.AF_UNIX)
            server.connect(unquote(parts.path))
            return server
        return socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 0))

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if not self.dead:
                    server.sendall(data)
        _close(server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if self.dead:
                    continue
                if self._loses_this():
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    break
                self._pass_on(client, data)
        _close(client)
        _close(server)

    def _loses_this(self) -> bool:
        with self._lock:
            if not self._resets:
                return False
            self._resets -= 1
            return True

    def _pass_on(self, client: socket.socket, data: bytes) -> None:
        if self.latency:
            time.sleep(self.latency)
        at = 0
        while self.trickles and at < len(data):
            client.sendall(data[at : at + 1])
            at += 1
            time.sleep(0.001)
        client.sendall(data[at:])


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
