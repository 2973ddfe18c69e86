"""Middleware around handlers and publishing: the functions in `MQ_DJANGO["MIDDLEWARE"]`.

It is written like Django's: a function or a class that takes the next callable, and returns a callable.

    @around_handling
    def with_tenant(handle):
        def middleware(handling):
            with tenant(handling.message.headers.get("tenant")):
                return handle(handling)

        return middleware

    @around_publishing
    def stamp_tenant(publish):
        def middleware(call):
            call.headers["tenant"] = current_tenant()
            return publish(call)

        return middleware

The first in the list is the outermost. Middleware around coroutine functions must be async, and be decorated with
`sync_and_async_middleware` or `async_only_middleware` of `django.utils.decorators`. A middleware that raises
`MiddlewareNotUsed` when it is made is left out.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import MiddlewareNotUsed
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from mq_django.conf import get_config
from mq_django.core.messages import Message, Outcome
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError

__all__ = ["Handling", "PublishCall", "around_handling", "around_publishing"]

Factory = TypeVar("Factory", bound=Callable[..., Any])

#: The attribute of a middleware that has its kind: "handling" or "publishing".
AROUND = "mq_django_around"


@dataclass(slots=True)
class Handling:
    """One call of a handler, for middleware: an attempt at handling a message, or the messages of a batch."""

    #: The name of the queue, or `topic:group`.
    queue: str
    #: Of a batch the first message.
    message: Message
    #: The dotted path of the handler.
    handler: str
    #: Runs the handler. Middleware must not call this, but `handle(handling)`, whose innermost call is this.
    run: Callable[["Handling"], Any]
    #: The exception of the handler, after it has raised one.
    exception: BaseException | None = None
    #: The messages of a batch; empty for a handler without `batch`.
    batch: Sequence[Message] = ()

    @property
    def messages(self) -> Sequence[Message]:
        """Return the messages of the call: one, or a batch."""
        return self.batch or (self.message,)

    @property
    def attempt(self) -> int:
        """Return the number of the attempt, from 1. For a batch, the first message's."""
        return self.message.attempt


@dataclass(slots=True)
class PublishCall:
    """One call that publishes, for middleware. All its messages have been checked."""

    #: The name of the queue or topic.
    queue: str
    messages: Sequence[Message]
    #: Publishes the messages. Middleware must not call this, but `publish(call)`, whose innermost call is this.
    run: Callable[["PublishCall"], Sequence[str | None]]
    #: Added to the headers of each message.
    headers: dict[str, str] = field(default_factory=dict)


Handle = Callable[[Handling], Outcome]
AsyncHandle = Callable[[Handling], Awaitable[Outcome]]
Publish = Callable[[PublishCall], Sequence[str | None]]


def around_handling(factory: Factory) -> Factory:
    """Mark a middleware that runs around handlers, and return it.

    It is called once per process with `handle`, and returns a callable that takes a `Handling`, calls
    `handle(handling)` and returns the outcome: an `Ack`, a `Retry` with the delay until the next attempt, or a `Bury`.
    `handle` does not raise: the exception of the handler is in `handling.exception`. An exception of the middleware
    counts as one of the handler. The handler's timeout does not apply to the middleware. Transactions that are left
    open are rolled back after it, which turns an `Ack` into a `Retry`. The signal `handler_finished` has the outcome
    after that. A `Bury` of the last attempt that is returned as it is still counts for a breaker, which may let the
    message wait instead.

    For a handler with `batch` it runs around each call, also around those with halves of the messages. `handle` then
    returns one outcome for the call: an `Ack` if all messages are handled, else the first `Bury`, else the first
    `Retry`; a `Retry` with the delay 0 if the call has raised and is made again with halves. If the middleware returns
    another one, that is the outcome of all messages of the call.

    Args:
        factory: a function or a class that takes `handle`.
    """
    setattr(factory, AROUND, "handling")
    return factory


