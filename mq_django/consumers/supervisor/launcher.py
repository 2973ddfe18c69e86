"""Start processes of the same project: consumers, and the new interpreters that load its current code."""

import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import IO, NamedTuple, Self

from django.conf import settings

from mq_django.consumers.shared_state import new_file
from mq_django.consumers.supervisor.template import Process, Template, end, offer
from mq_django.consumers.worker.main import LaunchSpec
from mq_django.core.logs import get_logger

logger = get_logger(__name__)

#: The variable with the descriptors that `template.offer()` needs.
VARIABLE = "MQ_DJANGO_TEMPLATE"
#: Seconds that a new interpreter may take to load the project.
LOAD_TIMEOUT = 60.0
#: Seconds between two templates, when the first has died.
AGAIN = 30.0
#: Logged with the reason.
NOT_FORKED = "Consumers are new interpreters, and no forks of one template: %s"
#: Lines of an error that are logged.
LAST_LINES = 5
_FINGERPRINT = re.compile(r"mq_django fingerprint ([0-9a-f]{64})")


def command(*arguments: str, module: str = "django") -> list[str]:
    """Return the command line of another `runconsumer` of the same project, run by `python -m module`."""
    return [sys.executable, *_interpreter_options(), "-m", module, "runconsumer", *arguments]


def _interpreter_options() -> Iterator[str]:
    """Yield the options of this interpreter that change what the project does."""
    yield from ["-O"] * sys.flags.optimize
    yield from (f"-W{option}" for option in sys.warnoptions)
    for name, value in sys._xoptions.items():  # noqa: SLF001 - documented by Python
        yield f"-X{name}" if value is True else f"-X{name}={value}"


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Make processes that are started inside ignore Ctrl-C, which only the supervisor handles."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def environment() -> dict[str, str]:
    """Return the environment in which `python -m django` finds the same project."""
    module = os.environ.get("DJANGO_SETTINGS_MODULE") or settings.SETTINGS_MODULE
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109 - '' means just that
    # For glibc: else each of about 20 threads gets a heap of its own, although only one runs Python at a time.
    heaps = {"MALLOC_ARENA_MAX": "2"}
    return {**heaps, **os.environ, "DJANGO_SETTINGS_MODULE": module, "PYTHONPATH": path}


def offer_template() -> None:
    """Be a template, if this process was started as one by a Loading, and can be one."""
    if given := os.environ.pop(VARIABLE, ""):
        offer(*map(int, given.split(",")))


class Loaded(NamedTuple):
    """What a new interpreter has found."""

    #: Of the project; see `reload.fingerprint()`. "" if it cannot be loaded.
    fingerprint: str
    #: Why it cannot be loaded.
    error: str = ""
    #: The interpreter, if it forks consumers.
    template: Template | None = None
    #: Why it does not.
    refusal: str = ""


