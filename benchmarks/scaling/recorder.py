"""Record what a client sends to a server, request by request, to send it again without the client's own work."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

#: Bytes of one read.
_CHUNK = 1 << 20
#: Seconds that a connection may be silent.
_SILENCE = 60.0


class Recorder:
    """A proxy in front of a server, for clients that wait for each reply before their next request.

    Args:
        url: that of the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (str(parts.hostname), int(parts.port or 6379))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[list[bytes]] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Ends the accept() that waits, which a close() alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def url(self) -> str:
        """Return the URL for the clients that are recorded."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def requests(self) -> list[bytes]:
        """Return the requests of the connection that sent the most, in order."""
        return max(self._connections, key=len, default=[])

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            requests: list[bytes] = []
            self._connections.append(requests)
            threading.Thread(target=self._serve, args=(client, requests), daemon=True).start()

    def _serve(self, client: socket.socket, requests: list[bytes]) -> None:
        with client, socket.create_connection(self._server, _SILENCE) as server:
            client.settimeout(_SILENCE)
            replies = threading.Thread(target=self._pass_replies, args=(server, client, requests), daemon=True)
            replies.start()
            with contextlib.suppress(OSError):
                while part := client.recv(_CHUNK):
                    # A request that arrives in several parts is one: its reply comes after the last of them.
                    requests[-1:] = [requests[-1] + part] if requests and requests[-1] else [part]
                    server.sendall(part)
                # Ends the thread that waits for replies.
                server.shutdown(socket.SHUT_RDWR)

    def _pass_replies(self, server: socket.socket, client: socket.socket, requests: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while reply := server.recv(_CHUNK):
                if requests and requests[-1]:
                    requests.append(b"")
                client.sendall(reply)
