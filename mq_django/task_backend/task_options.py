"""What our tasks have beside what Django's tasks have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from mq_django.core import clock, publish_checks
from mq_django.core.breakers import Breaker, check_breaker
from mq_django.core.clock import Duration, check_aware
from mq_django.core.handler_options import call_headers, check_retry, parse_timeout
from mq_django.core.jsontext import dumps, invalid_at, loads
from mq_django.core.message_format import Priority, numbered
from mq_django.core.messages import NO_HEADERS
from mq_django.core.retries import RetryPolicy
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, InvalidArguments, InvalidMessage
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.sinks import check_sending
from mq_django.task_backend.compat import AnyResult, AnyTask, Task

# The arguments of a task, which are the data of its message.

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
    _bind(task.func, len(args) + task.takes_context, tuple(kwargs))


def _options_among(task: AnyTask, kwargs: Mapping[str, Any]) -> str:
    """Return what to write for arguments that are no parameters of the function, but options of using()."""
    parameters = signature(task.func, follow_wrapped=False).parameters
    return publish_checks.instead_of(task.using, [name for name in kwargs if name not in parameters], USING)


@lru_cache(maxsize=10_000)
def _bind(function: Callable[..., Any], count: int, names: tuple[str, ...]) -> None:
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

    Only a bytearray or memoryview has another one: text, like bytes, and not a list of numbers.

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
    # A BinaryField of PostgreSQL is a memoryview. Like a bytearray, that is a sequence of numbers, too.
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except ValueError as error:  # not UTF-8, or a memoryview that was released
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


# The options of a task's messages that Django's tasks do not have.


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """The options of `Queue.publish` that `using()` accepts."""

    delay: Duration | None = None
    unique: str | None = None
    unique_for: Duration | str | None = None
    on_conflict: str | None = None
    at_most: Duration | None = None
    expires: Duration | datetime | None = None
    key: str | None = None
    using: str | None = None
    #: None: the backend's OPTIONS decide.
    on_commit: bool | None = None
    robust: bool = False
    outbox: bool | None = None
    #: These two are no part of the hash, because a dict has none.
    headers: Mapping[str, str] | None = field(default=None, hash=False)
    #: Internal: the headers that carry a timeout and a retry policy.
    of_call: Mapping[str, str] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        publish_checks.due(self.delay, None)
        object.__setattr__(self, "headers", dict(publish_checks.check_headers(self.headers or NO_HEADERS)) or None)
        if self.expires is not None:
            publish_checks.expiry(self.expires, clock.now_ms())
        for option, value in (("unique", self.unique), ("key", self.key)):
            if value is not None:
                publish_checks.check_text(option, value)
        # A unique key and a due time may come with a later using(): publication() checks that they do.
        publish_checks.uniqueness("", self.unique_for, self.on_conflict, waits=True)
        if self.at_most is not None:
            publish_checks.postponable(self.at_most, 0, "", None, "replace")
        check_sending(
            self.using, on_commit=self.on_commit is None or self.on_commit, robust=self.robust, outbox=self.outbox
        )

    def for_one(self) -> dict[str, Any]:
        """Return the options of one publication that only a single message can have."""
        found = {"unique": self.unique, "unique_for": self.unique_for}
        return {**found, "on_conflict": self.on_conflict, "at_most": self.at_most}

    def for_all(self) -> dict[str, Any]:
        """Return the other options of a publication."""
        return {"delay": self.delay, "expires": self.expires, "key": self.key, "headers": self.all_headers}

    @property
    def all_headers(self) -> Mapping[str, str]:
        """Return the headers of a message, with those for a timeout and a retry policy."""
        return {**(self.headers or {}), **self.of_call} if self.of_call else self.headers or NO_HEADERS


#: The options of most tasks, made once.
DEFAULT = Publishing()

Made = TypeVar("Made")

if TYPE_CHECKING:
    Base = Task
else:  # a task of Django, or of the package django-tasks
    Base = object


#: How other queues enqueue, and what to write instead.
INSTEAD = {
    **dict.fromkeys(("delay", "delay_on_commit", "send"), "task.enqueue(...)"),
    "apply_async": "task.using(delay=..., queue_name=...).enqueue(...)",
    "apply": "task.call(...)",
    **dict.fromkeys(
        ("s", "si", "signature", "subtask", "then", "pipe", "message"), "chain((task, ...), ...) of mq_django.workflows"
    ),
    **dict.fromkeys(("map", "starmap", "chunks"), "task.enqueue_many([[...], ...])"),
    "retry": "`raise Retry(delay=...)` of mq_django",
    **dict.fromkeys(
        ("send_with_options", "schedule", "enqueue_at", "enqueue_in"), "task.using(delay=...).enqueue(...)"
    ),
    **dict.fromkeys(("call_local", "fn"), "task.call(...)"),
}

#: What to do in place of changing an option of a task, or its function.
FIXED = (
    "The {} of a task cannot be changed: using() returns a task with other options, and a test patches enqueue, or "
    "what the function calls"
)


class TaskOptions(Base):  # type: ignore[type-arg]  # Django's own has no parameters
    """A retry policy, a timeout, the options of publishing, enqueuing many at once, and calling the task."""

    #: For what tests put in the place of its methods; see `patchable`.
    __slots__ = ("__dict__",)
    #: A task can be called, but templates only show it.
    do_not_call_in_templates = True
    retry: RetryPolicy | None
    timeout: timedelta | None
    breaker: Breaker | None
    publishing: Publishing

    def __post_init__(self) -> None:
        # Django's decorator passes the timeout as it was given, which may be seconds.
        object.__setattr__(self, "timeout", parse_timeout(self.timeout))
        check_retry(self.retry)
        check_breaker(self.breaker)
        super().__post_init__()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here and now, as without the decorator: a coroutine function returns a coroutine."""
        return self.func(*args, **kwargs)

    if not TYPE_CHECKING:  # a type checker knows which attributes there are

        def __getattr__(self, name: str) -> Any:
            instead = f": write {INSTEAD[name]}" if name in INSTEAD else ""
            raise AttributeError(f"A task has no attribute {name!r}{instead}", name=name, obj=self)

    def using(
        self,
        *,
        priority: Priority | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        delay: Duration | None = None,
        unique: str | None = None,
        unique_for: Duration | str | None = None,
        on_conflict: str | None = None,
        at_most: Duration | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        using: str | None = None,
        on_commit: bool | None = None,
        robust: bool | None = None,
        outbox: bool | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        retry: RetryPolicy | None = None,
        **unknown: Never,
    ) -> Self:
        """Return a task with other options. None keeps the present value.

            remind.using(delay=3600, unique=f"cart:{cart.pk}").enqueue(cart.pk)

        Args:
            priority: -100 to 100, or "high" (10), "normal" (0) or "low" (-10); higher runs sooner.
            queue_name: one of MQ_DJANGO["QUEUES"], which `enqueue()` looks up.
            run_after: a datetime; replaces `delay`. It must be aware in a project with `USE_TZ`.
            backend: an alias in TASKS. Another text raises the error of Django's tasks for it.
            delay: a timedelta or seconds from the sending; replaces `run_after`.
            unique, unique_for, on_conflict, at_most, expires, key, using, on_commit, robust, outbox: as for
                `Queue.publish`.
            headers: a dict of text by name, of 1 to 64 lower-case letters and digits; replaces earlier ones.
            timeout: seconds or a timedelta; replaces that of the task and the queue.
            retry: a RetryPolicy; replaces that of the task and the queue.
            unknown: is refused, such as `countdown` of Celery.

        Raises:
            InvalidArguments: there is no such option. The error says what to write instead of one of others.
            InvalidTask: `priority` or `run_after` cannot be used, or `queue_name` is no text, or not in `TASKS`.
            ConfigurationError: the timeout is not above zero, or `retry` is not a RetryPolicy; a class that extends
                RetryPolicy cannot be sent with a message.
            InvalidMessage: another option cannot be used, or `delay` and `run_after` are given. What two options need
                of each other, `enqueue()` checks.
        """
        _check(self, unknown, delay, run_after)
        own, after = numbered(priority), _aware(run_after)
        changed = _given(priority=own, queue_name=queue_name, run_after=after, backend=_alias(backend))
        sending = {"using": using, "on_commit": on_commit, "robust": robust, "outbox": outbox}
        published = _given(
            delay=delay,
            unique=unique,
            unique_for=unique_for,
            on_conflict=on_conflict,
            at_most=at_most,
            expires=expires,
            key=key,
            headers=headers,
            **sending,
        )
        if timeout is not None or retry is not None:
            changed |= _given(timeout=parse_timeout(timeout), retry=retry)
            published["of_call"] = {**(self.publishing.of_call or {}), **call_headers(parse_timeout(timeout), retry)}
        if "delay" in published:
            changed["run_after"] = None
        elif run_after is not None and self.publishing.delay is not None:
            published["delay"] = None
        if published:
            changed["publishing"] = replace(self.publishing, **published)
        made = replace(self, **changed)
        made.__dict__.update(self.__dict__)
        return made

    # The error for an unknown option names it.
    using.__qualname__ = "MQTask.using"

    def enqueue_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[AnyResult]:
        """Enqueue the task many times in few round trips, and return the results in the same order.

            send_receipt.enqueue_many([order.pk] for order in orders)

        All arguments are checked before the first message is sent. Messages are sent as by `Queue.publish_many`.

        Args:
            calls: for each the positional arguments as a list or tuple, or the keyword arguments as a dict.

        Raises:
            InvalidArguments: the function cannot be called with arguments, or one cannot be encoded as JSON.
            InvalidMessage: `calls` is not iterable, or an option cannot be used; `unique` cannot, because one key is
                for one message.
            PublishError, StoreError: as for `Queue.publish_many`.
        """
        return enqueue_many(self, calls)

    aenqueue_many = asynchronous(enqueue_many)


