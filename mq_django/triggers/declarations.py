"""`@on_signal`, and how a trigger is made from its arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable
from weakref import WeakSet

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.signals import setting_changed
from django.db import connections
from django.db.models import Model
from django.db.models.signals import m2m_changed
from django.dispatch import Signal
from django.utils.module_loading import import_string

from mq_django import registry
from mq_django.conf import Config, get_config, read
from mq_django.core import clock
from mq_django.core.clock import Duration
from mq_django.core.logs import get_logger
from mq_django.core.message_format import Priority
from mq_django.core.publish_checks import check_name, check_priority, due, expiry, postponable, uniqueness
from mq_django.core.templates import Arguments, Template, filler
from mq_django.core.texts import class_name, repr_of
from mq_django.errors import ConfigurationError, InvalidMessage, MQError
from mq_django.producers.queues import queues

# The targets of triggers: a task, or a message by its name.


@runtime_checkable
class Enqueues(Protocol):
    """A task made by `mq_django.task`."""

    #: Django's own tasks do not have this.
    publishing: Any
    queue_name: str
    module_path: str

    def using(self, **options: Any) -> "Enqueues":
        """Return a task with other options."""

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Publish a message that runs the task."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class TaskTarget:
    """A task, and what makes its arguments: the value of `args=`, and the function that was made of it."""

    task: Enqueues
    given: Any
    args: Callable[[Arguments], Any]

    @property
    def queue(self) -> str:
        """Return the name of the queue."""
        return self.task.queue_name

    def publish(self, arguments: Arguments, options: Mapping[str, Any]) -> None:
        """Enqueue the task with a signal's arguments and options of `Queue.publish`."""
        args = self.args(arguments)
        task = self.task.using(**options)
        if isinstance(args, Mapping):
            task.enqueue(**args)
        elif isinstance(args, list | tuple):
            task.enqueue(*args)
        else:
            raise InvalidMessage(f"args= must give a list, or a dict of keyword arguments, not {repr_of(args)}")

    def check(self) -> None:
        """Raise ConfigurationError if the function certainly does not take the arguments."""
        handler = registry.find(self.task.queue_name, self.task.module_path)
        # It is not known what a function will make.
        if handler is None or handler.accepts is None or callable(self.given):
            return
        args, names = ([], self.given) if isinstance(self.given, Mapping) else (self.given, {})
        try:
            handler.accepts(["pk"] if args is None else args, names)
        except TypeError as error:
            what = "the pk, which is the default of args=" if self.given is None else "args="
            raise ConfigurationError(f"task {self} does not take {what}: {error}") from error

    def __str__(self) -> str:
        return self.task.module_path


@dataclass(frozen=True, slots=True)
class MessageTarget:
    """The name of a message in a queue, and the function that makes its data."""

    queue: str
    name: str
    data: Callable[[Arguments], Any]

    def publish(self, arguments: Arguments, options: Mapping[str, Any]) -> None:
        """Publish the message with a signal's arguments and options of `Queue.publish`."""
        queues[self.queue].publish(self.name, self.data(arguments), **options)

    def __str__(self) -> str:
        return f"{self.queue}/{self.name}"


#: A task or message that a trigger enqueues.
Target = TaskTarget | MessageTarget


def mapping(value: Any) -> Callable[[Arguments], Any]:
    """Return a function that makes data from a signal's arguments. `value` is a function, or templates."""
    try:
        return calling(value) if callable(value) else filler(value)
    except RecursionError as error:
        raise ConfigurationError(f"{repr_of(value)} is nested too deep, or contains itself") from error


