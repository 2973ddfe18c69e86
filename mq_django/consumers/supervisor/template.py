"""The process from which a supervisor has its consumers forked.

A template has loaded the project, and has one thread and no connection. So a fork of it is what a new interpreter would
be after its imports; but it is there at once, and they all share the memory of the project. At first it is a fork of
the supervisor itself: see `begin()`. A later one is a new interpreter, which loads the current code: see `offer()`.

It forks twice, and the process in between ends at once, so that Linux makes the consumer a child of the supervisor
(`PR_SET_CHILD_SUBREAPER` in prctl(2)), which waits for it as for any other. The template may end before its consumers,
and ends with its supervisor, when their socket is closed.
"""

import atexit
import ctypes
import gc
import os
import signal
import socket
import stat
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, Protocol

import redis
from django.db import connections

from mq_django.consumers.shared_state import new_file
from mq_django.consumers.worker import main
from mq_django.consumers.worker.main import LaunchSpec
from mq_django.core.texts import class_name

#: The names of these processes for the system. Their command line is that of their supervisor.
TEMPLATE, CONSUMER = "mq-template", "mq-consumer"
#: Seconds that a template may take to fork a consumer: one that was suspended answers nothing.
FORK_TIMEOUT = 5.0

#: The process id of the consumer, or a negative error number.
_ANSWER = struct.Struct("<i")
_SET_CHILD_SUBREAPER = 36
_TASKS, _DESCRIPTORS = Path("/proc/self/task"), Path("/proc/self/fd")


class Process(Protocol):
    """A child of this process. `subprocess.Popen` is one."""

    pid: int

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def wait(self) -> object:
        """Wait until it has ended. Called after kill()."""


class ForkedProcess:
    """A child of this process that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._code if self._code is not None else self._waitpid(os.WNOHANG)

    def wait(self) -> None:
        """Wait until it has ended. Called after kill()."""
        if self._code is None:
            self._waitpid(0)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _waitpid(self, how: int) -> int | None:
        try:
            pid, status = os.waitpid(self.pid, how)
        except ChildProcessError:
            # Code of the project has waited for all children.
            self._code = 0
        else:
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def _send(self, number: int) -> None:
        # Nothing else has its id until its exit code was read.
        if self.poll() is None:
            os.kill(self.pid, number)


# The supervisor's side.


class Template:
    """A template, as its supervisor sees it."""

    def __init__(self, process: Process, requests: socket.socket) -> None:
        self._process = process
        self._requests = requests
        requests.settimeout(FORK_TIMEOUT)

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._process.poll()

    def fork(self, spec: LaunchSpec) -> ForkedProcess:
        """Return a new consumer, as a child of this process.

        Raises:
            OSError: the system refuses it, or the template does not answer and is ended.
        """
        # In a file, because the names of all queues may be more than a socket takes at once.
        with os.fdopen(new_file(), "wb") as file:
            file.write(spec.as_text().encode())
            file.flush()
            descriptors = [file.fileno(), spec.board, spec.lifeline]
            try:
                with _reaping():
                    socket.send_fds(self._requests, [b"fork"], descriptors)
                    answer = self._requests.recv(_ANSWER.size)
            except OSError:
                self._process.kill()
                raise
        if not answer:
            raise OSError("the template has ended")
        (found,) = _ANSWER.unpack(answer)
        if found < 0:
            raise OSError(-found, os.strerror(-found))
        return ForkedProcess(found)

    def close(self) -> None:
        """End it. Its consumers go on."""
        self._requests.close()
        end(self._process)


def end(process: Process) -> None:
    """Kill a process that has nothing to save, and wait until it has ended."""
    process.kill()
    process.wait()


@contextmanager
def _reaping() -> Iterator[None]:
    """Make this process the parent of what its children leave behind."""
    _reap(1)
    try:
        yield
    finally:
        _reap(0)


def _reap(value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


class CannotFork(Exception):
    """This process cannot be a template, for the reason that is the exception's text."""


def begin(environment: Mapping[str, str]) -> Template:
    """Return a template that is a fork of this process.

    Args:
        environment: variables that its consumers have.

    Raises:
        CannotFork: it would not be safe, or the system refuses it.
    """
    if reason := refusal():
        raise CannotFork(reason)
    _freeze()
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            pid = os.fork()
        except OSError as error:
            ours.close()
            raise CannotFork(str(error)) from error
        if not pid:
            ours.close()
            os.environ.update(environment)
            _end_after(_serve, theirs)
    return Template(ForkedProcess(pid), ours)


def offer(number: int, output: int, errors: int) -> str:
    """Be a template, if this process can be one, until the supervisor ends it. Else return why it cannot.

    Args:
        number: the descriptor of the supervisor's socket.
        output: that of the standard output of consumers, and so with errors. This process has had others as it loaded.
    """
    reason = refusal()
    with socket.socket(fileno=number) as requests:
        requests.set_inheritable(False)
        flush()  # what was logged as the project was loaded
        for own, standard in ((output, 1), (errors, 2)):
            os.dup2(own, standard)
            os.close(own)
        requests.send(f".{reason}".encode())
        if not reason:
            _freeze()
            _end_after(_serve, requests)
    return reason


# Whether a process can be forked.


