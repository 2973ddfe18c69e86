"""The registered handlers by queue and name, and the schedules."""

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from types import FrameType, MappingProxyType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import iscoroutinefunction

from mq_django.core import handler_options
from mq_django.core.breakers import Breaker, check_breaker
from mq_django.core.clock import Duration
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.logs import get_logger
from mq_django.core.messages import Message, Outcome
from mq_django.core.offsets import BEGINNING, Offset, before
from mq_django.core.partitions import public_name
from mq_django.core.publish_checks import check_name
from mq_django.core.retries import RetryPolicy
from mq_django.core.schedules import Scheduled
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError, MQError

logger = get_logger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])

#: Modules of installed apps that are imported at the start, because they register handlers, tasks or triggers.
MODULES = ("tasks", "handlers", "triggers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function that handles the messages of one name."""

    name: str
    #: None: all queues. Tasks have None, because `using(queue_name=...)` changes their queue.
    queue: str | None
    #: Takes the message, or with `batch` a list of messages, and returns an outcome, a task's result, or None; with
    #: `batch` also a list of outcomes. A coroutine function if `is_async`.
    call: Callable[[Any], Any]
    #: None: the queue's policy.
    retry: RetryPolicy | None = None
    #: None: the queue's timeout.
    timeout: timedelta | None = None
    is_async: bool = False
    #: The return value of `call` is a task's result, which is kept for the queue's RESULT_TTL.
    keeps_result: bool = False
    #: The path of the function, for logs and errors.
    where: str = ""
    #: The function of a task; None: `call`.
    function: Callable[..., Any] | None = None
    #: Called when an attempt has ended, with the message, the outcome, its duration in seconds, and the function's
    #: exception. It must not raise.
    ended: Callable[[Message, Outcome, float, BaseException | None], None] | None = None
    #: The same for an event loop.
    aended: Callable[[Message, Outcome, float, BaseException | None], Awaitable[None]] | None = None
    #: Of a task: raises TypeError if its function cannot be called with these arguments.
    accepts: Callable[[Sequence[Any], Mapping[str, Any]], None] | None = None
    #: Of a task: raises the error of `enqueue()` if the settings do not have the queue that its declaration names.
    check_settings: Callable[[], None] | None = None
    #: The most messages of a call; 0: a call gets one message, and no list.
    batch: int = 0
    #: How many seconds the first message of a call waits for further ones.
    linger: float = 0.0
    #: The database in which its effects happen exactly once for each message; None: in none.
    once: str | None = None
    #: None: that of the queue.
    breaker: Breaker | None = None

    @property
    def on_loop(self) -> bool:
        """Return whether it runs on the event loop, which coroutines share. A transaction of its own needs a thread."""
        return self.is_async and self.once is None


#: The name of a subscriber of all names. No message has it.
ANY = ""

_options_of = attrgetter("retry", "timeout", "batch", "linger", "once", "breaker")

_handlers: dict[tuple[str | None, str], Handler] = {}
#: Which execution of its module has registered a handler: the module's spec, which each execution makes anew.
_executions: dict[tuple[str | None, str], object] = {}
#: The last handler of each name that is not a task.
_of_queues: dict[str, Handler] = {}
#: The caches of kinds() and batches(). A new handler clears them.
_kinds: dict[str, frozenset[bool]] = {}
_batches: dict[str, Mapping[bool, int]] = {}
_schedules: dict[str, Scheduled] = {}
#: `topic:group` -> where a new group starts.
_starts: dict[str, Offset] = {}


#: What is made of tasks -> its name, and what raises the error of its use if the settings do not fit. Weak, because a
#: workflow can also be made where it is started.
_composed: WeakKeyDictionary[Any, tuple[str, Callable[[Any], None]]] = WeakKeyDictionary()


def _skip(_: Message) -> None:
    """Handle a message for which its group has no subscriber."""


_SKIPPED = Handler(name=ANY, queue=None, call=_skip)


def register(entry: Handler) -> None:
    """Add a handler; raise ConfigurationError if it would take the messages of another one of its name."""
    other = _handlers.get((None, entry.name)) if entry.queue is not None else _of_queues.get(entry.name)
    for known in (_handlers.get((entry.queue, entry.name)), other):
        if known is not None and _is_there(known) and not _is_same(known, entry):
            raise ConfigurationError(f"{entry.name!r} has two handlers: {_described(known)} and {_described(entry)}")
    _handlers[entry.queue, entry.name] = entry
    _executions[entry.queue, entry.name] = _execution_of(entry)
    if entry.queue is not None:
        _of_queues[entry.name] = entry
    _kinds.clear()
    _batches.clear()


def _is_same(known: Handler, entry: Handler) -> bool:
    """Return whether a function is registered again."""
    if (known.queue, known.where) != (entry.queue, entry.where) or _code_of(known) != _code_of(entry):
        return False
    if not _is_at_module_level():
        # As in a test that runs for several parameters.
        return True
    # Functions of one factory have the same code. A task is registered again with each use of other options.
    is_other = _function_of(known) != _function_of(entry)
    return not is_other and (entry.queue is None or _options_of(known) == _options_of(entry))


def _is_at_module_level() -> bool:
    """Return whether a module registers while it is imported, itself or by a factory, and not a function later on."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("mq_django."):
        frame = frame.f_back
    if frame is not None and frame.f_code.co_name == "<module>":
        return True
    while frame is not None and not _is_being_imported(frame):
        frame = frame.f_back
    return frame is not None


def _is_being_imported(frame: FrameType) -> bool:
    spec = frame.f_globals.get("__spec__")
    return frame.f_code.co_name == "<module>" and getattr(spec, "_initializing", False)


def _is_there(known: Handler) -> bool:
    """Return whether the module that has registered a handler was not executed again since, by autoreload or tests."""
    key, execution = (known.queue, known.name), _execution_of(known)
    return _handlers.get(key) is known and execution is not None and execution is _executions.get(key)


def _function_of(entry: Handler) -> Any:
    return inspect.unwrap(entry.function or entry.call)


def _code_of(entry: Handler) -> Any:
    return getattr(_function_of(entry), "__code__", None)


def _execution_of(entry: Handler) -> object:
    """Return the present execution of the module of a handler; None if it is gone, or is a shell."""
    names = getattr(_function_of(entry), "__globals__", {})
    module = sys.modules.get(names.get("__name__", ""))
    return names.get("__spec__") if module is not None and vars(module) is names else None


def _described(entry: Handler) -> str:
    origin = "a task" if entry.queue is None else f"of queue {entry.queue!r}"
    return f"{entry.where} (line {getattr(_code_of(entry), 'co_firstlineno', '?')}, {origin})"


def schedule(entry: Scheduled) -> None:
    """Add a schedule; raise ConfigurationError if another one has its name."""
    known = _schedules.get(entry.name)
    if known is not None and known.where != entry.where:
        raise ConfigurationError(f"Two schedules have the name {entry.name!r}: {known.where} and {entry.where}")
    _schedules[entry.name] = entry


def note_composed(made: object, name: str, check: Callable[[Any], None]) -> None:
    """Let `manage.py check` look at what is made of tasks. Whatever is declared does not read the settings itself."""
    _composed[made] = (name, check)


def declared() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what can be used only with settings that fit: its path or name, and what raises an error if they do not."""
    for each in handlers():
        if each.check_settings is not None:
            yield each.where, each.check_settings
    for made, (name, check) in list(_composed.items()):
        yield name, partial(check, made)


def schedules() -> Mapping[str, Scheduled]:
    """Return the schedules that are defined in code, by name."""
    return MappingProxyType(_schedules)


def find(queue: str, name: str) -> Handler | None:
    """Return the handler of a message, or None."""
    queue = public_name(queue)
    own = _handlers.get((queue, name)) or _handlers.get((queue, ANY))
    if own is not None:
        return own
    if GROUP_SEPARATOR in queue:
        return _SKIPPED if queue in _starts else None
    return _handlers.get((None, name))


def of_call(handler: Handler, message: Message) -> Handler:
    """Return a task's handler with the timeout and the retry policy that its message has for this call, if any."""
    headers = message.headers
    if handler.accepts is None or not (
        handler_options.TIMEOUT_HEADER in headers or handler_options.RETRY_HEADER in headers
    ):
        return handler
    try:
        return replace(handler, **handler_options.options_in(headers))
    except (MQError, TypeError, ValueError) as error:
        logger.warning("Ignored the options of message %s of queue %s: %s", message.id, message.queue, error)
        return handler


def handlers() -> list[Handler]:
    """Return all handlers."""
    return list(_handlers.values())


def names(queue: str) -> Iterator[str]:
    """Yield the names that have a handler in a queue."""
    queue = public_name(queue)
    for handled_in, name in list(_handlers):
        if handled_in is None or handled_in == queue:
            yield name


def own_names(queue: str) -> list[str]:
    """Return the names that have a handler in this queue only. Tasks can run in every queue."""
    return [name for handled_in, name in _handlers if handled_in == public_name(queue)]


def kinds(queue: str) -> frozenset[bool]:
    """Return where the handlers of a queue run: False for those in threads, True for those on the event loop."""
    if queue not in _kinds:
        handlers = [find(queue, name) for name in names(queue)]
        _kinds[queue] = frozenset(found.on_loop for found in handlers if found is not None)
    return _kinds[queue]


def batches(queue: str) -> Mapping[bool, int]:
    """Return the batch size of a queue's handlers, by their kind as in kinds(); empty without such handlers."""
    if queue not in _batches:
        own = [entry for entry in list(_handlers.values()) if entry.batch and entry.queue == public_name(queue)]
        _batches[queue] = {entry.is_async: entry.batch for entry in sorted(own, key=lambda entry: entry.batch)}
    return _batches[queue]


def largest_batch() -> int:
    """Return the largest batch size of all handlers; 0 if none gets batches."""
    return max([entry.batch for entry in list(_handlers.values())], default=0)


def lingers() -> bool:
    """Return whether a handler lets messages wait for others of their batch."""
    return any(entry.linger for entry in list(_handlers.values()))


def handler(
    queue: str,
    name: str,
    *,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    batch: int | None = None,
    linger: Duration | None = None,
    breaker: Breaker | None = None,
) -> Callable[[Function], Function]:
    """Register a function as the handler of a queue's messages named `name`.

    The function takes the `Message`. A message is handled when the function returns, and retried when it raises. The
    function may also return `mq_django.Retry(delay=...)` or `mq_django.Bury(...)`.

        @handler("emails", "welcome", timeout=30)
        def send_welcome(message):
            send_mail(..., recipient_list=[message.data["email"]])

    With `batch` it takes a list of messages, and may return a list with an outcome, or None, for each:

        @handler("events", "click", batch=500, linger=0.5)
        def store_clicks(messages):
            Click.objects.bulk_create([Click(**message.data) for message in messages])

    Args:
        queue: one of MQ_DJANGO["QUEUES"].
        name: 1 to 255 printable characters.
        retry: the policy for failed attempts; None: the queue's RETRY.
        timeout: seconds or a timedelta, for each call; None: the queue's TIMEOUT.
        batch: maximum messages of a call, from 1 to 10,000; None: a call gets one message, and no list.
        linger: for how long the first message of a call waits for further ones, as seconds or a timedelta of up to 60
            s; None: a call gets what is there.
        breaker: lets its messages wait while what they need is down; None: the queue's BREAKER.

    Returns:
        A decorator that returns the function as it is. A coroutine function runs on an event loop.

    Raises:
        InvalidMessage: no message can have this name.
        ConfigurationError: no queue can have this name, `retry` is not a RetryPolicy or `breaker` no Breaker, the
            timeout is not above zero, or `batch` or `linger` is out of range, or `linger` is given without `batch`;
            when it decorates, also: this is no function, the queue has another handler of this name, or a task has it.
    """
    check_name(name)
    return _registers(queue, name, retry, timeout, handler_options.check_batch(batch, linger), breaker)


def subscriber(
    topic: str,
    *,
    group: str,
    name: str | None = None,
    start: Offset = BEGINNING,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    batch: int | None = None,
    linger: Duration | None = None,
    breaker: Breaker | None = None,
) -> Callable[[Function], Function]:
    """Register a function as the handler of a topic's messages for one group.

        @subscriber("orders", group="billing", name="order.paid")
        def bill(message):
            Invoice.objects.create(order_id=message.data["order_id"])

    Args:
        topic: one of MQ_DJANGO["TOPICS"].
        group: 1 to 160 letters, digits, _ and -.
        name: only messages of this name. None: messages of all names without another subscriber in the group. If all
            subscribers of a group have a name, the group skips all other messages.
        start: the position at which a new group begins: "beginning", "end", a datetime, or the id of an entry such as
            "1700000000000-0".
        retry: the policy for failed attempts; None: the topic's RETRY.
        timeout: seconds or a timedelta, for each call; None: the topic's TIMEOUT.
        batch: maximum messages of a call, from 1 to 10,000; None: a call gets one message, and no list.
        linger: for how long the first message of a call waits for further ones, as seconds or a timedelta of up to 60
            s; None: a call gets what is there.
        breaker: lets its messages wait while what they need is down; None: the topic's BREAKER.

    Returns:
        A decorator that returns the function as it is. A coroutine function runs on an event loop.

    Raises:
        InvalidMessage: no message can have this name.
        InvalidOffset: `start` is not a position in a log.
        ConfigurationError: the topic or the group cannot have this name, `retry` is not a RetryPolicy or `breaker` no
            Breaker, the timeout is not above zero, or `batch` or `linger` is out of range, or `linger` is given without
            `batch`; when it decorates, also: this is no function, or the group has another subscriber of this name, or
            one with another `start`.
    """
    handler_options.check_names(topic, group)
    queue = f"{topic}{GROUP_SEPARATOR}{group}"
    before(start)
    if name is not None:
        check_name(name)
    size = handler_options.check_batch(batch, linger)
    registers = _registers(queue, ANY if name is None else name, retry, timeout, size, breaker)

    def decorate(function: Function) -> Function:
        if _starts.get(queue, start) != start:
            raise ConfigurationError(
                f"Group {group!r} of topic {topic!r} starts at {_starts[queue]!r} and at {repr_of(start)}"
            )
        registers(function)
        # Last, so that a group whose only subscriber was refused is not read.
        _starts[queue] = start
        return function

    return decorate


def _registers(
    queue: str,
    name: str,
    retry: RetryPolicy | None,
    timeout: Duration | None,
    batch: tuple[int, float],
    breaker: Breaker | None,
) -> Callable[[Function], Function]:
    given: object = queue
    # It may be a group, named `topic:group`.
    handler_options.check_names(*(given.split(GROUP_SEPARATOR, 1) if isinstance(given, str) else [given]))
    handler_options.check_retry(retry)
    check_breaker(breaker)
    parsed = handler_options.parse_timeout(timeout)

    def decorate(function: Function) -> Function:
        handler_options.check_function(function)
        register(
            Handler(
                name=name,
                queue=queue,
                call=function,
                retry=retry,
                timeout=parsed,
                is_async=iscoroutinefunction(function),
                where=f"{function.__module__}.{function.__qualname__}",
                batch=batch[0],
                linger=batch[1],
                once=handler_options.database_of(function),
                breaker=breaker,
            )
        )
        handler_options.note_registered(function)
        return function

    return decorate


def start_of(queue: str) -> Offset:
    """Return where a new group, named `topic:group`, starts."""
    return _starts.get(queue, BEGINNING)


def queues_with_handlers() -> list[str]:
    """Return the queues that a handler names. Tasks name none."""
    return sorted({queue for queue, _ in _handlers if queue is not None and GROUP_SEPARATOR not in queue})


def groups(topic: str | None = None) -> list[str]:
    """Return the groups with a subscriber, of all topics or of one, as `topic:group`."""
    return sorted(name for name in _starts if topic is None or name.partition(GROUP_SEPARATOR)[0] == topic)