class Loading:
    """A new interpreter that loads the project, and then may be a template. It does not block its caller."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str], *, module: str, forks: bool) -> None:
        """Start it. `forks`: it is to be a template.

        Raises:
            OSError: out of memory, processes or file descriptors.
        """
        with ExitStack() as undo:
            # Files, because a pipe would fill up: it would not be read while the process runs.
            self._files = [undo.enter_context(os.fdopen(new_file(), "w+b")) for _ in range(2)]
            self._requests, theirs = socket.socketpair()
            undo.callback(self._requests.close)
            with theirs:
                self._process = self._execute(arguments, variables, module, theirs.fileno() if forks else None)
            undo.pop_all()
        self._give_up = time.monotonic() + LOAD_TIMEOUT

    def _execute(
        self, arguments: Sequence[str], variables: Mapping[str, str], module: str, requests: int | None
    ) -> "subprocess.Popen[bytes]":
        with ExitStack() as stack:
            given: list[int] = []
            if requests is not None:
                # The standard streams of the consumers.
                given = [requests, os.dup(1), os.dup(2)]
                for number in given[1:]:
                    stack.callback(os.close, number)
            stack.enter_context(ignoring_interrupts())
            return subprocess.Popen(  # noqa: S603 - our own interpreter and command
                command("--fingerprint", *arguments, module=module),
                env={**environment(), **variables, VARIABLE: ",".join(map(str, given))},
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                stdout=self._files[0],
                stderr=self._files[1],
            )

    def poll(self) -> Loaded | None:
        """Return the result once; None before."""
        answer, code, late = self._answer(), self._process.poll(), time.monotonic() > self._give_up
        if answer is None and code is None and not late:
            return None
        found, errors = _FINGERPRINT.search(_content(self._files[0])), _content(self._files[1])
        if found is None or (answer is None and code != 0):
            self.cancel()
            return Loaded(
                "", f"no answer in {LOAD_TIMEOUT:g} s" if late else " | ".join(errors.splitlines()[-LAST_LINES:])
            )
        if answer == "":
            self._close_files()
            return Loaded(found[1], template=Template(self._process, self._requests))
        self.cancel()
        return Loaded(found[1], refusal=answer or "")

    def _answer(self) -> str | None:
        """Return why it is no template, "" if it is one; None if it has not answered yet, or does not answer."""
        with suppress(BlockingIOError):
            if answer := self._requests.recv(4096, socket.MSG_DONTWAIT):
                return answer.decode(errors="replace").removeprefix(".")
        return None

    def cancel(self) -> None:
        """End the process, and discard its result."""
        end(self._process)
        self._requests.close()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files:
            file.close()


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()


class Launcher:
    """Starts the consumers of a supervisor: forks of its template, or new interpreters while it has none."""

    def __init__(
        self,
        template: Template | None,
        *,
        arguments: Sequence[str] = (),
        selection: Sequence[str] = (),
        forks: bool = True,
    ) -> None:
        """Use a template, if there is one at the start.

        Args:
            template: the first one.
            arguments: arguments of the command line for all processes.
            selection: those that select the queues.
            forks: later interpreters may be templates.
        """
        self._template = template
        self._arguments, self._selection, self._forks = arguments, selection, forks
        self._module, self._variables = "django", dict[str, str]()
        self._loading: Loading | None = None
        #: When to load a template, and when the latest was loaded.
        self._load_at, self._loaded_at = math.inf, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop()

    def measure(self, module: str, variables: Mapping[str, str]) -> None:
        """Let a module run the command line, with more variables in its environment: a template must be loaded so."""
        self._module, self._variables = module, dict(variables)
        if self._forks:
            self._load_at = -math.inf

    @property
    def is_loading(self) -> bool:
        """Return whether consumers should wait for a template."""
        return self._loading is not None

    def check(self, now: float) -> None:
        """Load a template in the place of one that has ended, and use it when it is ready."""
        if self._template is not None and (code := self._template.exit_code) is not None:
            logger.error("The template of the consumers has exited with code %d; loading another", code)
            self._drop()
            self._load_at = max(now, self._loaded_at + AGAIN)
        if now >= self._load_at:
            self._load_at = math.inf
            try:
                self._loading = self.load()
            except OSError as error:
                self._load_at = now + AGAIN
                logger.error("Cannot load a template for the consumers: %s", error)  # noqa: TRY400
        if self._loading is not None and (found := self._loading.poll()) is not None:
            self._loading = None
            self.use(found)

    def load(self) -> Loading:
        """Return a new interpreter with the current code. Raises the OSError of Loading."""
        arguments = [*self._selection, *self._arguments]
        return Loading(arguments, self._variables, module=self._module, forks=self._forks)

    def use(self, loaded: Loaded) -> None:
        """Start consumers from a template, or without one, from now on."""
        self._drop()
        self._template, self._loaded_at = loaded.template, time.monotonic()
        if loaded.error:
            logger.error("The template of the consumers cannot be loaded: %s", loaded.error)
        if loaded.refusal:
            logger.info(NOT_FORKED, loaded.refusal)

    def start(self, spec: LaunchSpec) -> Process:
        """Start a consumer.

        Raises:
            OSError: out of memory, processes or file descriptors, or the template has just ended.
        """
        if self._template is not None:
            return self._template.fork(spec)
        with ignoring_interrupts():
            return subprocess.Popen(  # noqa: S603 - our own interpreter and command
                # Its supervisor has shown what the checks find; what cannot work ends the process by itself.
                command("--orders", spec.as_text(), "--skip-checks", *self._arguments, module=self._module),
                pass_fds=(spec.board, spec.lifeline),
                env={**environment(), **self._variables},
                stdin=subprocess.DEVNULL,
            )

    def _drop(self) -> None:
        """End the template, and one that is being loaded."""
        if self._template is not None:
            self._template.close()
        if self._loading is not None:
            self._loading.cancel()
        self._template, self._loading, self._load_at = None, None, math.inf
