"""Answer `POST /push` and `POST /sms` over HTTP: mostly, and not always in time."""

import json
import socket
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from example_project.gateway.manners import Manners

#: A push or an SMS is a few hundred bytes; more is a mistake of the client.
MAX_BODY_BYTES = 16 * 1024
#: The same value again is the same message again.
KEY_HEADER = "Idempotency-Key"
#: How many messages the gateway remembers by their key, to not send one of them twice.
MEMORY_SIZE = 50_000


class Outbox:
    """Remember by its key each message that was sent, and how often each was tried."""

    def __init__(self) -> None:
        """Start with nothing sent."""
        self._lock = threading.Lock()
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._sent: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._answers: Counter[str] = Counter()
        self._recent: deque[float] = deque()

    def is_over(self, most: int) -> bool:
        """Count a request, and say whether there were more than `most` in the last second."""
        with self._lock:
            now = time.monotonic()
            self._recent.append(now)
            while self._recent[0] <= now - 1:
                self._recent.popleft()
            return len(self._recent) > most

    def count_attempt(self, key: str) -> int:
        """Return the number of this try of the message, from 1."""
        with self._lock:
            attempt = self._attempts.pop(key, 0) + 1
            self._attempts[key] = attempt
            self._forget(self._attempts)
            return attempt

    def send(self, key: str, message: dict[str, str]) -> bool:
        """Send the message unless it was sent before; say whether it was sent now."""
        with self._lock:
            if key in self._sent:
                return False
            self._sent[key] = message
            self._forget(self._sent)
            return True

    def note(self, answer: str) -> None:
        """Count an answer."""
        with self._lock:
            self._answers[answer] += 1

    def sent(self, key: str) -> dict[str, str] | None:
        """Return what was sent under the key."""
        with self._lock:
            return self._sent.get(key)

    def summary(self) -> dict[str, int]:
        """Return how often each answer was given."""
        with self._lock:
            return dict(self._answers)

    @staticmethod
    def _forget(memory: OrderedDict[str, Any]) -> None:
        while len(memory) > MEMORY_SIZE:
            memory.popitem(last=False)


class Gateway(ThreadingHTTPServer):
    """Serve on a port of 127.0.0.1 (0 takes any free one), or on a socket that listens already."""

    daemon_threads = True
    # The default of 5 refuses connections when sixteen handlers send at once.
    request_queue_size = 128

    def __init__(self, port: int = 0, *, listener: socket.socket | None = None, manners: Manners | None = None) -> None:
        """Bind to the port, unless there is a listener."""
        self.manners = manners or Manners()
        self.outbox = Outbox()
        super().__init__(("127.0.0.1", port), GatewayRequestHandler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket, self.server_address = listener, listener.getsockname()

    @property
    def url(self) -> str:
        """Return the address that clients use."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class BadRequest(Exception):
    """The request is not one that the gateway understands."""


class GatewayRequestHandler(BaseHTTPRequestHandler):
    """Answer one request."""

    server: Gateway
    timeout = 10

    def do_GET(self) -> None:
        """Answer `/` with the counts of answers and `/sent/<key>` with what was sent under a key."""
        if self.path == "/":
            self._answer(HTTPStatus.OK, self.server.outbox.summary())
            return
        message = self.server.outbox.sent(self.path.removeprefix("/sent/"))
        if message is None:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "nothing was sent under this key"})
        else:
            self._answer(HTTPStatus.OK, message)

    def do_POST(self) -> None:
        """Send a push or an SMS, or say why not."""
        try:
            message = self._read()
            key = _text({KEY_HEADER: self.headers[KEY_HEADER]}, KEY_HEADER)
            _text(message, "text")
            refusal = self._refuse(message) or self._throttle()
        except BadRequest as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
            return
        self._send(key, message, refusal)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
        """Stay quiet: the answers are counted instead."""

    def _send(self, key: str, message: dict[str, str], refusal: tuple[HTTPStatus, str] | None) -> None:
        outbox, manners = self.server.outbox, self.server.manners
        attempt = outbox.count_attempt(key)
        # A slow answer comes after the work, as in production: the client gave up, the message went out.
        late = manners.delay_seconds(key, attempt=attempt)
        if refusal is not None:
            status, text = refusal
            body = {"error": text}
        elif manners.fails(key, attempt=attempt):
            status, body = HTTPStatus.SERVICE_UNAVAILABLE, {"error": "try again later"}
        else:
            new = outbox.send(key, message)
            status, body = HTTPStatus.ACCEPTED, {"status": "sent" if new else "sent before"}
        time.sleep(late)
        outbox.note(f"{self.path.strip('/')} {status.value}{' late' if late else ''}")
        self._answer(status, body)

    def _throttle(self) -> tuple[HTTPStatus, str] | None:
        if self.path == "/sms" and self.server.outbox.is_over(self.server.manners.sms_a_second):
            return HTTPStatus.TOO_MANY_REQUESTS, "too many SMS in a second"
        return None

    def _refuse(self, message: dict[str, str]) -> tuple[HTTPStatus, str] | None:
        manners = self.server.manners
        if self.path == "/push":
            return (HTTPStatus.GONE, "device gone") if manners.is_gone(_text(message, "device")) else None
        if self.path == "/sms":
            unknown = manners.is_unknown(_text(message, "number"))
            return (HTTPStatus.NOT_FOUND, "number unknown") if unknown else None
        raise BadRequest("there is only /push and /sms")

    def _read(self) -> dict[str, str]:
        try:
            size = int(self.headers["Content-Length"] or "")
        except ValueError:
            raise BadRequest("the Content-Length header is missing") from None
        if not 0 < size <= MAX_BODY_BYTES:
            raise BadRequest(f"a body has 1 to {MAX_BODY_BYTES} bytes")
        try:
            message = json.loads(self.rfile.read(size))
        except (ValueError, RecursionError):
            raise BadRequest("the body is not JSON") from None
        if not isinstance(message, dict):
            raise BadRequest("the body is not a JSON object")
        return message

    def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
        except OSError:
            # The client stopped waiting for a late answer.
            self.close_connection = True


def _text(message: Mapping[str, Any], field: str) -> str:
    value = message.get(field)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{field!r} is missing")
    return value
