"""The program behind the embedded server: starts it, and stops it when its last user has gone.

Runs as a script of its own, with nothing but the standard library, so that it starts fast and stays small:

    guard_process.py start DIRECTORY SOCKET SERVER [ARGUMENT...]    start what is missing of server and guard; end
    guard_process.py keep DIRECTORY SOCKET                          wait for the last user, then stop the server

Three locked files in the directory say which of them run. A lock of flock belongs to an open file and ends with the
last process that has it open, however that process ended, so none of them can be stale:

    users.lock     shared, by each process that uses the server; exclusive, by the guard that stops it
    server.lock    exclusive, by the server itself, which inherits the open file: one server a directory
    keeper.lock    exclusive, by the guard; touched at each of its looks
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no flock. The names of this module can be imported there, which is all.
    fcntl = None  # type: ignore[assignment]

#: Whether there can be an embedded server on this system.
IS_SUPPORTED = fcntl is not None

USERS_LOCK = "users.lock"
SERVER_LOCK = "server.lock"
GUARD_LOCK = "keeper.lock"
#: Holds the path of the server's socket: its users may have other ideas of where temporary files go.
SOCKET_NAME = "socket"
PID_NAME = "server.pid"
LOG_NAME = "server.log"

#: Seconds between two looks of the guard.
LOOK_INTERVAL = 1.0

#: Seconds to wait for a server that reads its data, and for one that writes its last.
LOAD_TIMEOUT = 30.0
STOP_TIMEOUT = 30.0


def ask(address: str | tuple[str, int], command: bytes, *, timeout: float = 1.0) -> bytes:
    """Return the start of a server's reply to one command; nothing when there is none within the timeout."""
    address_family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(address_family) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(address)
            connection.sendall(command + b"\r\n")
            return connection.recv(64)
        except OSError:
            return b""


