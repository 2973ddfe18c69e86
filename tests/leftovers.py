"""What a test must not leave behind: the test that leaves it fails, not a later one that finds it."""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import redis

from mq_django import registry
from tests.waiting import wait_until

#: Seconds that threads get to end by themselves, when what they served has ended.
GRACE = 5.0
#: How the names of threads begin that stay: of pools, whose next call uses them, and of what a process has once.
KEPT = ("ThreadPoolExecutor", "asyncio_", "asgiref", "sentry.", "mq_django outbox notifier")
#: Signals whose handlers `runconsumer` sets, and leaves to a process that ends with it. Here the process goes on.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
#: Changed by pytest itself, and by the fixtures of a session.
FREE_VARIABLES = {"PYTEST_CURRENT_TEST", "MQ_DJANGO_TEST_DATABASE", "COLUMNS", "LINES"}


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name not in FREE_VARIABLES}


def _registered() -> set[str]:
    # Those of modules stay: a test may be the first to import one.
    return {entry.where for entry in registry.handlers() if "<locals>" in entry.where}


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


#: What is compared, and how it is read.
STATES: Mapping[str, Callable[[], Any]] = {
    "environment variables": _environment,
    "the working folder": Path.cwd,
    "what is registered": _registered,
}


class Before:
    """The state before a test."""

    def __init__(self) -> None:
        self._states = {name: read() for name, read in STATES.items()}
        self._threads = _threads()
        self._handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def left(self) -> list[str]:
        """Return a sentence for each thing that the test has left, and put the handlers of signals back."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        found = [
            f"{name} differ: {_difference(self._states[name], now)}"
            for name, read in STATES.items()
            if (now := read()) != self._states[name]
        ]
        return [*found, *self._left_threads()]

    def _left_threads(self) -> list[str]:
        more = [thread for thread in _threads() - self._threads if not _is_of_a_pool(thread)]
        for thread in more:
            # One that another thread is just starting, such as that of a request, cannot be joined yet.
            wait_until(lambda thread=thread: _is_started(thread))
            thread.join(GRACE)
        return [f"the thread {thread.name} runs" for thread in more if thread.is_alive()]


def _is_started(thread: threading.Thread) -> bool:
    try:
        thread.join(0)
    except RuntimeError:
        return False
    return True


def _is_of_a_pool(thread: threading.Thread) -> bool:
    return thread.name.startswith(KEPT)


def _difference(before: object, now: object) -> object:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return {name: now.get(name) for name in {*before, *now} if before.get(name) != now.get(name)}
    return now


def keys_in(client: redis.Redis) -> list[str]:
    """Return a sentence if the server of the tests has keys, which are removed: each test removes its own."""
    found = list(client.scan_iter(count=1000))
    for key in found:
        client.delete(key)
    return [f"keys are left: {found[:5]}"] if found else []
