"""The embedded server: one private Redis, shared by every process of a project, gone when the last has gone.

The first process to ask starts it, and a guard that stops it; guard_process.py says how they know of one another.
"""

import hashlib
import os
import socket
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
from mq_django.transport.servers import MAX_SOCKET_PATH, find_server, server_arguments, socket_url

#: Seconds until a server that says nothing counts as away. One that loads its data says so, and gets more.
ANSWER_TIMEOUT = 5.0

#: Seconds for what may take long with much data: a server that loads it, or a guard that stops one.
PATIENCE = guard_process.LOAD_TIMEOUT + guard_process.STOP_TIMEOUT

#: Seconds after which a guard that has not looked is taken for dead. Wrongly so, the second one just ends.
GUARD_SILENCE = 5.0

NEEDS_POSIX = (
    'MQ_DJANGO["CONNECTION"] = "embedded" does not work on Windows. Set it to the URL of a Redis server, such as '
    '"redis://127.0.0.1:6379/0", or work in WSL.'
)

#: The open file that holds our users' lock, by directory. Forked children inherit it, and count as well.
_memberships: dict[Path, int] = {}
_joining = threading.Lock()


def _after_fork() -> None:
    # A thread of the parent may have held it; no thread of the child does.
    global _joining  # noqa: PLW0603
    _joining = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class EmbeddedConnection(redis.UnixDomainSocketConnection):
    """A connection that brings its server back when it finds none: who lost a connection just connects again."""

    def __init__(self, *, directory: Path, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.directory = directory

    def _connect(self) -> socket.socket:
        try:
            self.path = _server_socket(self.directory)
        except ConnectionLost as error:
            # The vocabulary of redis-py, within it.
            raise redis.ConnectionError(str(error)) from error
        connection: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
        return connection


def connection_pool(directory: Path, **options: Any) -> redis.ConnectionPool:
    """Return a pool of connections to the server with its data in this directory, started if need be.

    Raises what `url()` raises.
    """
    url(directory)
    return redis.ConnectionPool(connection_class=EmbeddedConnection, directory=directory, **options)


def url(directory: Path) -> str:
    """Return the URL of the server with its data in this directory, started if need be.

    From then on this process, and those forked from it, count as users until they end. Cheap to call again;
    that also brings back a server that was killed.

    Raises NoServer when there is no program to start, ConfigurationError when the directory cannot be used or this
    system is Windows, ConnectionLost when the server does not come up or does not answer.
    """
    if not guard_process.IS_SUPPORTED:
        raise ConfigurationError(NEEDS_POSIX)
    return socket_url(_server_socket(directory))


def _server_socket(directory: Path) -> str:
    with _joining:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = directory.resolve()
            _join(directory)
            return _reach(directory)
        except OSError as error:
            raise ConfigurationError(f"The embedded Redis cannot use {directory}: {error}") from error


def _join(directory: Path) -> None:
    """Hold the users' lock in this process: while anybody does, the guard does not stop the server."""
    path = directory / guard_process.USERS_LOCK
    held = _memberships.get(directory)
    if held is not None and guard_process.is_at(held, path):
        return
    # Not closed when it is another file by now: whoever has closed all files may have reused the number.
    deadline = time.monotonic() + PATIENCE
    while (handle := guard_process.take_lock(path, shared=True)) is None:
        if time.monotonic() > deadline:
            raise ConnectionLost(f"The embedded Redis in {directory} is being stopped, and does not end.")
        time.sleep(0.02)
    _memberships[directory] = handle


def _reach(directory: Path) -> str:
    """Return the path of the server's socket once it answers, having started what is missing."""
    silent_since = time.monotonic()
    deadline = silent_since + PATIENCE
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
    return abs(time.time() - looked) < GUARD_SILENCE


def _start(directory: Path) -> None:
    """Start what is missing of server and guard, by way of a process that ends: no child of ours stays."""
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
            timeout=PATIENCE,
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
    # Inside an application server the running program need not be an interpreter.
    if "py" in Path(sys.executable or "").name.lower():
        return sys.executable
    return str(Path(sys.prefix) / "bin" / "python3")


def _socket_path(directory: Path) -> Path:
    """Return where a server of this directory listens: short, in a folder that only we can write to."""
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
    # A folder of our own: in a shared one anybody could listen under that name first, and read what we send.
    for shared in (tempfile.gettempdir(), "/tmp"):  # noqa: S108
        yield Path(shared) / f"mq-{os.getuid()}"


def _is_ours(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
