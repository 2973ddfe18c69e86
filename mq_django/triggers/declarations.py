"""`@on_signal`, and how a trigger is made from its arguments."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from django.apps import apps
from django.dispatch import Signal

from mq_django.core import clock
from mq_django.core.exceptions import repr_of
from mq_django.core.publish_checks import check_priority, due, expiry, uniqueness
from mq_django.core.templates import Arguments, Template
from mq_django.core.times import Duration
from mq_django.errors import ConfigurationError, InvalidMessage
from mq_django.producers.queues import queues
from mq_django.triggers.links import Link, Receiver, Trigger, database
from mq_django.triggers.targets import Enqueues, Target, TaskTarget, calling, task_arguments

Task = TypeVar("Task")

#: Triggers of modules that were imported before all models were loaded.
_waiting: list[Trigger] = []


def on_signal(
    signal: Signal | Sequence[Signal],
    *,
    sender: Any = None,
    delay: Duration | None = None,
    unique: str | None = None,
    unique_for: Duration | str | None = None,
    on_conflict: str | None = None,
    expires: timedelta | None = None,
    priority: int | None = None,
    cancel_on: Sequence[Sequence[Any]] = (),
    when: Callable[..., Any] | None = None,
    args: Any = None,
    strict: bool = False,
) -> Callable[[Task], Task]:
    """Enqueue the decorated task when a signal is sent, after the commit of the database of the change.

    Signals with `raw=True` (fixtures) are ignored, and those of m2m_changed unless their action starts with `post_`.

        @on_signal(post_save, sender="shop.Cart", delay=3600, unique="cart:{instance.pk}")
        @task
        def remind(cart_id): ...

    Args:
        signal: a Django signal, or a list of them.
        sender: a model, "app.Model", an abstract model (for all its subclasses), any other sender, a list of these, or
            None for all senders.
        delay: a timedelta or seconds until the task is due.
        unique: a template of the unique key, such as "cart:{instance.pk}". It is filled from the signal's arguments and
            their attributes. Only one message with the same key is delayed at a time; see `on_conflict`.
        unique_for: as in publish(): only one message with the same key exists, even while it is ready or being
            handled. Further ones are dropped, or are an error with on_conflict="error".
        on_conflict: as in publish().
        expires, priority: as in publish(). The default of `priority` is the task's.
        cancel_on: pairs (signal, sender) or triples (signal, sender, template of the unique key). These signals cancel
            the waiting message.
        when: a function that takes any of the signal's arguments by name. If it returns false, nothing is enqueued.
        args: the task's arguments: such a function, or a list or dict that may contain templates. Default: the
            instance's pk, as text if it is not an integer.
        strict: errors are raised to the sender of the signal, instead of being logged.

    Returns:
        A decorator that returns the task as it is.

    Raises:
        ConfigurationError: an option is not valid.
    """

    def decorate(task: Task) -> Task:
        if not isinstance(task, Enqueues):
            raise ConfigurationError(f"@on_signal must be above @task of mq_django, not above {repr_of(task)}")
        uid = ":".join(map(_identity, (task.module_path, delay, unique, unique_for, on_conflict, when, args)))
        trigger = build(
            TaskTarget(task, task_arguments(args)),
            uid,
            signal=signal,
            sender=sender,
            delay=delay,
            unique=unique,
            unique_for=unique_for,
            on_conflict=on_conflict,
            expires=expires,
            priority=priority,
            cancel_on=cancel_on,
            when=when,
            strict=strict,
        )
        _add(trigger)
        return task

    return decorate


def _add(trigger: Trigger) -> None:
    # Senders by name, and subclasses of abstract models, can be found only when all models are loaded.
    if apps.models_ready:
        trigger.connect()
    else:
        _waiting.append(trigger)


def connect_waiting() -> None:
    """Connect the triggers of modules that were imported before all models were loaded."""
    while _waiting:
        _waiting.pop(0).connect()


def build(
    target: Target,
    uid: str,
    *,
    signal: Any,
    sender: Any = None,
    unique: str | None = None,
    cancel_on: Sequence[Any] = (),
    when: Callable[..., Any] | None = None,
    strict: bool = False,
    **publishing: Any,
) -> Trigger:
    """Return a trigger that enqueues `target`, not yet connected. See on_signal() for the options.

    Raises:
        ConfigurationError: an option is not valid.
    """
    options = {**_checked(unique, **publishing), "robust": not strict}
    key = None if unique is None else Template(unique)
    decide = None if when is None else calling(when)

    def enqueue(arguments: Arguments) -> None:
        if decide is None or decide(arguments):
            filled = None if key is None else key.fill(arguments)
            target.publish(arguments, {**options, "unique": filled, "using": database(arguments)})

    links = _links(signal, sender, Receiver(enqueue, f"of {target}", strict), uid)
    if not isinstance(cancel_on, list | tuple):
        raise ConfigurationError(f"cancel_on= takes a list of (signal, sender), not {repr_of(cancel_on)}")
    for number, entry in enumerate(cancel_on):
        links += _cancelling(entry, target, key, strict, f"{uid}:cancel:{number}")
    return Trigger(links)


def _cancelling(entry: Any, target: Target, key: Template | None, strict: bool, uid: str) -> list[Link]:
    if not isinstance(entry, list | tuple) or len(entry) not in (2, 3):
        raise ConfigurationError(
            f"cancel_on= takes (signal, sender) or (signal, sender, template), not {repr_of(entry)}"
        )
    signal, sender, *own = entry
    template = Template(own[0]) if own else key
    if template is None or key is None:
        raise ConfigurationError("cancel_on= needs unique=, the key by which a message is found")

    def cancel(arguments: Arguments) -> None:
        unique = template.fill(arguments)
        queues[target.queue].cancel(unique=unique, using=database(arguments), robust=not strict)

    return _links(signal, sender, Receiver(cancel, f"that cancels {target}", strict), uid)


def _links(signal: Any, sender: Any, receiver: Receiver, uid: str) -> list[Link]:
    return [Link(each, several(sender), receiver, f"mq_django:{uid}") for each in _signals(signal)]


def _checked(
    unique: str | None,
    *,
    delay: Duration | None = None,
    unique_for: Duration | str | None = None,
    on_conflict: str | None = None,
    expires: timedelta | None = None,
    priority: int | None = None,
) -> dict[str, Any]:
    """Return the given options of a publish, with the default of on_conflict for a trigger."""
    # Several signals for one key are normal, so by default a further one is not an error.
    chosen = "keep" if unique_for is not None and on_conflict is None else on_conflict
    try:
        due(delay, None)
        check_priority(priority or 0)
        if expires is not None:
            expiry(expires, clock.now_ms())
        _, conflict = uniqueness(unique, unique_for, chosen, waits=delay is not None)
    except InvalidMessage as error:
        raise ConfigurationError(str(error)) from error
    given = {"delay": delay, "unique_for": unique_for, "expires": expires, "priority": priority}
    given["on_conflict"] = None if unique is None else conflict
    return {name: value for name, value in given.items() if value is not None}


def _signals(value: Any) -> Sequence[Signal]:
    signals = several(value)
    for signal in signals:
        if not isinstance(signal, Signal):
            raise ConfigurationError(f"{repr_of(signal)} is not a signal")
    return signals


def several(value: Any) -> Sequence[Any]:
    """Return a list or tuple as it is, and any other value in a list."""
    return value if isinstance(value, list | tuple) else [value]


def _identity(value: Any) -> str:
    """Return an id that is the same when a module is imported again, and differs between two lambdas of it."""
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{value.__module__}.{value.__qualname__}:{code.co_firstlineno}"
    if isinstance(value, Mapping):
        return ",".join(f"{repr_of(key)}={_identity(item)}" for key, item in value.items())
    return repr_of(value, 10_000)
