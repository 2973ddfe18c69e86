"""The mark of functions whose effects in a database happen exactly once, and the database of the one that runs."""

from collections.abc import Callable
from contextvars import ContextVar
from inspect import isfunction, ismethod
from typing import Any, Protocol, TypeVar, overload

from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError

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
        The function as it is: it runs without a transaction where it is called directly. Without `function`, a
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