def patchable(made: type[Made]) -> type[Made]:
    """Let tests replace methods of a task of a frozen class, as `mock.patch("shop.tasks.charge.enqueue")` does.

    The tasks that `using()` makes of it have the same replacements. The options stay frozen.
    """
    options = {each.name for each in fields(made)}  # type: ignore[arg-type]  # the decorator below made it a dataclass
    delete_frozen = made.__delattr__

    def set_attribute(self: Any, name: str, value: object) -> None:
        if name in options:
            raise FrozenInstanceError(FIXED.format(name))
        object.__setattr__(self, name, value)

    def delete_attribute(self: Any, name: str) -> None:
        (delete_frozen if name in options else object.__delattr__)(self, name)

    made.__setattr__, made.__delattr__ = set_attribute, delete_attribute  # type: ignore[method-assign]
    return made


def _check(task: TaskOptions, unknown: Mapping[str, Any], delay: Duration | None, run_after: datetime | None) -> None:
    if unknown:
        raise publish_checks.unknown_options(task.using, unknown, USING)
    if run_after is not None and delay is not None:
        raise InvalidMessage("Give delay= or run_after=, not both")


def _aware(run_after: datetime | None) -> datetime | None:
    # Django's tasks say what is wrong with a time. They refuse every naive one, also in a project without `USE_TZ`.
    with suppress(TypeError):
        return check_aware(run_after)
    return run_after


