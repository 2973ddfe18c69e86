"""Starts `runconsumer` and its consumers as forks of a template: a process that has imported Django and the product.

A new interpreter needs most of a second of processor time for these imports, and a tree has at least two. The template
starts no thread, opens no connection and reads no settings, so that a fork of it is what `python -m` would start: it
gets its arguments, its environment and its standard streams with the request, and then loads its settings and its apps.

Each process that runs tests starts one template. A supervisor that was forked from it has another one as its child,
for its consumers. Both end with the process that asks them.
"""

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

from asgiref.local import Local
from django.apps import AppConfig, apps
from django.conf import settings
from django.core.cache import caches
from django.db import connections
from django.utils.functional import empty

ROOT = Path(__file__).parent.parent.parent

#: What the system calls the child of a supervisor that forks its consumers.
NAME = "template"
#: A child of a fork that ends becomes a child of its nearest ancestor that has asked for that; only Linux can do this.
SET_CHILD_SUBREAPER = 36
HEAD = struct.Struct("<I")
PID = struct.Struct("<I")
MOST_DESCRIPTORS = 16

#: What a supervisor and its consumers import, except for models, settings and the project.
MODULES = (
    "mq_django.apps",
    "mq_django.management.commands.runconsumer",
    "mq_django.producers.resume",
    "django.contrib.contenttypes.management",
    "django.core.cache.backends.locmem",
    "django.core.cache.backends.redis",
    "django.core.management.commands.migrate",
    "django.db.backends.sqlite3.base",
    "django.utils.log",
    "django.views.csrf",
    "django.views.debug",
    "logging.config",
)


class Forked(subprocess.Popen[bytes]):
    """A child of this process that a template has forked."""

    def __init__(self, args: Sequence[str], pid: int) -> None:
        self.args, self.pid = args, pid
        self.returncode: Any = None
        self.stdin = self.stdout = self.stderr = None
        # What the methods of Popen need.
        self._child_created = True
        self._waitpid_lock = threading.Lock()


class Forks:
    """Asks a template for processes."""

    def __init__(self, asked: socket.socket) -> None:
        self._socket = asked
        self._lock = threading.Lock()

    def popen(
        self,
        args: Sequence[str],
        *,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = 1,
        stderr: int | IO[bytes] = 2,
    ) -> subprocess.Popen[bytes]:
        """Return a child of this process that runs `python -m module ...`.

        Raises:
            OSError: the template cannot fork, or has ended.
        """
        given = {1: _number(stdout), 2: _number(stderr), **{number: number for number in pass_fds}}
        request = {
            "arguments": args[1:],
            "environment": dict(env),
            "descriptors": list(given),
            "session": start_new_session,
        }
        body = json.dumps(request).encode()
        with self._lock, _Subreaper():
            socket.send_fds(self._socket, [HEAD.pack(len(body))], list(given.values()))
            self._socket.sendall(body)
            reply = self._socket.recv(PID.size)
        if len(reply) < PID.size:
            raise OSError("The template of this process has ended, or cannot fork")
        return Forked(args, PID.unpack(reply)[0])


@cache
def template() -> Forks | None:
    """Return the template of this process, started at the first call; None where the system has no subreapers."""
    if sys.platform != "linux":
        return None
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # Not a terminal, as the logs of trees are none.
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return Forks(ours)


def start(
    args: Sequence[str], *, env: Mapping[str, str], output: IO[bytes], forks: bool = True
) -> subprocess.Popen[bytes]:
    """Start `python -m module ...` in a session of its own, by which all of it can be ended.

    Args:
        output: the file for all that it prints.
        forks: the process may be a fork of the template, which has imported what a consumer imports.
    """
    if forks and (found := template()) is not None:
        return found.popen(args, env=env, stdout=output, stderr=output, start_new_session=True)
    return subprocess.Popen(
        args, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )


class _Subreaper:
    """Makes this process the parent of what the fork of a child leaves behind."""

    _prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def __enter__(self) -> None:
        self._set(1)

    def __exit__(self, *_: object) -> None:
        self._set(0)

    def _set(self, value: int) -> None:
        if self._prctl is None or self._prctl(SET_CHILD_SUBREAPER, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "No subreaper")


def _number(stream: int | IO[bytes]) -> int:
    return stream if isinstance(stream, int) else stream.fileno()


class WithoutReady(AppConfig):
    """The product, whose models can be imported; ready() belongs to the forks."""

    name = "mq_django"
    label = "mq_django"
    default_auto_field = "django.db.models.BigAutoField"


