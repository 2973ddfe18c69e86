"""A server that passes everything on to a Redis, and says of itself what a test wants."""

import contextlib
import re
import socket
import threading
from collections.abc import Sequence
from typing import BinaryIO


class Impostor:
    """Looks like another version than the Redis behind it."""

    def __init__(self, port: int, *, version: str, lacks: Sequence[str] = ()) -> None:
        self._port = port
        self._version = version.encode()
        self._lacks = {command.encode() for command in lacks}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._sockets: list[socket.socket] = []
        self._threads[0].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for found in self._sockets:
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for found in self._sockets:
            found.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port), 10)
                self._sockets += (client, server)
                self._threads.append(threading.Thread(target=self._serve, args=(client, server), daemon=True))
                self._threads[-1].start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client.makefile("rb") as requests, server.makefile("rb") as replies, contextlib.suppress(OSError):
            while request := _message(requests):
                server.sendall(request)
                client.sendall(self._told(request, _message(replies)))
        for sock in (client, server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _told(self, request: bytes, reply: bytes) -> bytes:
        words = [word.upper() for word in request.split(b"\r\n")[2::2]]
        if words[:2] == [b"COMMAND", b"INFO"] and self._lacks & set(words):
            return b"*1\r\n*-1\r\n"
        if words[0] != b"INFO" or reply.startswith(b"+"):  # in a transaction it is queued
            return reply
        body = re.sub(rb"\nvalkey_[^\n]*", b"", reply.partition(b"\r\n")[2])
        body = re.sub(rb"redis_version:[^\r]+", b"redis_version:" + self._version, body)
        return b"$%d\r\n%s" % (len(body) - 2, body)


def _message(stream: BinaryIO) -> bytes:
    """Read one request or reply of RESP2, as it is; nothing at the end."""
    head = stream.readline()
    kind, count = head[:1], head[1:].strip()
    if kind == b"$" and count != b"-1":
        return head + stream.read(int(count) + 2)
    if kind == b"*" and count != b"-1":
        return head + b"".join(_message(stream) for _ in range(int(count)))
    return head
