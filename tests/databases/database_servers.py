"""Private servers of PostgreSQL and MariaDB, in temporary folders, on Unix sockets."""

import contextlib
import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

#: Seconds until a server must answer.
PATIENCE = 15.0


def program(name: str) -> str | None:
    """Return the path of a program of a database server; Debian puts those of PostgreSQL outside of PATH."""
    own = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or (str(own[0]) if own else shutil.which(name, path="/usr/sbin:/usr/local/sbin"))


def use_pymysql() -> Any:
    """Make PyMySQL the driver that Django expects, which has another name and a newer version; return the module."""
    pymysql: Any = import_module("pymysql")
    pymysql.version_info = (2, 2, 7, "final", 0)
    pymysql.install_as_MySQLdb()
    return pymysql


@contextlib.contextmanager
def sqlite(*, durable: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the settings of a database in a file. `durable`: what is committed is on the disk, in a WAL."""
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" if durable else "PRAGMA synchronous=OFF;"
    with tempfile.TemporaryDirectory() as folder:
        yield {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": f"{folder}/db.sqlite3",
            "OPTIONS": {"timeout": 20, "init_command": pragmas},
        }


@contextlib.contextmanager
def postgresql(*, durable: bool = False) -> Iterator[dict[str, Any]]:
    """Start a PostgreSQL, and yield the settings of its database. `durable`: what is committed is on the disk."""
    initdb, server = program("initdb"), program("postgres")
    if not initdb or not server or find_spec("psycopg") is None:
        pytest.skip("no PostgreSQL server, or psycopg is not installed")
    with _folder("postgres") as (folder, as_user):
        data = f"{folder}/data"
        _run(folder, [*as_user, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"])
        fsync = f"fsync={'on' if durable else 'off'}"
        options = (fsync, "listen_addresses=", f"unix_socket_directories={folder}", "max_connections=50")
        command = [*as_user, server, "-D", data, *(part for option in options for part in ("-c", option))]
        found = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres", "HOST": folder}
        with _serving(command, folder, _postgresql_answers(folder)):
            yield found


@contextlib.contextmanager
def mariadb(*, durable: bool = False) -> Iterator[dict[str, Any]]:
    """Start a MariaDB, and yield the settings of its database. `durable`: what is committed is on the disk."""
    install, server = program("mariadb-install-db"), program("mariadbd")
    if not install or not server or find_spec("pymysql") is None:
        pytest.skip("no MariaDB server, or pymysql is not installed")
    pymysql = use_pymysql()
    with _folder("mysql") as (folder, as_user):
        data, socket = f"{folder}/data", f"{folder}/socket"
        own = ["--no-defaults", f"--datadir={data}"]
        _run(folder, [*as_user, install, *own, "--auth-root-authentication-method=normal", "--skip-test-db"])
        command = [*as_user, server, *own, f"--socket={socket}", "--skip-networking", f"--pid-file={folder}/pid"]
        command += [f"--innodb-flush-log-at-trx-commit={int(durable)}", "--character-set-server=utf8mb4"]
        with _serving(command, folder, _mariadb_answers(pymysql, socket)):
            yield {"ENGINE": "django.db.backends.mysql", "NAME": "mq", "USER": "root", "HOST": socket}


KINDS: dict[str, Callable[[], Any]] = {"sqlite": sqlite, "postgresql": postgresql, "mariadb": mariadb}


@contextlib.contextmanager
def _folder(user: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and the beginning of commands: the servers refuse to run as root."""
    folder = tempfile.mkdtemp(prefix="mq-db-", dir="/tmp")
    try:
        if getpass.getuser() != "root" and os.geteuid():
            yield folder, []
            return
        setpriv = shutil.which("setpriv")
        try:
            shutil.chown(folder, user, user)
        except LookupError:
            pytest.skip(f"there is no user {user}")
        if setpriv is None:
            pytest.skip("setpriv is not installed")
        yield folder, [setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: str, command: Sequence[str]) -> None:
    own = _environment(folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/", env=own)
    assert done.returncode == 0, done.stdout + done.stderr


def _environment(folder: str) -> dict[str, str]:
    """Return the environment of a server. A MariaDB that starts deletes temporary tables in it."""
    return {**os.environ, "TMPDIR": folder}


@contextlib.contextmanager
def _serving(command: Sequence[str], folder: str, answers: Callable[[], bool]) -> Iterator[None]:
    with Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", env=_environment(folder))
    try:
        wait_until(answers, timeout=PATIENCE)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _postgresql_answers(folder: str) -> Callable[[], bool]:
    psycopg: Any = import_module("psycopg")

    def answers() -> bool:
        try:
            psycopg.connect(host=folder, user="postgres", dbname="postgres", connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True

    return answers


def _mariadb_answers(pymysql: Any, socket: str) -> Callable[[], bool]:
    def answers() -> bool:
        # A connection that fails would stay open for a while, with a warning.
        if not Path(socket).exists():
            return False
        try:
            connection = pymysql.connect(unix_socket=socket, user="root", connect_timeout=1)
        except pymysql.err.OperationalError:
            return False
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS mq CHARACTER SET utf8mb4")
        return True

    return answers
