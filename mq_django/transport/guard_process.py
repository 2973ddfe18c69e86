"""The program that starts the embedded server, and stops it after its last user has ended.

Runs as a script with only the standard library, so that it starts fast and stays small:

    guard_process.py start DIRECTORY SOCKET SERVER [ARGUMENT...]    start server and guard if missing, and exit
    guard_process.py keep DIRECTORY SOCKET                          wait for the last user, then stop the server

Three locked files in the directory show which of them run. A lock of flock belongs to an open file and ends with the
last process that has it open, even if that was killed, so a lock is never stale:

    users.lock     shared, by each process that uses the server; exclusive, by the guard that stops it
    server.lock    exclusive, by the server itself, which inherits the open file: one server per directory
    keeper.lock    exclusive, by the guard, which touches it in each check
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
except ImportError:  # Windows has no flock. There this module can only be imported.
    fcntl = None  # type: ignore[assignment]

#: Whether this system supports the embedded server.
IS_SUPPORTED = fcntl is not None

USERS_LOCK = "users.lock"
SERVER_LOCK = "server.lock"
GUARD_LOCK = "keeper.lock"
#: Holds the path of the server's socket: other processes may use another folder for temporary files.
SOCKET_NAME = "socket"
PID_NAME = "server.pid"
LOG_NAME = "server.log"

#: Seconds between two checks of the guard.
CHECK_INTERVAL = 1.0

#: Seconds to wait for a server that loads its data, and for one that saves it.
LOAD_TIMEOUT = 30.0
STOP_TIMEOUT = 30.0


def ask(address: str | tuple[str, int], command: bytes, *, timeout: float = 1.0) -> bytes:
    """Return the start of a server's reply to one command; empty if none comes within the timeout."""
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
    """Take a lock without waiting; return the open file that holds it, or None while another process has it.

    Raises FileNotFoundError when its directory, or with `create=False` the file, does not exist.
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
    """Return whether an open file is the one at this path: a lock on a deleted file excludes no process."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def socket_of(directory: Path) -> str:
    """Return the path of the socket of the directory's server, or an empty string if none was ever started."""
    try:
        return (directory / SOCKET_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def start(directory: Path, socket_path: Path, command: list[str]) -> str:
    """Start a guard if there is none, then a server if there is none; return an error message, or "".

    Returns when the server has loaded its data, or at once when another process starts it.
    """
    # This process counts as a user until the server replies, so that no guard stops before.
    if take_lock(directory / USERS_LOCK, shared=True) is None:
        return ""
    # The guard first, so that the server never runs without one.
    guard = [sys.executable, "-I", "-S", __file__, "keep", str(directory), str(socket_path)]
    _detach(guard, output=subprocess.DEVNULL)
    lock = take_lock(directory / SERVER_LOCK)
    if lock is None:
        return ""
    if version := old_version(command[0]):
        return f"{command[0]} is Redis {version}, which is too old: mq_django needs 7.0 or newer"
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


def old_version(program: str) -> str:
    """Return the version of a server that is older than 7.0, and would ignore the data of newer ones; else ""."""
    output = subprocess.run([program, "--version"], capture_output=True, check=False, timeout=LOAD_TIMEOUT)  # noqa: S603
    version = re.search(r"v=(\d+)[\d.]*", output.stdout.decode(errors="replace"))
    return version[0].removeprefix("v=") if version and int(version[1]) < 7 else ""


def _clear(directory: Path, socket_path: Path) -> None:
    """Remove the files of an earlier server, and write the path of the new socket."""
    log = directory / LOG_NAME
    if log.exists():
        log.replace(directory / f"{LOG_NAME}.1")
    # Another process may have the old process id now.
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
    """Watch the directory's server in a child process, and replace the child if it is killed.

    The child becomes the guard when its parent is killed. The guard is lost only if both are killed at once; then the
    next user starts another.
    """
    lock = take_lock(directory / GUARD_LOCK)
    while lock is not None:
        parent = os.getpid()
        child = os.fork()
        if child:
            if os.waitpid(child, 0)[1] == 0:
                return
            time.sleep(CHECK_INTERVAL)
        elif keep(directory, address, lock, parent=parent):
            return


def keep(directory: Path, address: str, lock: int, *, parent: int) -> bool:
    """Stop the server when it has no users, and return True; return False when the parent process has ended.

    The server listens at `address`, unless the directory has another.
    """
    while os.getppid() == parent:
        address = socket_of(directory) or address
        try:
            # Not created: in a directory that is being deleted, a new lock would have no meaning.
            users = take_lock(directory / USERS_LOCK, create=False)
            if users is not None:
                stop(directory, address)
        except FileNotFoundError:
            # The directory was deleted: no process can find this server again.
            ask(address, b"SHUTDOWN NOSAVE", timeout=STOP_TIMEOUT)
            return True
        if users is not None:
            # Released before the users' lock, so that the next user starts a new guard.
            fcntl.flock(lock, fcntl.LOCK_UN)
            return True
        os.utime(lock)
        time.sleep(CHECK_INTERVAL)
    return False


def stop(directory: Path, address: str) -> None:
    """Stop the directory's server, which saves its data first, and wait until it has ended.

    Raises FileNotFoundError when the directory is deleted meanwhile.
    """
    deadline = time.monotonic() + STOP_TIMEOUT
    while (lock := take_lock(directory / SERVER_LOCK, create=False)) is None:
        # While its lock is held the server runs, so the process id is still its own.
        signal_server(directory, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.05)
    (directory / PID_NAME).unlink(missing_ok=True)
    if address:
        Path(address).unlink(missing_ok=True)
    os.close(lock)


def signal_server(directory: Path, kind: signal.Signals) -> None:
    """Send a signal to the server, unless it has not yet written its process id or has just ended."""
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
