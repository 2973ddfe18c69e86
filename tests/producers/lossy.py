"""A way to Redis that loses replies, and its connections with them."""

import contextlib
import socket
import threading
from urllib.parse import unquote, urlsplit


class LossyWay:
    """Passes bytes between clients and a server; while `lossy`, a reply ends its connection in place of arriving."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lossy = False
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for found in self._open:
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connect()
                self._open += (client, server)
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _connect(self) -> socket.socket:
        parts = urlsplit(self._url)
        if parts.scheme == "unix":
            server = socket.socket(socket.AF_UNIX)
            server.connect(unquote(parts.path))
            return server
        return socket.create_connection((parts.hostname, parts.port))

    def _pump(self, source: socket.socket, target: socket.socket, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if replies and self.lossy:
                    target.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(data)