def around_publishing(factory: Factory) -> Factory:
    """Mark a middleware that runs around `publish()`, `publish_many()` and `enqueue()`, and return it.

    It is called once per process with `publish`, and returns a callable that takes a `PublishCall`, calls
    `publish(call)` and returns its result, the ids. Headers that it adds to `call.headers` are sent with the messages.
    An exception of the middleware is raised to the caller. If it does not call `publish(call)`, nothing is sent. Inside
    `atomic()` it runs at the call, and the messages are sent at the commit. For the steps of a workflow it runs once,
    where they are defined, with the first of them; its headers are sent with all of them. It does not run for messages
    of schedules, and for redriven ones.

    Args:
        factory: a function or a class that takes `publish`.
    """
    setattr(factory, AROUND, "publishing")
    return factory


def _run(call: Any) -> Any:
    return call.run(call)


async def _await_run(handling: Handling) -> Any:
    return await handling.run(handling)


@cache
def handling_chain(*, is_async: bool = False) -> Handle | AsyncHandle | None:
    """Return a function that runs a handler within all middleware, or None without middleware.

    Args:
        is_async: it runs a coroutine function, and is one.

    Raises:
        ConfigurationError: one cannot be imported, or cannot run around functions or coroutine functions.
    """
    found: Handle | AsyncHandle | None = _chain(_await_run if is_async else _run, "handling", is_async=is_async)
    return found


@cache
def publishing_chain() -> Publish | None:
    """Return a function that publishes within all middleware, or None without middleware.

    Raises:
        ConfigurationError: one cannot be imported, or is async.
    """
    found: Publish | None = _chain(_run, "publishing")
    return found


def _chain(innermost: Callable[[Any], Any], around: str, *, is_async: bool = False) -> Any:
    call = innermost
    for path, factory in reversed(list(_factories(around))):
        if not getattr(factory, "async_capable" if is_async else "sync_capable", not is_async):
            what = "coroutine functions" if is_async else "functions"
            raise ConfigurationError(
                f"Middleware {repr_of(path)} cannot run around {what}: write it for both, and decorate it with "
                "django.utils.decorators.sync_and_async_middleware"
            )
        try:
            made = factory(call)
        except MiddlewareNotUsed:
            continue
        if not callable(made):
            raise ConfigurationError(f"Middleware {repr_of(path)} must return a callable, not {repr_of(made, 200)}")
        call = made
    return None if call is innermost else call


def _factories(around: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for path in get_config().middleware:
        try:
            factory = import_string(path)
        except ImportError as error:
            raise ConfigurationError(f"Middleware {repr_of(path)} cannot be imported: {error}") from error
        if not hasattr(factory, AROUND):
            raise ConfigurationError(
                f"{repr_of(path)} is not a middleware: decorate it with around_handling or around_publishing of "
                "mq_django.middleware"
            )
        if getattr(factory, AROUND) == around:
            yield path, factory


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "MQ_DJANGO":
        handling_chain.cache_clear()
        publishing_chain.cache_clear()


setting_changed.connect(_forget, dispatch_uid="mq_django.middleware")


#: Is called with the outcome of an attempt.
Ended = Callable[[Outcome], object]


def around(handle: Any, within: Callable[[Handling], AbstractContextManager[Ended]]) -> Handle | AsyncHandle:
    """Return a middleware for functions or coroutine functions.

    `within` makes a context manager of a handling, for the time of the attempt. Its value is called with the outcome of
    what `handle` runs.
    """

    async def amiddleware(handling: Handling) -> Outcome:
        with within(handling) as ended:
            outcome: Outcome = await handle(handling)
            ended(outcome)
        return outcome

    def middleware(handling: Handling) -> Outcome:
        with within(handling) as ended:
            outcome: Outcome = handle(handling)
            ended(outcome)
        return outcome

    return amiddleware if iscoroutinefunction(handle) else middleware


def may_add_headers(call: PublishCall) -> bool:
    """Return whether headers can be added to the messages of a call.

    In RSMQ's format a text is sent as it is. With headers it would be JSON, which other programs do not expect.
    """
    config = get_config().queues.get(call.queue)
    text_name = None if config is None else config.text_name
    return text_name is None or not any(
        message.name == text_name and isinstance(message.data, str) for message in call.messages
    )