def calling(function: Callable[..., Any]) -> Callable[[Arguments], Any]:
    """Return a function that calls `function` with the arguments that it names, or with all if it has `**kwargs`.

    Raises:
        ConfigurationError: it cannot be called in this way.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{repr_of(function)} cannot be called with a signal's arguments: {error}") from error
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return lambda arguments: function(**arguments)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return lambda arguments: function(**{name: value for name, value in arguments.items() if name in named})


def task_arguments(args: Any) -> Callable[[Arguments], Any]:
    """Return the function that makes a task's arguments; see `on_signal`.

    Raises:
        ConfigurationError: `args` is neither a function, nor a list or dict of templates.
    """
    if args is None:
        return lambda arguments: [primary_key(arguments)]
    if not callable(args) and not isinstance(args, list | tuple | Mapping):
        raise ConfigurationError(f"args= is a function, a list or a dict, not {repr_of(args)}")
    return mapping(args)


def primary_key(arguments: Arguments) -> int | str:
    """Return the pk of a signal's instance, as text if it is not an integer.

    Raises:
        InvalidMessage: the signal has no instance, or the instance has no pk yet.
    """
    pk = getattr(arguments.get("instance"), "pk", None)
    if pk is None:
        raise InvalidMessage("The signal has no instance with a pk: give args= or data=")
    return pk if isinstance(pk, int) else str(pk)


# Connect the receivers of triggers to signals.

logger = get_logger("mq_django.triggers")


@dataclass(frozen=True, slots=True)
class Receiver:
    """Runs the action of a trigger when a signal is sent."""

    act: Callable[[Arguments], None]
    #: The name in logs.
    name: str
    #: Errors are raised to the sender of the signal, instead of being logged.
    strict: bool

    def __call__(self, *, sender: Any, signal: Signal, **given: Any) -> None:
        """Run the action, except for fixtures, and for m2m_changed only after the change."""
        if given.get("raw") or (signal is m2m_changed and not str(given.get("action")).startswith("post_")):
            return
        try:
            self.act({**given, "sender": sender, "signal": signal})
        except Exception:
            if self.strict:
                raise
            logger.exception("Trigger %s failed; the change to %s is not affected", self.name, _shown(sender))


def _shown(sender: Any) -> str:
    return str(getattr(sender, "__qualname__", class_name(type(sender))))


class Link(NamedTuple):
    """A signal, its senders, and the receiver."""

    signal: Signal
    senders: Sequence[Any]
    receiver: Receiver
    #: The dispatch_uid: the link is connected only once, even if its module is imported again.
    uid: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """The links of one trigger: those that enqueue, and those that cancel."""

    links: Sequence[Link]
    target: Target

    def connect(self) -> None:
        """Connect all links or none.

        Raises:
            ConfigurationError: a sender is not a model of an installed app.
        """
        for link, sender in self.resolve():
            link.signal.connect(link.receiver, sender=sender, weak=False, dispatch_uid=link.uid)

    def disconnect(self) -> None:
        """Undo connect()."""
        for link, sender in self.resolve():
            link.signal.disconnect(sender=sender, dispatch_uid=link.uid)

    def resolve(self) -> list[tuple[Link, Any]]:
        """Return each link once for each of its senders.

        Raises:
            ConfigurationError: a sender is not a model of an installed app.
        """
        return [(link, sender) for link in self.links for given in link.senders for sender in expand(given)]


def expand(sender: Any) -> list[Any]:
    """Return all senders of signals for `sender`.

    For a model, these are itself and its proxies, because a proxy saves to the model's table. For an abstract model,
    these are its subclasses. Any other sender is returned as it is. None means any sender.

    Raises:
        ConfigurationError: a text that does not name a model of an installed app.
    """
    model = _find_model(sender) if isinstance(sender, str) else sender
    if not (isinstance(model, type) and issubclass(model, Model)):
        return [model]
    subclasses = [other for other in apps.get_models(include_auto_created=True) if issubclass(other, model)]
    if model._meta.abstract:  # noqa: SLF001 - public in all but its name
        return subclasses
    return [model, *(other for other in subclasses if other is not model and other._meta.proxy)]  # noqa: SLF001


def _find_model(name: str) -> Any:
    """Return the model with this "app.Model" or dotted path."""
    try:
        return apps.get_model(name) if name.count(".") == 1 else import_string(name)
    except (LookupError, ValueError, ImportError) as error:
        raise ConfigurationError(f"{repr_of(name)} is not a model, such as shop.Cart: {error}") from error


def database(arguments: Arguments) -> str | None:
    """Return the alias of the database of a signal's change, or None."""
    using = arguments.get("using")
    if using is None:
        using = getattr(getattr(arguments.get("instance"), "_state", None), "db", None)
    return using if using in connections.settings else None


Task = TypeVar("Task")

#: Triggers of modules that were imported before all models were loaded.
_waiting: list[Trigger] = []

#: The tasks of triggers in code, for `manage.py check`. Weak, because a signal holds the receivers of its triggers.
_in_code: WeakSet[TaskTarget] = WeakSet()