def _alias(backend: str | None) -> str | None:
    return None if backend is None else publish_checks.check_text("backend", backend)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def enqueue_many(task: AnyTask, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[AnyResult]:
    """Enqueue a task many times in few round trips, and return the results in the same order.

    For a task of another backend, such as the ImmediateBackend of a test, it calls `enqueue()` for each.

    Args:
        task: a task of `mq_django.task`, of Django or of django-tasks.
        calls: for each the positional arguments as a list or tuple, or the keyword arguments as a dict.

    Raises:
        InvalidArguments: `task` is no task, its function cannot be called with arguments, or one cannot be encoded as
            JSON.
        InvalidMessage: `calls` is not iterable, or an option cannot be used; `unique` cannot, because one key is for
            one message.
        PublishError, StoreError: as for `Queue.publish_many`.
    """
    if not hasattr(task, "get_backend"):
        raise InvalidArguments(f"enqueue_many() takes a task and its calls, not {repr_of(task)}")
    split = [call_of(each) for each in publish_checks.check_iterable("calls", calls)]
    at_once = getattr(task.get_backend(), "enqueue_many", None)
    if at_once is None:
        return [task.enqueue(*args, **kwargs) for args, kwargs in split]
    results: list[AnyResult] = at_once(task, split)
    return results


aenqueue_many = asynchronous(enqueue_many)
