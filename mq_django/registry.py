"""The functions that handle messages, by queue and name."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from mq_django.core.keys import GROUP_SEPARATOR, NAME
from mq_django.core.messages import Message
from mq_django.core.offsets import BEGINNING, Place, before
from mq_django.core.outcomes import Outcome
from mq_django.core.publish_checks import check_name
from mq_django.core.retries import RetryPolicy
from mq_django.core.schedules import Scheduled
from mq_django.errors import ConfigurationError

Function = TypeVar("Function", bound=Callable[..., Any])

#: Modules of every installed app that are imported at the start, because they register something.
MODULES = ("tasks", "handlers", "triggers")


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
    #: Called when an attempt has ended, with the message, the outcome, the seconds that it took, and what the function
    #: raised. Raises nothing.
    ended: Callable[[Message, Outcome, float, BaseException | None], None] | None = None
    #: The same on an event loop.
    aended: Callable[[Message, Outcome, float, BaseException | None], Awaitable[None]] | None = None


#: The name under which a group handles messages of any name. No message is called so.
ANY = ""

_handlers: dict[tuple[str | None, str], Handler] = {}
#: What kinds() has found; a new handler makes it void.
_kinds: dict[str, frozenset[bool]] = {}
_schedules: dict[str, Scheduled] = {}
#: Where the groups of topics begin, by `topic:group`.
_starts: dict[str, Place] = {}


def _pass_over(_: Message) -> None:
    """Handle a message that no subscriber of a group asked for."""


_PASSED_OVER = Handler(name=ANY, queue=None, call=_pass_over)


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
    _kinds.clear()


def schedule(entry: Scheduled) -> None:
    """Add a schedule.

    Raises:
        ConfigurationError: there is another one of that name.
    """
    known = _schedules.get(entry.name)
    if known is not None and known.where != entry.where:
        raise ConfigurationError(f"Two schedules are called {entry.name!r}: {known.where} and {entry.where}")
    _schedules[entry.name] = entry


def schedules() -> Mapping[str, Scheduled]:
    """Return the schedules in code, by name."""
    return MappingProxyType(_schedules)


def find(queue: str, name: str) -> Handler | None:
    """Return the handler of a message, or None."""
    own = _handlers.get((queue, name)) or _handlers.get((queue, ANY))
    if own is not None:
        return own
    if GROUP_SEPARATOR in queue:
        return _PASSED_OVER if queue in _starts else None
    return _handlers.get((None, name))


def names(queue: str) -> Iterator[str]:
    """Yield the names that are handled in a queue."""
    for handled_in, name in list(_handlers):
        if handled_in is None or handled_in == queue:
            yield name


def kinds(queue: str) -> frozenset[bool]:
    """Return what the handlers of a queue are: {False} functions, {True} coroutine functions, or both."""
    if queue not in _kinds:
        handlers = [find(queue, name) for name in names(queue)]
        _kinds[queue] = frozenset(found.is_async for found in handlers if found is not None)
    return _kinds[queue]


def handler(
    queue: str,
    name: str,
    *,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
) -> Callable[[Function], Function]:
    """Register a function as the handler of a queue's messages named `name`.

    The function takes the `Message`. A message is handled when the function returns, and retried when it raises. To
    decide otherwise it returns `mq_django.Retry(delay=...)` or `mq_django.Bury(...)`.

        @handler("emails", "welcome", timeout=30)
        def send_welcome(message):
            send_mail(..., recipient_list=[message.data["email"]])

    Args:
        queue: one of MQ_DJANGO["QUEUES"].
        name: 1 to 255 printable characters.
        retry: when a failed attempt is followed by another; None: as the queue's RETRY says.
        timeout: seconds or a timedelta; None: the queue's TIMEOUT.

    Returns:
        A decorator that returns the function as it is. A coroutine function runs on an event loop.

    Raises:
        InvalidMessage: no message can have this name.
        ConfigurationError: `retry` is not a RetryPolicy; when it decorates a function, also: the timeout is not above
            zero, or the queue has another handler of this name.
    """
    check_name(name)

    return _registers(queue, name, retry, timeout)


def subscriber(
    topic: str,
    *,
    group: str,
    name: str | None = None,
    start: Place = BEGINNING,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
) -> Callable[[Function], Function]:
    """Register a function as the handler of a topic's messages for one group.

        @subscriber("orders", group="billing", name="order.paid")
        def bill(message):
            Invoice.objects.create(order_id=message.data["order_id"])

    Args:
        topic: one of MQ_DJANGO["TOPICS"].
        group: 1 to 160 letters, digits, _ and -.
        name: only messages of this name. None: of every name that has no subscriber of its own in the group. If all
            subscribers of a group have a name, the group skips all other messages.
        start: where a new group begins: "beginning", "end", a datetime, or the id of an entry such as
            "1700000000000-0".
        retry: as for handler(); None: as the topic's RETRY says.
        timeout: seconds or a timedelta; None: the topic's TIMEOUT.

    Returns:
        A decorator that returns the function as it is. A coroutine function runs on an event loop.

    Raises:
        InvalidMessage: no message can have this name.
        InvalidOffset: `start` is not a place in a log.
        ConfigurationError: the topic or the group cannot have this name, another subscriber of the group has another
            `start`, `retry` is not a RetryPolicy, or the timeout is not above zero; when it decorates a function, also:
            the group has another subscriber of this name.
    """
    check_retry(retry)
    seconds(timeout)
    queue = f"{topic}{GROUP_SEPARATOR}{group}"
    for called in (topic, group):
        if not NAME.fullmatch(str(called)):
            raise ConfigurationError(f"Topics and groups are called by letters, digits, _ and -, not {called!r:.200}")
    before(start)
    if name is not None:
        check_name(name)
    if _starts.setdefault(queue, start) != start:
        raise ConfigurationError(f"Group {group!r} of topic {topic!r} starts at {_starts[queue]!r} and at {start!r}")

    return _registers(queue, ANY if name is None else name, retry, timeout)


def _registers(
    queue: str, name: str, retry: RetryPolicy | None, timeout: timedelta | float | None
) -> Callable[[Function], Function]:
    check_retry(retry)

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


def start_of(queue: str) -> Place:
    """Return where a group begins when it is new, by `topic:group`."""
    return _starts.get(queue, BEGINNING)


def groups(topic: str | None = None) -> list[str]:
    """Return the groups that have a subscriber, of all topics or of one, as `topic:group`."""
    return sorted(name for name in _starts if topic is None or name.partition(GROUP_SEPARATOR)[0] == topic)


def check_retry(value: object) -> None:
    """Check what was given as a handler's or a task's `retry=`.

    Raises:
        ConfigurationError: it is not a RetryPolicy.
    """
    if value is not None and not isinstance(value, RetryPolicy):
        raise ConfigurationError(
            f"retry= must be a RetryPolicy, such as RetryPolicy(max_attempts=3), not {value!r:.200}"
        )


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
