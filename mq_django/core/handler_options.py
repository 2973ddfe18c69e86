"""Check the options of handlers, subscribers and tasks."""

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from inspect import isasyncgenfunction, isfunction, isgeneratorfunction, ismethod, signature
from typing import Any, Protocol, TypeVar, overload

from mq_django.core.clock import MAX_DELAY, Duration, read_duration
from mq_django.core.jsontext import dumps, loads
from mq_django.core.keys import instead_of, is_name
from mq_django.core.retries import RetryPolicy
from mq_django.core.texts import class_name, exception_of, path_of, repr_of
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
                f"{instead_of(name)}"
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


# The timeout and the retry policy of one call of a task, in headers of its message: see `using()` of a task.

#: Milliseconds, and a JSON object of the arguments of RetryPolicy, with seconds and with paths of exceptions.
TIMEOUT_HEADER, RETRY_HEADER = "mqtimeout", "mqretry"
#: The longest text of these headers that is read.
MAX_TEXT = 4096


def call_headers(timeout: timedelta | None, retry: RetryPolicy | None) -> dict[str, str]:
    """Return the headers that carry a timeout and a retry policy, if they are given.

    Raises:
        ConfigurationError: the timeout is longer than any delay, or the policy has more than RetryPolicy itself has.
    """
    check_retry(retry)
    found = {}
    if timeout is not None:
        if timeout > MAX_DELAY:
            raise ConfigurationError(f"The timeout of one call must be up to {MAX_DELAY.days} days, not {timeout}")
        found[TIMEOUT_HEADER] = str(math.ceil(timeout / timedelta(milliseconds=1)))
    if retry is not None:
        if type(retry) is not RetryPolicy:
            raise ConfigurationError(f"The retry policy of one call is a RetryPolicy, not a {class_name(type(retry))}")
        found[RETRY_HEADER] = text = dumps(_arguments_of(retry)).decode()
        if len(text) > MAX_TEXT:
            raise ConfigurationError("The retry policy of one call names too many exceptions in bury_on")
    return found


def options_in(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the `timeout` and `retry` in the headers of a message, if it has them.

    Exceptions of `bury_on` are those that are imported: nothing is imported for a message.

    Raises:
        ConfigurationError, DecodeError, TypeError: one is not valid. Any program may have written it.
    """
    found: dict[str, Any] = {}
    for name in (TIMEOUT_HEADER, RETRY_HEADER):
        if len(headers.get(name, "")) > MAX_TEXT:
            raise ConfigurationError(f"{name} has more than {MAX_TEXT} characters")
    if (text := headers.get(TIMEOUT_HEADER)) is not None:
        if len(text) > len(str(MAX_DELAY // timedelta(milliseconds=1))) or not (text.isascii() and text.isdigit()):
            raise ConfigurationError(f"{TIMEOUT_HEADER} must be milliseconds, not {repr_of(text)}")
        found["timeout"] = parse_timeout(int(text) / 1000)
    if (text := headers.get(RETRY_HEADER)) is not None:
        arguments = loads(text.encode())
        if not isinstance(arguments, dict) or not isinstance(paths := arguments.get("bury_on", []), list):
            raise ConfigurationError(f"{RETRY_HEADER} must be an object of the arguments of RetryPolicy")
        classes = [exception_of(path) for path in paths if isinstance(path, str)]
        arguments["bury_on"] = [each for each in classes if each is not None and issubclass(each, Exception)]
        found["retry"] = RetryPolicy(**arguments)
    return found


def _arguments_of(retry: RetryPolicy) -> dict[str, Any]:
    """Return what differs from the defaults, in JSON."""
    found: dict[str, Any] = {"max_attempts": retry.max_attempts, "factor": retry.factor, "jitter": retry.jitter}
    found |= {name: read_duration(getattr(retry, name)).total_seconds() for name in ("delay", "max_delay")}
    found["bury_on"] = [path_of(each) for each in retry.bury_on]
    return found


# The mark of functions whose effects in a database happen exactly once, and the database of the one that runs.

Function = TypeVar("Function", bound=Callable[..., Any])

#: The database of a project that has only one.
DEFAULT = "default"

#: Attributes of functions: the alias of the database, and that the function is registered as a handler.
_MARK, _REGISTERED = "_mq_django_exactly_once", "_mq_django_registered"

WRONG_ORDER = "@exactly_once is written below @handler, @subscriber or @task, directly above {what}"

#: The alias of the database whose transaction is around the handler that runs; None outside such handlers.
running_in: ContextVar[str | None] = ContextVar("mq_django_exactly_once", default=None)


class Postponed(Exception):
    """It is not known now whether a message was handled: another delivery of it runs, or its database cannot say."""


@overload
def exactly_once(function: Function, /) -> Function: ...


@overload
def exactly_once(*, using: str = ...) -> Callable[[Function], Function]: ...


def exactly_once(function: Any = None, /, *, using: str = DEFAULT) -> Any:
    """Let the effects of a handler in a database happen exactly once for each message.

    The handler runs in one transaction with a row that names the message. If a message is delivered again and this row
    is there, the message is acked without running its handler, and a task has the same result. When the handler raises,
    or returns `Retry` or `Bury`, the transaction is rolled back. It is written directly above the function:

        @handler("payments", "captured")
        @exactly_once
        def book(message):
            Booking.objects.create(order_id=message.data["order_id"])

    Args:
        function: for `@exactly_once` without parentheses: a function or a coroutine function.
        using: the alias of the database that the handler writes to.

    Returns:
        The function itself, which runs without a transaction where it is called directly. Without `function`, a
        decorator.

    Raises:
        ConfigurationError: `using` is no string; or what it decorates is no function, or is registered already, because
            it is written above `@handler`, `@subscriber` or `@task`.
    """
    given: object = using
    if not isinstance(given, str) or not given:
        raise ConfigurationError(f"@exactly_once(using=...) takes the alias of a database, not {repr_of(given)}")

    def decorate(function: Function) -> Function:
        target = getattr(function, "__func__", None) if ismethod(function) else function
        if not isfunction(target):
            raise ConfigurationError(WRONG_ORDER.format(what=f"a function, and not above {repr_of(function, 200)}"))
        if getattr(target, _REGISTERED, False):
            raise ConfigurationError(WRONG_ORDER.format(what=f"the function {target.__qualname__}"))
        setattr(target, _MARK, using)
        return function

    return decorate if function is None else decorate(function)


def database_of(function: object) -> str | None:
    """Return the alias of the database in which the effects of a function happen exactly once; None: of none."""
    found = getattr(function, _MARK, None)
    return found if isinstance(found, str) else None


def note_registered(function: object) -> None:
    """Note that a function is registered as a handler, so that a mark would come too late."""
    target = getattr(function, "__func__", function)
    if isfunction(target):
        setattr(target, _REGISTERED, True)


def current_database() -> str | None:
    """Return the alias of the database of the `@exactly_once` handler that runs here; None outside such handlers."""
    return running_in.get()


# What a connection of Django to a database says of its transaction.


class DatabaseConnection(Protocol):
    """The part of Django's `BaseDatabaseWrapper` that tells it."""

    settings_dict: dict[str, Any]
    #: That of the driver; None: it is not open.
    connection: Any
    autocommit: bool
    in_atomic_block: bool


def is_manual(connection: DatabaseConnection) -> bool:
    """Return whether a project commits by itself: outside atomic(), with autocommit off."""
    if connection.in_atomic_block:
        return False
    # A connection that is not open is not opened for this.
    on = connection.settings_dict["AUTOCOMMIT"] if connection.connection is None else connection.autocommit
    return not on
