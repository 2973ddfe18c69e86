"""Tell systemd that a `runconsumer` is ready, alive or stopping: the protocol of sd_notify(3), for `Type=notify`."""

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mq_django.consumers.service import Service
from mq_django.consumers.supervisor.health import Check, Health, MainLoop
from mq_django.core.logs import get_logger

logger = get_logger(__name__)

#: The environment variables of the protocol.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
#: Seconds between two looks at the state of the process.
POLL = 0.2
#: Seconds for the last notification when the process ends.
LAST_NOTIFICATION = 2.0


class NotifySocket:
    """Sends notifications to systemd. A notification that cannot be sent is logged once, and has no other effect.

    Args:
        address: the path of a socket, or `@` and the name of an abstract one.
    """

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._has_failed = False

    def send(self, **fields: object) -> bool:
        """Send fields in one notification, and return whether that succeeded."""
        lines = "\n".join(f"{name}={value}" for name, value in fields.items())
        try:
            self._socket.sendto(lines.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning("Cannot notify systemd at NOTIFY_SOCKET: %s", error)
            self._has_failed = True
            return False
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class SystemdNotifier(Service):
    """Notifies systemd of what the probes find.

    Args:
        notify_socket: is closed with the service.
        watchdog: the seconds within which systemd expects each sign of life; 0: it expects none.
    """

    name = "systemd notifier"

    def __init__(self, notify_socket: NotifySocket, health: Health, *, watchdog: float) -> None:
        super().__init__()
        self._socket = notify_socket
        self._health = health
        self._ping_every = watchdog / 2
        self._pause = min(POLL, self._ping_every) if watchdog else POLL
        self._next_ping = 0.0
        #: systemd knows that the process is ready, that it stops, and how many reloads it was asked for.
        self._is_ready = False
        self._is_stopping = False
        self._reloads = 0
        self._status: object = None

    def run_once(self) -> float:
        """Send what has changed, and the sign of life if that is due."""
        self._notify()
        return self._pause

    def close(self) -> None:
        """Send the last state, and close the socket."""
        # The program may be executed again, which takes a while.
        self._next_ping = 0.0
        self._notify()
        self._socket.close()

    def _notify(self) -> None:
        loop = self._health.loop
        if loop is not None:
            self._notify_stopping(loop)
            self._notify_reload(loop)
        self._notify_ready(loop)
        self._notify_status()
        self._ping()

    def _notify_stopping(self, loop: MainLoop) -> None:
        if loop.stopping and not loop.reloading and not self._is_stopping:
            self._is_stopping = self._socket.send(STOPPING=1)

    def _notify_reload(self, loop: MainLoop) -> None:
        if loop.reloads == self._reloads or self._is_stopping:
            return
        # systemd compares the time with that of its request.
        if self._socket.send(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000):
            self._reloads = loop.reloads
            self._is_ready = False

    def _notify_ready(self, loop: MainLoop | None) -> None:
        if self._is_ready or self._is_stopping or (loop is not None and loop.reloading):
            return
        # After a reload as well: it has ended also while Redis cannot be reached.
        if _are_ok(self._health.startup()):
            self._is_ready = self._socket.send(READY=1)

    def _notify_status(self) -> None:
        checks = self._health.ready()
        failing = [check for check in checks if not check.ok]
        # Sentences about failures may have the time that has passed.
        status = tuple(check.name for check in failing) or _summary(checks)
        sentences = " ".join(check.sentence for check in failing) or _summary(checks)
        if status != self._status and self._socket.send(STATUS=sentences):
            self._status = status

    def _ping(self) -> None:
        now = time.monotonic()
        if self._ping_every and now >= self._next_ping and _are_ok(self._health.live()):
            # One that could not be sent is due at once.
            self._next_ping = now + self._ping_every if self._socket.send(WATCHDOG=1) else now


def _are_ok(checks: Sequence[Check]) -> bool:
    return all(check.ok for check in checks)


def _summary(checks: Sequence[Check]) -> str:
    return next(check.sentence for check in checks if check.name == "consumers")


@contextmanager
def notifying(health: Health) -> Iterator[None]:
    """Notify systemd inside, if it has started this process with `Type=notify`.

    The processes that are started inside do not get the variables of the protocol: notifications of theirs would count
    as this process's. They are there again afterwards, for the case that the program is executed again.
    """
    variables = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
    try:
        if not variables.get("NOTIFY_SOCKET"):
            yield
            return
        notify_socket = NotifySocket(variables["NOTIFY_SOCKET"])
        notifier = SystemdNotifier(notify_socket, health, watchdog=_watchdog_seconds(variables))
        notifier.start()
        try:
            yield
        finally:
            notifier.stop()
            notifier.join(LAST_NOTIFICATION)
    finally:
        os.environ.update(variables)


def _watchdog_seconds(variables: Mapping[str, str]) -> float:
    """Return the seconds of WATCHDOG_USEC, or 0 if it is not there, or for another process."""
    usec, pid = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(usec) / 1e6
