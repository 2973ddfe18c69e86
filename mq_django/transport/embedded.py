"""The embedded server: one private Redis for all processes of a project, stopped after the last of them has ended.

The first process starts the server and a guard process that stops it. guard_process.py describes their locks.
"""

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from mq_django.errors import ConfigurationError, ConnectionLost
from mq_django.transport import guard_process
from mq_django.transport.forks import Noted
from mq_django.transport.private_server import MAX_SOCKET_PATH, find_server, server_arguments, socket_url

#: Seconds until a server that does not reply counts as unreachable. One that loads its data replies, and gets more.
ANSWER_TIMEOUT = 5.0

#: Seconds for steps that take long with much data: loading it, or stopping a server.
START_TIMEOUT = guard_process.LOAD_TIMEOUT + guard_process.STOP_TIMEOUT

#: Seconds after which a guard that has not touched its lock counts as dead. If it is alive, the second one just ends.
GUARD_TIMEOUT = 5.0

NEEDS_POSIX = (
    'MQ_DJANGO["CONNECTION"] = "embedded" does not work on Windows. Set it to the URL of a Redis server, such as '
    '"redis://127.0.0.1:6379/0", or work in WSL.'
)

#: Directory -> the open file that holds the users' lock. Forked children inherit it, and count as users, too.
_memberships: dict[Path, int] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    # A thread of the parent may hold it during the fork; it does not exist in the child.
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class EmbeddedConnection(Noted, redis.UnixDomainSocketConnection):
    """A connection that starts its server if there is none, so reconnecting is enough after a loss."""

    def __init__(self, *, directory: Path, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.directory = directory

    def _connect(self) -> Any:
        try:
            self.path = _server_socket(self.directory)
        except ConnectionLost as error:
            # Callers inside redis-py expect its own errors.
            raise redis.ConnectionError(str(error)) from error
        return super()._connect()


def connection_pool(directory: Path, **options: Any) -> redis.ConnectionPool:
    """Return a pool of connections to the server with its data in this directory, started if necessary.

    Raises the errors of `url()`.
    """
    url(directory)
    return redis.ConnectionPool(connection_class=EmbeddedConnection, directory=directory, **options)


def url(directory: Path) -> str:
    """Return the URL of the server with its data in this directory, started if necessary.

    From then on this process, and those forked from it, count as users until they end. Calling it again is cheap, and
    restarts a server that was killed.

    Raises NoServer when there is no program to start, ConfigurationError when the directory cannot be used or this
    system is Windows, ConnectionLost when the server does not start or does not reply.
    """
    if not guard_process.IS_SUPPORTED:
        raise ConfigurationError(NEEDS_POSIX)
    return socket_url(_server_socket(directory))


def _server_socket(directory: Path) -> str:
    with _lock:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = directory.resolve()
            _join(directory)
            return _reach(directory)
        except OSError as error:
            raise ConfigurationError(f"The embedded Redis cannot use {directory}: {error}") from error


def _join(directory: Path) -> None:
    """Hold the users' lock in this process: while any process does, the guard does not stop the server."""
    path = directory / guard_process.USERS_LOCK
    held = _memberships.get(directory)
    if held is not None and guard_process.is_at(held, path):
        return
    # Not closed if it is another file: a process that closed all files may have reused its number.
    deadline = time.monotonic() + START_TIMEOUT
    while (handle := guard_process.take_lock(path, shared=True)) is None:
        if time.monotonic() > deadline:
            raise ConnectionLost(f"The embedded Redis in {directory} is being stopped, but has not ended.")
        time.sleep(0.02)
    _memberships[directory] = handle


def _reach(directory: Path) -> str:
    """Start what is missing, and return the path of the server's socket once it replies."""
    silent_since = time.monotonic()
    deadline = silent_since + START_TIMEOUT
    while time.monotonic() < deadline:
        address = guard_process.socket_of(directory)
        reply = guard_process.ask(address, b"PING") if address else b""
        if reply.startswith(b"+PONG") and _has_guard(directory):
            return address
        if reply:
            silent_since = time.monotonic()
        elif time.monotonic() > silent_since + ANSWER_TIMEOUT:
            break
        _start(directory)
        time.sleep(0.02)
    raise ConnectionLost(
        f"The embedded Redis in {directory} does not answer. If it runs on another machine or in another "
        "container, give CONNECTION a URL that both can reach."
    )


def _has_guard(directory: Path) -> bool:
    try:
        looked = (directory / guard_process.GUARD_LOCK).stat().st_mtime
    except FileNotFoundError:
        return False
    return abs(time.time() - looked) < GUARD_TIMEOUT


def _start(directory: Path) -> None:
    """Start server and guard if missing, through a process that ends: this process gets no children."""
    socket_path = _socket_path(directory)
    command = [_python(), "-I", "-S", guard_process.__file__, "start", str(directory), str(socket_path)]
    server = server_arguments(find_server(), _server_settings(directory, socket_path))
    try:
        subprocess.run(  # noqa: S603
            command + server,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=START_TIMEOUT,
            start_new_session=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        reason = str(error.stderr or error).strip()
        raise ConnectionLost(f"The embedded Redis in {directory} could not be started: {reason}") from error


def _server_settings(directory: Path, socket_path: Path) -> dict[str, str]:
    return {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(directory),
        "pidfile": str(directory / guard_process.PID_NAME),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
    }


def _python() -> str:
    # Inside an application server sys.executable may not be an interpreter.
    if "py" in Path(sys.executable or "").name.lower():
        return sys.executable
    return str(Path(sys.prefix) / "bin" / "python3")


def _socket_path(directory: Path) -> Path:
    """Return the path of the socket: short, in a folder that only this user can write to."""
    name = f"mq-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}.sock"
    paths = [folder / name for folder in _socket_folders()]
    path = next((path for path in paths if len(os.fsencode(path)) <= MAX_SOCKET_PATH), paths[-1])
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(path.parent):
        raise ConfigurationError(f"The embedded Redis cannot use {path.parent}: others can write to it.")
    return path


def _socket_folders() -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    # After sudo it may be another user's.
    if runtime and _is_ours(Path(runtime)):
        yield Path(runtime)
    # A folder of our own: in a shared one another user could listen at this path first.
    for shared in (tempfile.gettempdir(), "/tmp"):  # noqa: S108
        yield Path(shared) / f"mq-{os.getuid()}"


def _is_ours(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
