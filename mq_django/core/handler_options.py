"""Check the options of handlers, subscribers and tasks."""

from collections.abc import Callable
from datetime import timedelta
from inspect import isasyncgenfunction, isgeneratorfunction, signature

from mq_django.core.exceptions import repr_of
from mq_django.core.keys import is_name
from mq_django.core.retries import RetryPolicy
from mq_django.core.times import Duration, read_duration
from mq_django.errors import ConfigurationError

#: The most messages that a call of a handler may get.
MAX_BATCH = 10_000
#: The longest time for which messages wait for others of their batch.
MAX_LINGER = timedelta(minutes=1)


def check_names(*names: object) -> None:
    """Check the names of a queue, or of a topic and a group.

    Raises:
        ConfigurationError: one is not valid.
    """
    for name in names:
        if not is_name(name):
            raise ConfigurationError(
                f"A queue, topic or group has a name of 1 to 160 letters, digits, _ and -, not {repr_of(name, 200)}"
            )


def check_function(function: Callable[..., object]) -> None:
    """Check what a handler or subscriber decorates.

    Raises:
        ConfigurationError: it is no function, it contains `yield`, or it cannot be called with one argument.
    """
    # A callable object or a functools.partial has no name.
    if not hasattr(function, "__qualname__"):
        raise ConfigurationError(f"A handler is a function, not {repr_of(function, 200)}")
    if yields(function):
        raise ConfigurationError(f"A handler must not contain `yield`: a call of {function.__qualname__} runs nothing")
    try:
        signature(function).bind(None)
    except TypeError as error:
        raise ConfigurationError(
            f"A handler takes one argument, a message or a list of messages, unlike {function.__qualname__}: {error}"
        ) from error
    except ValueError:
        return  # a builtin, which does not say what it takes


def yields(function: object) -> bool:
    """Return whether a function contains `yield`, so that a call of it only makes a generator."""
    return isgeneratorfunction(function) or isasyncgenfunction(function)


def check_retry(value: object) -> None:
    """Check the argument `retry` of a handler or a task.

    Raises:
        ConfigurationError: it is not a RetryPolicy.
    """
    if value is not None and not isinstance(value, RetryPolicy):
        raise ConfigurationError(
            f"retry= must be a RetryPolicy, such as RetryPolicy(max_attempts=3), not {repr_of(value, 200)}"
        )


def parse_timeout(value: Duration | None) -> timedelta | None:
    """Return a timeout as a timedelta. A number is in seconds.

    Raises:
        ConfigurationError: it is not a duration, or not above zero.
    """
    if value is None:
        return None
    try:
        timeout = read_duration(value)
    except TypeError as error:
        raise ConfigurationError(f"A timeout must be {error}, not {repr_of(value)}") from error
    if timeout <= timedelta(0):
        raise ConfigurationError(f"A timeout must be above zero, not {repr_of(value)}")
    return timeout


def check_batch(batch: int | None, linger: Duration | None) -> tuple[int, float]:
    """Return how many messages a call gets at most, 0 for one that is no list, and the seconds it waits for them.

    Raises:
        ConfigurationError: `batch` is not a whole number from 1 to 10,000, or `linger` is not 0 to 60 s, or it is given
            without `batch`.
    """
    if batch is None:
        if linger is not None:
            raise ConfigurationError("linger= is for handlers with batch=: without it, each call gets one message")
        return 0, 0.0
    if type(batch) is not int or not 1 <= batch <= MAX_BATCH:
        raise ConfigurationError(f"batch= must be a whole number from 1 to {MAX_BATCH}, not {repr_of(batch)}")
    try:
        wait = read_duration(0 if linger is None else linger)
    except TypeError as error:
        raise ConfigurationError(f"linger= must be {error}, not {repr_of(linger)}") from error
    if not timedelta(0) <= wait <= MAX_LINGER:
        raise ConfigurationError(f"linger= must be 0 to {MAX_LINGER.seconds} seconds, not {repr_of(linger)}")
    return batch, wait.total_seconds()