def _load() -> None:
    settings.configure(INSTALLED_APPS=[f"{__name__}.WithoutReady"], USE_TZ=True)
    apps.populate(settings.INSTALLED_APPS)
    for name in MODULES:
        import_module(name)
    # As if nothing had been configured: a fork has its own settings.
    settings._wrapped = empty
    for handler in (connections, caches):
        vars(handler).pop("settings", None)
        handler._settings = None
        handler._connections = Local(handler.thread_critical)
    apps.app_configs.clear()
    apps.loading = apps.apps_ready = apps.models_ready = apps.ready = False
    apps.ready_event.clear()
    apps.clear_cache()
    # A fork neither copies nor collects them.
    gc.freeze()


def serve(asked: socket.socket) -> dict[str, Any]:
    """Fork a process for each request, and return the request in that process only."""
    while True:
        head, descriptors, *_ = socket.recv_fds(asked, HEAD.size, MOST_DESCRIPTORS)
        if not head:
            os._exit(0)
        request = json.loads(_exactly(asked, HEAD.unpack(head)[0]))
        read, write = os.pipe()
        between = os.fork()
        if not between:
            _fork_and_end()
            asked.close()
            os.close(read)
            _prepare(request)
            os.write(write, PID.pack(os.getpid()))
            os.close(write)
            # Last, because each may take the number of one that was open here.
            _move(descriptors, request["descriptors"])
            return request
        os.close(write)
        for number in descriptors:
            os.close(number)
        pid = os.read(read, PID.size)
        os.close(read)
        # From now on the requester is its parent.
        os.waitpid(between, 0)
        if not pid:
            os._exit(1)
        asked.sendall(pid)


def _fork_and_end() -> None:
    """Return in the child; the parent ends, whatever happens."""
    child = -1
    try:
        child = os.fork()
    finally:
        if child:
            os._exit(0)


def _exactly(source: socket.socket, size: int) -> bytes:
    return source.recv(size, socket.MSG_WAITALL)


def _prepare(request: Mapping[str, Any]) -> None:
    """Begin the process's session, and let signals do what they do by default."""
    if request["session"]:
        os.setsid()
    _rename("python")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _move(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors the numbers that they have in the process that asked."""
    # One that was received may have the number that another one gets.
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD, max(numbers) + 1) for number in descriptors]
    for number in descriptors:
        os.close(number)
    for number, target in zip(moved, numbers, strict=True):
        os.dup2(number, target)
        os.close(number)


def _rename(name: str) -> None:
    Path("/proc/self/comm").write_text(name, encoding="ascii")


def _use(request: Mapping[str, Any], paths: Sequence[str]) -> None:
    environment = request["environment"]
    os.environ.clear()
    os.environ.update(environment)
    added = environment.get("PYTHONPATH", "")
    sys.path[:] = dict.fromkeys([str(ROOT), *(added.split(os.pathsep) if added else ()), *paths])
    invalidate_caches()
    sys.orig_argv = [sys.executable, *request["arguments"]]
    sys.argv = ["-m", *request["arguments"][2:]]


def _begin_template_of_consumers() -> dict[str, Any] | None:
    """Return None in this process, which lets a new child fork its consumers; return each request in such a fork."""
    ours, theirs = socket.socketpair()
    # Inherited: who looks at the children of this process never sees another name.
    _rename(NAME)
    if os.fork():
        _rename("python")
        theirs.close()
        popen = Forks(ours).popen
        launcher = import_module("mq_django.consumers.supervisor.launcher")
        launcher.subprocess = SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL)  # type: ignore[attr-defined]
        return None
    ours.close()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal to the whole group is not meant for it.
        signal.signal(number, signal.SIG_IGN)
    return serve(theirs)


def main(descriptor: int) -> NoReturn:
    """Be a template, and run what is asked for in the forks."""
    _load()
    inherited = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [path for path in sys.path if path not in inherited]
    request = serve(socket.socket(fileno=descriptor))
    _use(request, paths)
    if (own := _begin_template_of_consumers()) is not None:
        request = own
        _use(request, paths)
    code: Any = None
    try:
        runpy.run_module(request["arguments"][1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    _end(code)


def _end(code: Any) -> NoReturn:
    """Do what Python does at the end of a program, except for taking apart all that the template has imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(code, int | None):
        sys.stderr.write(f"{code}\n")
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
