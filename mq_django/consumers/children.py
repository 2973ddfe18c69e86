"""The processes of a supervisor."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from django.conf import settings

from mq_django.consumers.board import Board
from mq_django.consumers.child import Orders
from mq_django.consumers.consumer import lanes


class Child:
    """A consumer process, seen from its supervisor."""

    def __init__(self, consumer: str, board: Board, lifeline: int, process: "subprocess.Popen[bytes]") -> None:
        self.consumer = consumer
        self.board = board
        self.process = process
        self.started = time.monotonic()
        self.since_ms = int(time.time() * 1000)
        self._lifeline = lifeline

    def terminate(self) -> None:
        """Ask the process to stop; the second time, to stop at once."""
        if self.process.poll() is None:
            self.process.terminate()

    def close(self) -> None:
        """Let go of what was shared with the process."""
        os.close(self._lifeline)
        self.board.close()


def spawn(
    consumer: str,
    *,
    queues: Sequence[str],
    threads: int,
    grace: float,
    drain: bool,
    arguments: Sequence[str],
) -> Child:
    """Start a consumer as a new interpreter, which loads the code as it is now.

    A fork would share the supervisor's threads' locks and its old code. `arguments` go to the command as they are.
    """
    board = Board.create(lanes(threads))
    their_end, our_end = os.pipe()
    orders = Orders(
        consumer=consumer,
        queues=list(queues),
        threads=threads,
        grace=grace,
        drain=drain,
        board=board.fd,
        lifeline=their_end,
    )
    command = [sys.executable, "-m", "django", "runconsumer", "--orders", orders.as_text(), *arguments]
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and command
        command, pass_fds=(board.fd, their_end), env=_environment(), stdin=subprocess.DEVNULL
    )
    os.close(their_end)
    return Child(consumer, board, our_end, process)


def _environment() -> dict[str, str]:
    """Return the environment in which `python -m django` finds the same project."""
    module = os.environ.get("DJANGO_SETTINGS_MODULE") or settings.SETTINGS_MODULE
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109 - '' means just that
    return {**os.environ, "DJANGO_SETTINGS_MODULE": module, "PYTHONPATH": path}
