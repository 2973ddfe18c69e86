"""What a trigger enqueues: a task, or a message by its name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mq_django.core.templates import Arguments, filler
from mq_django.errors import ConfigurationError, InvalidMessage
from mq_django.producers.queues import queues


@runtime_checkable
class Enqueues(Protocol):
    """A task as `mq_django.task` makes them."""

    #: Which Django's own tasks do not have.
    publishing: Any
    queue_name: str
    module_path: str

    def using(self, **options: Any) -> "Enqueues":
        """Return a task with other options."""

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Publish a message that runs the task."""


class Target(Protocol):
    """What a trigger enqueues."""

    @property
    def queue(self) -> str:
        """Return the name of its queue."""

    def publish(self, arguments: Arguments, options: Mapping[str, Any]) -> None:
        """Publish a message about a signal's arguments, with options of `Queue.publish`."""


@dataclass(frozen=True, slots=True)
class TaskTarget:
    """A task, and what makes its arguments."""

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
            raise InvalidMessage(f"args= must give a list, or a dict of keyword arguments, not {args!r:.100}")

    def __str__(self) -> str:
        return self.task.module_path


@dataclass(frozen=True, slots=True)
class MessageTarget:
    """A name in a queue, and what makes the data."""

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
    """Return what makes data of a signal's arguments: a function of them, or a structure of templates."""
    return calling(value) if callable(value) else filler(value)


def calling(function: Callable[..., Any]) -> Callable[[Arguments], Any]:
    """Return a call of `function` with those of the arguments that it names, or with all if it takes **any.

    Raises:
        ConfigurationError: it cannot be called so.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{function!r:.100} cannot be called with a signal's arguments: {error}") from error
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return lambda arguments: function(**arguments)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return lambda arguments: function(**{name: value for name, value in arguments.items() if name in named})


def task_arguments(args: Any) -> Callable[[Arguments], Any]:
    """Return what makes a task's arguments: see `on_signal`.

    Raises:
        ConfigurationError: `args` is neither a function, nor a list or dict of templates.
    """
    if args is None:
        return lambda arguments: [primary_key(arguments)]
    if not callable(args) and not isinstance(args, list | tuple | Mapping):
        raise ConfigurationError(f"args= is a function, a list or a dict, not {args!r:.100}")
    return mapping(args)


def primary_key(arguments: Arguments) -> int | str:
    """Return the pk of a signal's instance, as text when it is not an integer.

    Raises:
        InvalidMessage: the signal has no instance, or that has no pk (yet).
    """
    pk = getattr(arguments.get("instance"), "pk", None)
    if pk is None:
        raise InvalidMessage("The signal gives no instance that has a pk: say what to enqueue with args= or data=")
    return pk if isinstance(pk, int) else str(pk)
