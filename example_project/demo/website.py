"""Serve the shop on a socket that is open already: `python -m example_project.demo.website FD`.

Django's `runserver` opens its port itself, and by then it may belong to somebody else; and it drops the requests that
it is answering when it is stopped.
"""

import os
import signal
import socket
import sys
import threading
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import django
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

#: Seconds a visitor may take to send a request.
REQUEST_TIMEOUT = 10


class RequestHandler(WSGIRequestHandler):
    """Answer one request."""

    timeout = REQUEST_TIMEOUT

    def address_string(self) -> str:
        """Return the visitor's address, and ask no name server about it."""
        return str(self.client_address[0])


class Website(ThreadingMixIn, WSGIServer):
    """A thread for each request; closing waits for those that run."""

    daemon_threads = False

    def __init__(self, listener: socket.socket) -> None:
        """Serve on a listening socket."""
        super().__init__(listener.getsockname()[:2], RequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.setup_environ()


def main(fd: int) -> None:
    """Serve until SIGTERM."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    django.setup()
    with Website(socket.socket(fileno=fd)) as website:
        website.set_app(StaticFilesHandler(get_wsgi_application()))

        def stop(*_: object) -> None:
            # shutdown() waits for the loop, which this very thread runs.
            threading.Thread(target=website.shutdown).start()

        signal.signal(signal.SIGTERM, stop)
        website.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
