"""What a project runs around each handling of a message: the functions in `MQ_DJANGO["MIDDLEWARE"]`.

A middleware is written as Django's: a function (or a class) that takes what comes next and returns a callable.

    @around_handling
    def with_tenant(handle):
        def middleware(handling):
            with tenant(handling.message.headers.get("tenant")):
                return handle(handling)

        return middleware

The first in the list is the outermost. Around coroutine functions it has to be async: `sync_and_async_middleware` and
`async_only_middleware` of `django.utils.decorators` say so. `MiddlewareNotUsed` leaves a middleware out.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from django.core.exceptions import MiddlewareNotUsed
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from mq_django.conf import get_config
from mq_django.core.messages import Message
from mq_django.core.outcomes import Outcome
from mq_django.errors import ConfigurationError

__all__ = ["Handling", "around_handling"]

Factory = TypeVar("Factory", bound=Callable[..., Any])

#: The attribute of a middleware that says what it runs around.
AROUND = "mq_django_around"


@dataclass(slots=True)
class Handling:
    """One attempt at handling a message, for middleware."""

    #: The name of the queue, or `topic:group`.
    queue: str
    message: Message
    #: The dotted path of the handler.
    handler: str
    #: Runs the handler, innermost. A middleware calls `handle(handling)`, which comes to this in the end.
    run: Callable[["Handling"], Any]
    #: What the handler raised, once it has.
    exception: BaseException | None = None

    @property
    def attempt(self) -> int:
        """Return the number of the attempt, from 1."""
        return self.message.attempt


Handle = Callable[[Handling], Outcome]
AsyncHandle = Callable[[Handling], Awaitable[Outcome]]


def around_handling(factory: Factory) -> Factory:
    """Mark a middleware that runs around handlers.

    It is called once a process with `handle`, and returns a callable that takes a `Handling`, calls `handle(handling)`
    and returns the outcome: an `Ack`, a `Retry` with the delay until the next attempt, or a `Bury`. `handle` raises
    nothing: `handling.exception` has what the handler raised. What a middleware raises itself counts as raised by the
    handler. The handler's timeout does not cover it. After it, transactions that were left open are rolled back, so
    that an `Ack` may still become a `Retry`: the signal `handler_finished` has the final outcome.
    """
    setattr(factory, AROUND, "handling")
    return factory


@cache
def handling_chain() -> Handle | None:
    """Return what runs a handler within all middleware, or None when there is none.

    Raises:
        ConfigurationError: one cannot be imported, or cannot run around functions.
    """
    found: Handle | None = _chain(lambda handling: handling.run(handling), is_async=False)
    return found


@cache
def async_handling_chain() -> AsyncHandle | None:
    """Return what runs a coroutine function within all middleware, or None when there is none.

    Raises:
        ConfigurationError: one cannot be imported, or cannot run around coroutine functions.
    """
    found: AsyncHandle | None = _chain(_await_run, is_async=True)
    return found


async def _await_run(handling: Handling) -> Any:
    return await handling.run(handling)


def _chain(innermost: Callable[[Handling], Any], *, is_async: bool) -> Any:
    call = innermost
    for path, factory in reversed(list(_factories())):
        if not getattr(factory, "async_capable" if is_async else "sync_capable", not is_async):
            what = "coroutine functions" if is_async else "functions"
            raise ConfigurationError(
                f"Middleware {path!r} cannot run around handlers that are {what}: write it for both, and decorate it "
                "with django.utils.decorators.sync_and_async_middleware"
            )
        try:
            made = factory(call)
        except MiddlewareNotUsed:
            continue
        if not callable(made):
            raise ConfigurationError(f"Middleware {path!r} must return a callable, not {made!r:.200}")
        call = made
    return None if call is innermost else call


def _factories() -> Iterator[tuple[str, Callable[..., Any]]]:
    for path in get_config().middleware:
        try:
            factory = import_string(path)
        except ImportError as error:
            raise ConfigurationError(f"Middleware {path!r} cannot be imported: {error}") from error
        if getattr(factory, AROUND, None) != "handling":
            raise ConfigurationError(
                f"{path!r} is no middleware: decorate it with mq_django.middleware.around_handling"
            )
        yield path, factory


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "MQ_DJANGO":
        handling_chain.cache_clear()
        async_handling_chain.cache_clear()


setting_changed.connect(_forget, dispatch_uid="mq_django.middleware")