def on_signal(
    signal: Signal | Sequence[Signal],
    *,
    sender: Any = None,
    delay: Duration | None = None,
    unique: str | None = None,
    unique_for: Duration | str | None = None,
    on_conflict: str | None = None,
    at_most: Duration | None = None,
    expires: timedelta | None = None,
    priority: Priority | None = None,
    cancel_on: Sequence[Sequence[Any]] = (),
    when: Callable[..., Any] | None = None,
    args: Any = None,
    strict: bool = False,
) -> Callable[[Task], Task]:
    """Enqueue the decorated task when a signal is sent, after the commit of the database of the change.

    Signals with `raw=True` (fixtures) are ignored, and m2m_changed unless its action starts with `post_`.

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
        on_conflict, at_most: as in publish().
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
        uid = ":".join(map(_identity, (task.module_path, delay, unique, unique_for, on_conflict, at_most, when, args)))
        target = TaskTarget(task, args, task_arguments(args))
        trigger = build(
            target,
            uid,
            signal=signal,
            sender=sender,
            delay=delay,
            unique=unique,
            unique_for=unique_for,
            on_conflict=on_conflict,
            at_most=at_most,
            expires=expires,
            priority=priority,
            cancel_on=cancel_on,
            when=when,
            strict=strict,
        )
        _add(trigger)
        _in_code.add(target)
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
    return Trigger(links, target)


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
    at_most: Duration | None = None,
    expires: timedelta | None = None,
    priority: Priority | None = None,
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
        if at_most is not None:
            postponable(at_most, delay, unique, unique_for, conflict)
    except InvalidMessage as error:
        raise ConfigurationError(str(error)) from error
    given = {"delay": delay, "unique_for": unique_for, "at_most": at_most, "expires": expires, "priority": priority}
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


# The triggers in `MQ_DJANGO["SIGNALS"]`.

#: The keys of an entry that are arguments of `@on_signal`, and all keys.
DECLARED = signature(on_signal).parameters.keys() - {"args"}
KEYS = DECLARED | {"task", "args", "queue", "name", "data"}

_connected: list[Trigger] = []


def connect_all() -> None:
    """Connect the triggers that waited for the models, and those in the settings."""
    connect_waiting()
    _connect_configured()


def _connect_configured() -> None:
    try:
        config = get_config()
    except ConfigurationError:
        return  # reported by `manage.py check`, which an error here would prevent from running
    for number, entry in enumerate(config.signals):
        try:
            trigger = read_entry(config, number, entry)
            trigger.connect()
        except MQError as error:
            logger.error('MQ_DJANGO["SIGNALS"][%d] is not connected: %s', number, error)  # noqa: TRY400
        else:
            _connected.append(trigger)


def _reconnect(*, setting: str, **_: Any) -> None:
    if setting == "MQ_DJANGO" and apps.ready:
        while _connected:
            _connected.pop().disconnect()
        _connect_configured()


setting_changed.connect(_reconnect, dispatch_uid="mq_django.triggers")


def check_triggers(**_: Any) -> list[CheckMessage]:
    """Report each invalid entry of the setting, and tasks that do not take the arguments of their triggers."""
    config, _problems = read(getattr(settings, "MQ_DJANGO", {}))
    found: list[CheckMessage] = []
    for number, entry in enumerate(config.signals):
        try:
            trigger = read_entry(config, number, entry)
            trigger.resolve()
            if isinstance(trigger.target, TaskTarget):
                trigger.target.check()
        except MQError as error:
            message = f'MQ_DJANGO["SIGNALS"][{number}] is not valid: {error}.'
            found.append(Error(message, hint=f'Change MQ_DJANGO["SIGNALS"][{number}].', id="mq_django.E005"))
    for target in sorted(_in_code, key=str):
        try:
            target.check()
        except ConfigurationError as error:
            hint = "Change args= of @on_signal, or the parameters of the function."
            found.append(Error(f"@on_signal is not valid: {error}.", hint=hint, id="mq_django.E005"))
    return found


def read_entry(config: Config, number: int, entry: Mapping[str, Any]) -> Trigger:
    """Return the trigger of an entry.

    Raises:
        ConfigurationError, InvalidMessage, UnknownQueue: the entry is not valid.
    """
    unknown = [key for key in entry if key not in KEYS]
    if unknown:
        raise ConfigurationError(f"{repr_of(unknown[0])} is not one of {', '.join(sorted(KEYS))}")
    if "signal" not in entry:
        raise ConfigurationError('it has no "signal"')
    target = _target(entry)
    config.queue(target.queue)
    declared = {
        **{name: entry[name] for name in DECLARED & entry.keys()},
        "signal": [_loaded(each) for each in several(entry["signal"])],
        "when": _loaded(entry.get("when")),
        "cancel_on": _cancellations(entry.get("cancel_on", ())),
    }
    return build(target, f"SIGNALS[{number}]", **declared)


def _target(entry: Mapping[str, Any]) -> Target:
    if "task" in entry and not {"queue", "name", "data"} & entry.keys():
        task = _loaded(entry["task"])
        if not isinstance(task, Enqueues):
            raise ConfigurationError(f"{repr_of(entry['task'])} is not a task of mq_django")
        args = _loaded(entry.get("args"))
        return TaskTarget(task, args, task_arguments(args))
    if "queue" in entry and "name" in entry and not {"task", "args"} & entry.keys():
        return MessageTarget(entry["queue"], check_name(entry["name"]), _data(entry.get("data")))
    raise ConfigurationError('it needs "task" (and "args"), or "queue" and "name" (and "data")')


def _data(data: Any) -> Callable[[Arguments], Any]:
    if data is None:
        return primary_key
    return mapping(data if isinstance(data, str) and "{" in data else _loaded(data))


def _cancellations(entries: Any) -> Any:
    """Return `cancel_on` with its signals loaded. build() checks its form."""
    if not isinstance(entries, list | tuple):
        return entries
    return [[_loaded(each[0]), *each[1:]] if isinstance(each, list | tuple) and each else each for each in entries]


def _loaded(value: Any) -> Any:
    """Return the object at a dotted path. Any other value is returned as it is."""
    if not isinstance(value, str):
        return value
    try:
        return import_string(value)
    except ImportError as error:
        raise ConfigurationError(f"{repr_of(value)} cannot be imported: {error}") from error
