"""Notice that this process is a child that a handler has forked."""

import os
import sys
from typing import NoReturn

from mq_django.core.logs import get_logger

logger = get_logger(__name__)


#: How many forks lie between this process and the one that the interpreter was started in. It is read for every
#: message, and `os.getpid()` would ask the kernel each time.
generation = 0


def _forked() -> None:
    global generation  # noqa: PLW0603 - a process has one
    generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def end_child(where: str, code: int) -> NoReturn:
    """End a forked child that came back from the handler `where`: it must not go on as a second consumer.

    Nothing is cleaned up, because the child shares every connection and the shared state with its parent.
    """
    try:
        logger.error("A child process that handler %s has forked returned from the handler: it ends", where)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
