"""The HTTP server of a supervisor, over real connections."""

import http.client
import socket
import threading
from types import SimpleNamespace

import pytest

from mq_django.consumers.supervisor import health
from mq_django.consumers.supervisor.health import MOST, Answer, listen, serving
from tests.waiting import wait_until


def fail():
    raise ValueError("postgres://user:secret@host")


ROUTES = {"/live": lambda: Answer(200, "application/json", b"{}"), "/broken": fail}


@pytest.fixture
def slow():
    """What counts the requests of /slow that have begun, and what has them answered."""
    found = SimpleNamespace(begun=threading.Semaphore(0), answer=threading.Event())
    yield found
    found.answer.set()


@pytest.fixture
def port(slow):
    def wait():
        slow.begun.release()
        slow.answer.wait(60)
        return Answer(200, "text/plain", b"")

    listener = listen("127.0.0.1", 0)
    with serving(listener, {**ROUTES, "/slow": wait}):
        yield listener.getsockname()[1]


def ask(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        found = connection.getresponse()
        return found.status, found.headers, found.read()
    finally:
        connection.close()


def test_a_path_is_answered_and_never_cached(port):
    status, headers, body = ask(port, "/live?verbose=1")
    assert (status, body) == (200, b"{}")
    assert (headers["Content-Type"], headers["Cache-Control"]) == ("application/json", "no-store")
    assert "Python" not in headers["Server"]


def test_a_head_has_no_body(port):
    status, headers, body = ask(port, "/live", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "2", b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/live/", 404), ("POST", "/live", 501)],
)
def test_nothing_else_is_served(port, method, path, status):
    assert ask(port, path, method)[0] == status


def test_an_error_is_logged_and_not_shown(port, caplog):
    status, _, body = ask(port, "/broken")
    assert (status, body) == (500, b"Error. See the log.\n")
    assert "cannot answer /broken" in caplog.text


@pytest.mark.parametrize("noise", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET /live HTTP/9.9\r\n\r\n", b""])
def test_what_is_no_request_harms_nobody(port, noise):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(noise)
    assert ask(port, "/live")[0] == 200


def test_a_slow_client_is_cut_off(port, monkeypatch):
    monkeypatch.setattr(health, "REQUEST", 0.3)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET /live HTTP/1.0\r\nX: ")
        assert client.recv(1000) == b""


def test_connections_without_a_request_keep_no_probe_from_its_answer(port):
    idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(2 * MOST)]
    assert [ask(port, "/live")[0] for _ in range(2 * MOST)] == [200] * 2 * MOST
    for client in idle:
        client.close()


def test_requests_at_once_are_bounded_and_others_are_served_afterwards(port, slow):
    waiting = []
    for _ in range(MOST):
        waiting.append(socket.create_connection(("127.0.0.1", port), timeout=10))
        waiting[-1].sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        # One that has not begun would be dropped.
        assert slow.begun.acquire(timeout=60)

    def is_refused():
        try:
            return ask(port, "/live")[0] == 503
        except (OSError, http.client.HTTPException):
            return True

    assert is_refused()
    slow.answer.set()
    for client in waiting:
        client.close()
    wait_until(lambda: not is_refused())


def test_the_port_is_free_when_the_server_has_ended_also_with_open_connections(port):
    listener = listen("127.0.0.1", 0)
    other = listener.getsockname()[1]
    with serving(listener, ROUTES):
        client = socket.create_connection(("127.0.0.1", other))
        assert ask(other, "/live")[0] == 200
        with pytest.raises(OSError, match="in use"):
            listen("127.0.0.1", other)
    listen("127.0.0.1", other).close()
    client.close()


def test_without_a_host_it_listens_on_all_addresses():
    with listen("", 0) as listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(OSError, match="in use"):
            listen("", port)


def test_without_ipv6_it_listens_on_all_addresses_of_ipv4(monkeypatch):
    bound = health._bound

    def without(kind, address):
        if kind == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return bound(kind, address)

    monkeypatch.setattr(health, "_bound", without)
    with listen("", 0) as listener:
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()
