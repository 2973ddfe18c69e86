"""The functions that handle messages, by queue and name."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from mq_django.core.messages import Message
from mq_django.core.retries import RetryPolicy
from mq_django.core.wire import check_name
from mq_django.errors import ConfigurationError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function that handles the messages of one name."""

    name: str
    #: None: of every queue. Tasks are so, because `using(queue_name=...)` moves them.
    queue: str | None
    #: Takes the message; returns an outcome, a task's result, or None. A coroutine function when `is_async`.
    call: Callable[[Message], Any]
    #: None: the queue's policy.
    retry: RetryPolicy | None = None
    #: None: the queue's timeout.
    timeout: timedelta | None = None
    is_async: bool = False
    #: What `call` returns is a task's result, kept for the queue's RESULT_TTL.
    keeps_result: bool = False
    #: Where it is written, for messages to people.
    where: str = ""


_handlers: dict[tuple[str | None, str], Handler] = {}


def register(entry: Handler) -> None:
    """Add a handler.

    Raises:
        ConfigurationError: the queue has another one of that name.
    """
    known = _handlers.get((entry.queue, entry.name))
    # The same place again is a module that was imported twice, as autoreload and tests do.
    if known is not None and known.where != entry.where:
        raise ConfigurationError(
            f"{entry.name!r} has two handlers in queue {entry.queue!r}: {known.where} and {entry.where}"
        )
    _handlers[entry.queue, entry.name] = entry


def find(queue: str, name: str) -> Handler | None:
    """Return the handler of a message, or None."""
    return _handlers.get((queue, name)) or _handlers.get((None, name))


def names(queue: str) -> Iterator[str]:
    """Yield the names that are handled in a queue."""
    for handled_in, name in list(_handlers):
        if handled_in is None or handled_in == queue:
            yield name


def handler(
    queue: str,
    name: str,
    *,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
) -> Callable[[Function], Function]:
    """Register a function as the handler of a queue's messages named `name`.

    The function takes the `Message`. Returning handles it; an exception retries it by `retry`; returning
    `mq_django.Retry(delay=...)` or `mq_django.Bury(...)` decides by itself. `timeout` is in seconds.
    """
    check_name(name)

    def decorate(function: Function) -> Function:
        register(
            Handler(
                name=name,
                queue=queue,
                call=function,
                retry=retry,
                timeout=seconds(timeout),
                is_async=inspect.iscoroutinefunction(function),
                where=f"{function.__module__}.{function.__qualname__}",
            )
        )
        return function

    return decorate


def seconds(value: timedelta | float | None) -> timedelta | None:
    """Return a timeout that was given in seconds as a timedelta.

    Raises:
        ConfigurationError: it is not above zero.
    """
    if value is None:
        return None
    timeout = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if timeout <= timedelta(0):
        raise ConfigurationError(f"A timeout must be above zero, not {value!r}")
    return timeout
