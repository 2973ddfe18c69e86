"""PostgreSQL and MariaDB for tests: started in a temporary folder on a free port, if they are installed."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

#: Where Debian has the programs of PostgreSQL, which are not on PATH.
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
#: Seconds until a server accepts connections.
STARTS = 60.0


@contextmanager
def postgres() -> Iterator[dict[str, Any]]:
    """Start a PostgreSQL and yield its entry of DATABASES; skip the test if there is none."""
    programs = POSTGRES[-1] if POSTGRES else Path(shutil.which("initdb") or "/nowhere/initdb").parent
    if not (programs / "initdb").exists() or find_spec("psycopg") is None:
        pytest.skip("PostgreSQL or its driver is not installed")
    with _folder("postgres") as folder:
        data, port = folder / "data", _free_port()
        _run("postgres", [programs / "initdb", "-D", data, "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8"])
        quick = ["-c", "fsync=off", "-c", f"unix_socket_directories={folder}"]
        command = [programs / "postgres", "-D", data, "-p", port, "-h", "127.0.0.1", *quick]
        with _server("postgres", command, port):
            options = {"HOST": "127.0.0.1", "PORT": port, "USER": "tests", "NAME": "postgres"}
            yield {"ENGINE": "django.db.backends.postgresql", **options}


@contextmanager
def mariadb() -> Iterator[dict[str, Any]]:
    """Start a MariaDB and yield its entry of DATABASES; skip the test if there is none."""
    server, install = shutil.which("mariadbd"), shutil.which("mariadb-install-db")
    if not server or not install or find_spec("pymysql") is None:
        pytest.skip("MariaDB or its driver is not installed")
    pymysql = import_module("pymysql")
    # Django asks for the version of another driver.
    pymysql.version_info = (2, 2, 7, "final", 0)
    pymysql.install_as_MySQLdb()
    with _folder("mysql") as folder:
        data, port = folder / "data", _free_port()
        _run("mysql", [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"])
        where = [f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder / 's'}"]
        quick = ["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin", f"--pid-file={folder / 'pid'}"]
        with _server("mysql", [server, "--no-defaults", *where, *quick], port):
            with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection:
                connection.cursor().execute("CREATE DATABASE tests")
            yield {
                "ENGINE": "django.db.backends.mysql",
                "HOST": "127.0.0.1",
                "PORT": port,
                "USER": "root",
                "NAME": "tests",
            }


@contextmanager
def _folder(user: str) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="mq-"))
    try:
        if os.getuid() == 0:
            shutil.chown(path, user)
        path.chmod(0o755)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _as_user(user: str, command: Sequence[object]) -> list[str]:
    """Return a command that runs as another user: these servers refuse to run as root."""
    words = [str(word) for word in command]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *words] if os.getuid() == 0 else words


def _run(user: str, command: Sequence[object]) -> None:
    subprocess.run(_as_user(user, command), check=True, capture_output=True, timeout=120, cwd="/")


@contextmanager
def _server(user: str, command: Sequence[object], port: int) -> Iterator[None]:
    silent = subprocess.DEVNULL
    process = subprocess.Popen(_as_user(user, command), stdout=silent, stderr=silent, cwd="/")
    try:
        _await(process, port)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: "subprocess.Popen[bytes]", port: int) -> None:
    ends = time.monotonic() + STARTS
    while time.monotonic() < ends and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            # PostgreSQL listens a moment before it accepts queries.
            time.sleep(0.3)
            return
    raise AssertionError(f"the server has ended, or does not listen on port {port}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
