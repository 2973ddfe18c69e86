"""Processes that use the embedded server of a directory: forks of one template, which has loaded the package.

`python -m tests.transport.embedded_users` is the template. It gets requests through the socket at its standard input.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import redis

from mq_django.transport import guard_process, private_server  # noqa: F401 - so that no fork has to load it
from tests.processes import alive
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent

IMPORTS = """
import os, sys
from pathlib import Path
from mq_django.transport import private_server
directory = Path(sys.argv[1])
"""

JOIN = IMPORTS + "print(private_server.embedded_url(directory), flush=True)\n"

#: A user that joins, says so, and stays until its standard input ends. It looks each second, because Python notices a
#: signal that arrives just before a system call only after it.
USER = JOIN + "import select\nwhile not select.select([0], [], [], 1.0)[0]: pass"


def connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=5)


class Template:
    """The process of which users are forks."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-m", __name__], cwd=ROOT, stdin=theirs)

    def fork(self, request: Mapping[str, object], files: list[int]) -> int:
        """Start a user with its standard input and output; return its process id."""
        socket.send_fds(self._requests, [json.dumps(request).encode()], files)
        return int(self._requests.recv(100))

    def stop(self) -> None:
        self._requests.close()
        self._process.wait()


class User:
    """A process that uses the embedded server of a directory."""

    def __init__(
        self, template: Template, directory: Path, code: str, *, group: int | None = None, **environment: str
    ) -> None:
        (read, stdin), (stdout, write) = os.pipe(), os.pipe()
        request = {
            "code": code,
            "arguments": [str(directory)],
            "guard": guard_process.__file__,
            "group": group,
            "environment": environment,
        }
        self.pid = template.fork(request, [read, write])
        os.close(read)
        os.close(write)
        self._stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout, encoding="utf-8")

    @property
    def url(self) -> str:
        if not hasattr(self, "_url"):
            self._url = self.stdout.readline().strip()
            assert self._url, "the user could not join"
        return self._url

    def command(self, *arguments):
        with connect(self.url) as client:
            return client.execute_command(*arguments)

    @property
    def server_pid(self) -> int:
        with connect(self.url) as client:
            return client.info("server")["process_id"]

    def wait(self) -> None:
        wait_until(lambda: not alive(self.pid), message="the user has ended")

    def leave(self) -> None:
        self._stdin.close()
        self.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.leave()


def main() -> None:
    """Fork a user for each request."""
    # Nobody waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            text, files, _, _ = socket.recv_fds(requests, 100_000, 2)
            if not text:
                return
            user = os.fork()
            if not user:
                requests.close()
                use(json.loads(text), *files)
            for file in files:
                os.close(file)
            requests.sendall(str(user).encode())


def use(request: Mapping[str, object], stdin: int, stdout: int) -> NoReturn:
    """Run the code of a user, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.close(stdin)
    os.close(stdout)
    sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
    if request["group"] is not None:
        os.setpgid(0, request["group"])
    os.environ.update(request["environment"])
    sys.argv = ["-c", *request["arguments"]]
    guard_process.__file__ = request["guard"]
    try:
        exec(request["code"], {"__name__": "__main__"})
    finally:
        # Also after an error: what the template would do at its end is not for its forks.
        os._exit(0)


if __name__ == "__main__":
    main()