def log_tail(path: Path, *, lines: int = 5) -> str:
    """Return the last lines of a server's log as one line."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "no log"
    return " | ".join(line.strip() for line in text.splitlines()[-lines:]) or "empty log"


def take_lock(path: Path, *, shared: bool = False, create: bool = True) -> int | None:
    """Take a lock without waiting; return the open file that holds it, or None while others prevent it.

    Raises FileNotFoundError when its directory has gone, or, with `create=False`, the file.
    """
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    if is_at(handle, path):
        return handle
    os.close(handle)
    return None


def is_at(handle: int, path: Path) -> bool:
    """Return whether an open file is the one at this path: a lock on a deleted file excludes nobody."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def socket_of(directory: Path) -> str:
    """Return the path of the socket of the directory's server, or nothing when none was ever started."""
    try:
        return (directory / SOCKET_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def start(directory: Path, socket_path: Path, command: list[str]) -> str:
    """Start a guard if there is none, then a server if there is none; return what went wrong, if anything.

    Returns when the server has loaded its data, or at once when another process sees to that.
    """
    # Counts as a user until the server answers, so that no guard leaves in between.
    if take_lock(directory / USERS_LOCK, shared=True) is None:
        return ""
    # The guard first: from the server's first moment there is somebody to stop it.
    guard = [sys.executable, "-I", "-S", __file__, "keep", str(directory), str(socket_path)]
    _detach(guard, output=subprocess.DEVNULL)
    lock = take_lock(directory / SERVER_LOCK)
    if lock is None:
        return ""
    if not reads_data(command[0], directory):
        return f"its data was written by Redis 7 or newer, which {command[0]} cannot read"
    _clear(directory, socket_path)
    log = os.open(directory / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    server = _detach(command, output=log, keep_open=(lock,))
    deadline = time.monotonic() + LOAD_TIMEOUT
    while time.monotonic() < deadline:
        if ask(str(socket_path), b"PING").startswith(b"+PONG"):
            return ""
        if server.poll() is not None:
            return f"it ended with code {server.returncode} ({log_tail(directory / LOG_NAME)})"
        time.sleep(0.005)
    return f"it did not answer within {LOAD_TIMEOUT:g} s"


def reads_data(program: str, directory: Path) -> bool:
    """Return whether a server reads what is there: one older than 7 overlooks newer data and starts empty."""
    if not (directory / "appendonlydir").exists():
        return True
    output = subprocess.run([program, "--version"], capture_output=True, check=False, timeout=LOAD_TIMEOUT)  # noqa: S603
    version = re.search(rb"v=(\d+)", output.stdout)
    return version is not None and int(version[1]) >= 7


def _clear(directory: Path, socket_path: Path) -> None:
    """Take away what an earlier server left, and say where the new one will listen."""
    log = directory / LOG_NAME
    if log.exists():
        log.replace(directory / f"{LOG_NAME}.1")
    # A process id in a file may by now be anybody's.
    (directory / PID_NAME).unlink(missing_ok=True)
    socket_path.unlink(missing_ok=True)
    fresh = directory / f"{SOCKET_NAME}.new"
    fresh.write_text(str(socket_path), encoding="utf-8")
    fresh.replace(directory / SOCKET_NAME)


def _detach(command: list[str], *, output: int, keep_open: tuple[int, ...] = ()) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own, where Ctrl-C in the user's terminal does not reach it."""
    return subprocess.Popen(  # noqa: S603
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=keep_open,
        start_new_session=True,
    )


def guard(directory: Path, address: str) -> None:
    """Keep the directory's server in a child, and replace the child if it is killed.

    The child takes over when its guard is killed. So the guard is lost only if both are killed at once, and
    then the next user to come starts another.
    """
    lock = take_lock(directory / GUARD_LOCK)
    while lock is not None:
        parent = os.getpid()
        child = os.fork()
        if child:
            if os.waitpid(child, 0)[1] == 0:
                return
            time.sleep(LOOK_INTERVAL)
        elif keep(directory, address, lock, parent=parent):
            return


def keep(directory: Path, address: str, lock: int, *, parent: int) -> bool:
    """Stop the server once nobody uses it, and return True; return False when the parent has gone.

    The server listens at `address`, unless the directory names another.
    """
    while os.getppid() == parent:
        address = socket_of(directory) or address
        try:
            # Made anew in a directory that is being deleted, a lock would tell nothing about the server.
            users = take_lock(directory / USERS_LOCK, create=False)
            if users is not None:
                stop(directory, address)
        except FileNotFoundError:
            # The directory was deleted: nobody can find this server again.
            ask(address, b"SHUTDOWN NOSAVE", timeout=STOP_TIMEOUT)
            return True
        if users is not None:
            # Given up for the guard too, and before the users' lock: the next user then starts a new guard.
            fcntl.flock(lock, fcntl.LOCK_UN)
            return True
        os.utime(lock)
        time.sleep(LOOK_INTERVAL)
    return False


def stop(directory: Path, address: str) -> None:
    """Stop the directory's server, letting it write its data first, and wait until it has gone.

    Raises FileNotFoundError when the directory is deleted meanwhile.
    """
    deadline = time.monotonic() + STOP_TIMEOUT
    while (lock := take_lock(directory / SERVER_LOCK, create=False)) is None:
        # While its lock is held the server lives, so the process id is still its own.
        signal_server(directory, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.05)
    (directory / PID_NAME).unlink(missing_ok=True)
    if address:
        Path(address).unlink(missing_ok=True)
    os.close(lock)


def signal_server(directory: Path, kind: signal.Signals) -> None:
    """Send a signal to the server, unless it has not yet written its process id or has just gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int((directory / PID_NAME).read_text(encoding="ascii")), kind)


def main(arguments: list[str]) -> int:
    """Run the program; return its exit code."""
    match arguments:
        case ["start", directory, socket_path, *command] if command:
            trouble = start(Path(directory), Path(socket_path), command)
            sys.stderr.write(trouble)
            return 1 if trouble else 0
        case ["keep", directory, address]:
            guard(Path(directory), address)
            return 0
        case _:
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
