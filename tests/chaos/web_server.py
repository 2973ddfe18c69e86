"""`python -m tests.chaos.web_server`: serve the pages of a run, and print the port.

Its threads keep their connections to the database.
"""

import socket
import sys
import threading
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import django
from django.core.handlers.wsgi import WSGIHandler

THREADS = 6


class Handler(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, *_: object) -> None:
        """Do nothing."""


class Server(WSGIServer):
    """Serves from several threads, each with one request at a time."""

    def serve(self) -> None:
        """Serve in this thread until the process ends."""
        while True:
            request, address = self.socket.accept()
            request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self.finish_request(request, address)
            finally:
                self.shutdown_request(request)


def main() -> None:
    """Serve until the process ends."""
    django.setup()
    server = Server(("127.0.0.1", 0), Handler)
    server.set_app(WSGIHandler())
    for _ in range(THREADS):
        threading.Thread(target=server.serve, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
