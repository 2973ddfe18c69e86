"""The arguments of a task, which are the data of its message."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import signature
from typing import Any

from mq_django.core.jsontext import dumps, invalid_at, loads
from mq_django.core.publication import instead_of
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, InvalidArguments, InvalidMessage
from mq_django.task_backend.compat import AnyTask

#: How options of one call are written.
USING = "task.using({}).enqueue(...)"

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


def arguments_of(task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a task's arguments as its function will receive them.

    Raises:
        InvalidArguments: the function cannot be called with them, or one cannot be encoded as JSON.
    """
    try:
        check_call(task, args, kwargs)
    except TypeError as error:
        raise InvalidArguments(
            f"Task {task.module_path} cannot be enqueued: {error}{_options_among(task, kwargs)}"
        ) from error
    try:
        found: dict[str, Any] = loads(dumps({"args": args, "kwargs": kwargs}))
    except (InvalidMessage, DecodeError):
        try:
            found = {name: _normalized(name, value) for name, value in (("args", args), ("kwargs", kwargs))}
        except ValueError as error:
            raise InvalidArguments(f"Task {task.module_path} cannot be enqueued with {error}") from error
    return found


def check_call(task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that a task's function can be called with these arguments.

    Raises:
        TypeError: it cannot.
    """
    _check(task.func, len(args) + task.takes_context, tuple(kwargs))


def _options_among(task: AnyTask, kwargs: Mapping[str, Any]) -> str:
    """Return what to write for arguments that are no parameters of the function, but options of using()."""
    parameters = signature(task.func, follow_wrapped=False).parameters
    return instead_of(task.using, [name for name in kwargs if name not in parameters], USING)


@lru_cache(maxsize=10_000)
def _check(function: Callable[..., Any], count: int, names: tuple[str, ...]) -> None:
    """Check that a function can be called with so many positional arguments, and keyword arguments of these names.

    A project calls its tasks in few ways, so nearly all calls are cached. That of a decorated function is the
    wrapper's, which may add arguments.
    """
    signature(function, follow_wrapped=False).bind(*[None] * count, **dict.fromkeys(names))


def call_of(given: object) -> Arguments:
    """Return the arguments of one call of enqueue_many().

    Raises:
        InvalidArguments: it is not a list, tuple or dict.
    """
    if isinstance(given, Mapping):
        return (), given
    if isinstance(given, list | tuple):
        return given, {}
    raise InvalidArguments(
        f"enqueue_many() takes a list of positional arguments, or a dict of keyword arguments, for each call: "
        f"not {repr_of(given)}"
    )


def _normalized(name: str, value: Any) -> Any:
    """Return arguments that JSON cannot hold as they are, in the form that Django's own backends give them.

    Raises:
        ValueError: one cannot be encoded as JSON. It begins with its place.
    """
    plain = _without_bytes(value, name)
    try:
        return loads(dumps(plain))
    except (InvalidMessage, DecodeError) as error:
        raise ValueError(f"{name}{invalid_at(plain)}: {error.__cause__ or error}") from error


def _without_bytes(value: Any, at: str) -> Any:
    """Return a value with text in the place of bytes, lists in that of sequences, and dicts in that of mappings.

    Raises:
        ValueError: bytes are not UTF-8, or the value contains itself. It begins with the place.
    """
    try:
        return _copy(value, at)
    except RecursionError as error:
        raise ValueError(f"{at}: a value is nested too deep, or contains itself") from error


def _copy(value: Any, at: str) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{at}: {error}") from error
    if isinstance(value, Mapping):
        return {key: _copy(item, f"{at}[{repr_of(key, 50)}]") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_copy(item, f"{at}[{number}]") for number, item in enumerate(value)]
    return value


def has_arguments(data: Any) -> bool:
    """Return whether a message's data are a task's arguments. Other programs may have published it."""
    # Decoded from JSON, so that the types are exact.
    return type(data) is dict and type(data.get("args")) is list and type(data.get("kwargs")) is dict
