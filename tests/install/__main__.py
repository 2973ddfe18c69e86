"""Install the wheel plainly, in several environments, and try every way to connect: python -m tests.install.

Prints a table, and ends with 1 when anything failed.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import redis

from benchmarks.environments import interpreter
from mq_django.errors import ConnectionLost
from mq_django.transport.private_server import PrivateServer, ServerBinary, find_server
from tests.certificates import TLSServer
from tests.install.wheels import build, copy_project, copy_source, install

#: Seconds until a delayed message of 0.2 s must be handled; each look is a run of `runconsumer --drain`.
PATIENCE = 30.0

#: Seconds a step may take.
STEP = 60


@dataclass(frozen=True)
class Environment:
    """A Python, and what is installed beside the wheel."""

    python: str
    django: str
    redis: str
    hiredis: bool

    def __str__(self) -> str:
        parser = "hiredis" if self.hiredis else "no hiredis"
        return f"Python {self.python}, Django {self.django}, redis-py {self.redis}, {parser}"

    def requirements(self) -> list[str]:
        return [f"Django=={self.django}.*", f"redis=={self.redis}.*", *(["hiredis"] if self.hiredis else [])]


#: Both redis-py, with and without hiredis, and combinations of Python and Django that no full run of the tests has.
ENVIRONMENTS = [
    Environment("3.12", "6.0", "7.0", hiredis=True),
    Environment("3.12", "6.1", "8", hiredis=False),
    Environment("3.13", "5.2", "7.0", hiredis=False),
    Environment("3.13", "6.0", "8", hiredis=True),
]


@dataclass(frozen=True)
class LookupState:
    """A value of CONNECTION, and the caches that it may name."""

    name: str
    connection: str
    caches: Mapping[str, object]
    #: What the error line of `runconsumer` says where there is to be one.
    refusal: str = ""


def places(stack: ExitStack, folder: Path, binary: ServerBinary) -> Iterator[LookupState]:
    """Start the servers, and yield each way to connect."""
    tcp = stack.enter_context(PrivateServer(binary=binary, tcp=True))
    unix = stack.enter_context(PrivateServer(binary=binary))
    locked = stack.enter_context(PrivateServer(binary=binary, tcp=True))
    with redis.Redis.from_url(locked.url) as client:
        client.config_set("requirepass", "right")
    # A cache with choices that a queue must not take over.
    options = {"CONNECTION_POOL_KWARGS": {"max_connections": 1, "protocol": 3}, "SOCKET_TIMEOUT": 0.001}
    alias = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{tcp.url}/1", "OPTIONS": options}
    yield LookupState("url", tcp.url, {})
    yield LookupState("alias", "mq", {"mq": alias})
    yield LookupState("unix", unix.url, {})
    yield LookupState("embedded", "embedded", {})
    yield LookupState("wrong password", locked.url.replace("//", "//:wrong@"), {}, refusal="refuses the log-in")
    tls = tls_server(stack, folder)
    if tls is not None:
        yield LookupState("rediss", tls.trusted_url, {})
        yield LookupState("unknown CA", tls.url, {}, refusal="cannot be verified")


def tls_server(stack: ExitStack, folder: Path) -> TLSServer | None:
    """Start a server with TLS, if one of this machine has it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    try:
        return stack.enter_context(TLSServer(folder, port))
    except (ConnectionLost, FileNotFoundError) as error:
        print(f"rediss is left out: {error}")
        return None


class Trial:
    """A project of its own in an environment, with one way to connect."""

    def __init__(
        self, python: str, folder: Path, place: LookupState, environment: Environment, binary: ServerBinary
    ) -> None:
        self._python = python
        self._folder = folder
        self._place = place
        self._environment = environment
        copy_project(folder)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO", "MQ_"))}
        self._variables = {
            **kept,
            # The embedded server is looked for there.
            "PATH": f"{binary.path.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
            "PYTHONWARNINGS": "error",
            "DJANGO_SETTINGS_MODULE": "settings",
            "TEST_CONNECTION": place.connection,
            "TEST_CACHES": json.dumps(place.caches),
        }

    def run(self) -> str:
        """Do all steps, and return what failed, or nothing."""
        try:
            if self._place.refusal:
                return self._refused()
            return self._publish() or self._handle() or self._step("steps.py", "pages")[1]
        except subprocess.TimeoutExpired as error:
            return str(error)

    def _publish(self) -> str:
        said, failed = self._step("steps.py", "publish")
        if failed:
            return failed
        module, versions = said.splitlines()
        asked = self._environment
        django, redis_py, parser = versions.split()
        fits = (
            module.startswith(str(Path(self._python).parent.parent))
            and f"{django}.".startswith(f"{asked.django}.")
            and f"{redis_py}.".startswith(f"{asked.redis}.")
            and (parser == "hiredis") == asked.hiredis
        )
        return "" if fits else f"the environment has something else: {said}"

    def _handle(self) -> str:
        """Handle what was published; the delayed message is due by the second run at the latest."""
        deadline = time.monotonic() + PATIENCE
        handled: list[str] = []
        while sorted(handled) != ["later", "now"]:
            if time.monotonic() > deadline:
                return f"handled: {handled}"
            _, failed = self._step("-m", "django", "runconsumer", "emails", "--drain")
            if failed:
                return failed
            handled = (self._folder / "handled").read_text(encoding="utf-8").split()
        return ""

    def _refused(self) -> str:
        outcome = self._start("-m", "django", "runconsumer", "emails", "--drain")
        lines = (outcome.stdout + outcome.stderr).splitlines()
        if outcome.returncode == 1 and len(lines) == 1 and self._place.refusal in lines[0]:
            return ""
        return f"code {outcome.returncode}: {lines}"

    def _step(self, *arguments: str) -> tuple[str, str]:
        outcome = self._start(*arguments)
        return outcome.stdout, f"{arguments}: {outcome.stdout}\n{outcome.stderr}" if outcome.returncode else ""

    def _start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._python, *arguments],
            cwd=self._folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=STEP,
        )


def main() -> int:
    binary = find_server()
    passed, failures = 0, []
    with tempfile.TemporaryDirectory(prefix="mq-install-") as name, ExitStack() as stack:
        folder = Path(name)
        wheel = build(copy_source(folder), "wheel")
        tried = list(places(stack, folder, binary))
        print(f"{'seconds':60}{'install':>9}" + "".join(f"{place.name:>16}" for place in tried))
        for number, environment in enumerate(ENVIRONMENTS):
            found = interpreter(environment.python)
            if found is None:
                print(f"{environment!s:60}left out: no Python {environment.python}")
                continue
            began = time.monotonic()
            python = install(wheel, folder / f"env{number}", *environment.requirements(), interpreter=found)
            print(f"{environment!s:60}{time.monotonic() - began:9.1f}", end="", flush=True)
            for place in tried:
                began = time.monotonic()
                failed = Trial(python, folder / f"{number} {place.name}", place, environment, binary).run()
                print(f"{'failed' if failed else f'{time.monotonic() - began:.1f}':>16}", end="", flush=True)
                if failed:
                    failures.append(f"{environment}, {place.name}: {failed}")
                else:
                    passed += 1
            print()
    print(*failures, sep="\n\n")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