def refusal() -> str:
    """Close the connections of Django and of redis-py, and return why this process must not be forked; "": it can."""
    try:
        _reap(0)
    except (OSError, AttributeError):
        return "this system cannot give a supervisor the children of another process"
    connections.close_all()
    for each in gc.get_objects():
        # Not isinstance(), which evaluates lazy objects.
        if issubclass(type(each), redis.ConnectionPool):
            with suppress(Exception):
                each.disconnect()
    if threads := other_threads():
        return f"the project has started threads as it was loaded: {', '.join(threads)}"
    if peers := list(_peers()):
        return f"the project has opened connections as it was loaded: {', '.join(peers)}"
    if shared := list(_shared()):
        return f"the project has made as it was loaded, and forks would share: {', '.join(shared)}"
    return ""


def other_threads() -> Sequence[str]:
    """Return the names of the other threads of this process: a fork would copy locks that they hold."""
    found = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if found or not _TASKS.exists():
        return found or ["unknown"]
    if not _has_more_tasks():
        return []
    # Threads of a library in C, such as OpenBLAS: some end theirs before each fork.
    if not (child := os.fork()):
        os._exit(0)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
    return ["of a library"] if _has_more_tasks() else []


def _has_more_tasks() -> bool:
    return len(list(_TASKS.iterdir())) > 1


def _peers() -> Iterator[str]:
    """Yield what the streams that this process has opened are connected to."""
    for path in _DESCRIPTORS.iterdir():
        with suppress(OSError):
            number = int(path.name)
            # Its parent has left it those that it can inherit.
            if stat.S_ISSOCK(os.fstat(number).st_mode) and not os.get_inheritable(number):
                with socket.socket(fileno=os.dup(number)) as found:
                    if found.type != socket.SOCK_DGRAM and (peer := found.getpeername()):
                        yield str(peer)


def _shared() -> Iterator[str]:
    """Yield what a process and its forks would share: one of them would wait for what another has taken."""
    for path in _DESCRIPTORS.iterdir():
        with suppress(OSError):
            if "eventpoll" in str(path.readlink()) and not os.get_inheritable(int(path.name)):
                yield "an event loop"
    if (used := sys.modules.get("multiprocessing.synchronize")) is not None:
        for each in gc.get_objects():
            if issubclass(type(each), used.SemLock):
                yield f"a multiprocessing.{class_name(type(each))}"


# The template's side.


def _serve(requests: socket.socket) -> int:
    """Fork a consumer for each request; return its exit code in a consumer, and that of the template."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    _rename(TEMPLATE)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a path has no advantage here
        os.dup2(nothing.fileno(), 0)
    while True:
        _, descriptors, *_ = socket.recv_fds(requests, 16, 3)
        if not descriptors:
            return 0
        answer = _fork_twice()
        if not answer:
            requests.close()
            return _consume(*descriptors)
        for number in descriptors:
            os.close(number)
        requests.send(_ANSWER.pack(answer))


def _fork_twice() -> int:
    """Return the id of the child of a child, or a negative error number; 0 in that process."""
    read, write = os.pipe()
    try:
        between = os.fork()
        if not between:
            _fork_and_end(write)
            return 0
        os.close(write)
        write = -1
        answer = os.read(read, _ANSWER.size)
        # From now on it is a child of the supervisor. A project that ignores SIGCHLD has nothing to wait for.
        with suppress(ChildProcessError):
            os.waitpid(between, 0)
    except OSError as error:
        return -(error.errno or 1)
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
    return int(_ANSWER.unpack(answer)[0])


def _fork_and_end(write: int) -> None:
    """Return in a child of this process, which ends."""
    try:
        answer = os.fork()
    except OSError as error:
        answer = -(error.errno or 1)
    if answer:
        with suppress(OSError):
            os.write(write, _ANSWER.pack(answer))
        os._exit(0)


def _begin(file: int, board: int, lifeline: int) -> LaunchSpec:
    """Make this process what a new interpreter would be, and return its launch spec."""
    _rename(CONSUMER)
    # Only the supervisor handles Ctrl-C. A hangup waits, and is not lost: see `hangups`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    if (used := sys.modules.get("multiprocessing.process")) is not None:
        # The template's, which `processes.end_children()` must not end.
        used._children.clear()  # noqa: SLF001 - as multiprocessing does
    # Temporary files of the template are not deleted when its first consumer ends.
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
        finalizer.atexit = False
    with os.fdopen(file, "rb") as text:
        text.seek(0)
        return replace(LaunchSpec.of(text.read().decode()), board=board, lifeline=lifeline)


def _consume(*descriptors: int) -> int:
    """Run a consumer, and what Python runs at the end of a program."""
    try:
        return main.run(_begin(*descriptors))
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does
        atexit._run_exitfuncs()  # noqa: SLF001


def _end_after(run: Callable[[socket.socket], int], requests: socket.socket) -> NoReturn:
    """Run a function, and end this process: what called `begin()` is for the supervisor."""
    code = 1
    try:
        code = run(requests)
    except BaseException:  # noqa: BLE001 - as Python does
        sys.excepthook(*sys.exc_info())
    finally:
        flush()
        os._exit(code)


def _freeze() -> None:
    """Prepare this process for forks: the garbage collector writes to no page that is shared."""
    gc.collect()
    gc.freeze()
    flush()


def flush() -> None:
    """Write out what a child would write again, or leave behind. A stream may be closed, or None."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _rename(name: str) -> None:
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")
