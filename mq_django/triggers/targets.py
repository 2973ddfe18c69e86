"""The targets of triggers: a task, or a message by its name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mq_django.core.exceptions import repr_of
from mq_django.core.templates import Arguments, filler
from mq_django.errors import ConfigurationError, InvalidMessage
from mq_django.producers.queues import queues


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


class Target(Protocol):
    """A task or message that a trigger enqueues."""

    @property
    def queue(self) -> str:
        """Return the name of the queue."""

    def publish(self, arguments: Arguments, options: Mapping[str, Any]) -> None:
        """Publish a message with a signal's arguments and options of `Queue.publish`."""


@dataclass(frozen=True, slots=True)
class TaskTarget:
    """A task, and the function that makes its arguments."""

    task: Enqueues
    args: Callable[[Arguments], Any]

    @property
    def queue(self) -> str:
        """See Target.queue."""
        return self.task.queue_name

    def publish(self, arguments: Arguments, options: Mapping[str, Any]) -> None:
        """See Target.publish()."""
        args = self.args(arguments)
        task = self.task.using(**options)
        if isinstance(args, Mapping):
            task.enqueue(**args)
        elif isinstance(args, list | tuple):
            task.enqueue(*args)
        else:
            raise InvalidMessage(f"args= must give a list, or a dict of keyword arguments, not {repr_of(args)}")

    def __str__(self) -> str:
        return self.task.module_path


@dataclass(frozen=True, slots=True)
class MessageTarget:
    """The name of a message in a queue, and the function that makes its data."""

    queue: str
    name: str
    data: Callable[[Arguments], Any]

    def publish(self, arguments: Arguments, options: Mapping[str, Any]) -> None:
        """See Target.publish()."""
        data = self.data(arguments)
        queues[self.queue].publish(self.name, data, **options)

    def __str__(self) -> str:
        return f"{self.queue}/{self.name}"


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
