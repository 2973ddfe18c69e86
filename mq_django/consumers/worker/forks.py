"""Detect that this process was forked by a handler."""

import os
import sys
from typing import NoReturn

from mq_django.core.logs import get_logger

logger = get_logger(__name__)


#: The number of forks between the interpreter's first process and this one. It is read for every message, and
#: `os.getpid()` would be a system call.
generation = 0


def _forked() -> None:
    global generation  # noqa: PLW0603 - a process has one
    generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def end_child(where: str, code: int) -> NoReturn:
    """Exit a forked child that has returned from the handler `where`: it must not run as a second consumer.

    Nothing is cleaned up, because the child shares every connection and the shared state with its parent.
    """
    try:
        logger.error("A child process forked by handler %s returned from the handler, and was ended", where)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
