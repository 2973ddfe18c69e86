"""A published message, as tests compare it, and messages for unit tests, which need no Redis."""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, Unpack

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.clock import Duration
from mq_django.core.ids import STEP_NAME
from mq_django.core.jsontext import dumps, loads, received
from mq_django.core.keys import GROUP_SEPARATOR, READY
from mq_django.core.message_format import Priority, numbered
from mq_django.core.messages import NO_HEADERS, Delivery, Message
from mq_django.core.publication import Publication, publication
from mq_django.core.publish_checks import due
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, InvalidMessage, TestKitError
from mq_django.registry import ANY, Handler, find
from mq_django.stores import open_publisher
from mq_django.transport.connections import open_transport

#: The most characters of a value in the text of a record.
MAX_SHOWN = 300


@dataclass(frozen=True, slots=True, repr=False)
class Published:
    """A message that was published, or waits for a commit.

    Records are equal if their messages have the same content. Ids and expiry times are not compared.
    """

    #: A queue, a group or a topic.
    queue: str
    name: str
    #: As its handler receives it: a tuple is a list, a date is text.
    data: Any = None
    key: str | None = None
    unique: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    #: The argument `delay`.
    delay: timedelta | None = None
    #: The argument `deliver_at`, in UTC.
    deliver_at: datetime | None = None
    #: When it expires, in UTC.
    expires: datetime | None = field(default=None, compare=False)
    id: str = field(default="", compare=False)
    #: The path of the task that it runs, also as a step of a workflow; empty if it runs none.
    task: str = ""
    #: In a step, an argument that is the value of another step is None.
    args: Sequence[Any] = field(default_factory=list)
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return one line with the fields that have a value."""
        left_out = {"id", "task", "name", "data"} if self.task else {"id"}
        shown = [
            f"{each.name}={getattr(self, each.name)!r:.{MAX_SHOWN}}"
            for each in fields(self)
            if each.name not in left_out and getattr(self, each.name) != _default(each)
        ]
        return f"Published({', '.join(shown if not self.task else [*shown, f'task={self.task!r}'])})"


def _default(each: Any) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def published_of(publication: Publication) -> Published:
    """Return the record of a publication."""
    message, data_text, options = publication
    data = received(data_text)
    handler = registry.find(message.queue, message.name)
    # Only the handlers of tasks take arguments.
    runs_task = handler is not None and handler.accepts is not None and isinstance(data, dict)
    return Published(
        queue=message.queue,
        name=message.name,
        data=data,
        key=message.key,
        unique=message.unique,
        headers=dict(message.headers),
        priority=message.priority,
        delay=None if options.delay_ms is None else timedelta(milliseconds=options.delay_ms),
        deliver_at=utc(options.due_ms),
        expires=utc(message.expires_ms),
        id=message.id,
        task=message.name.removeprefix(STEP_NAME) if runs_task else "",
        args=data.get("args", []) if runs_task else [],
        kwargs=data.get("kwargs", {}) if runs_task else {},
    )


def utc(ms: int | None) -> datetime | None:
    """Return a time in ms since 1970 as a datetime in UTC; None for None."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


# What tests ask of published messages: whether a record matches, and in what the most similar one differs.

#: The characters of data that are compared to find the most similar record.
MAX_COMPARED = 2000


class Criteria(TypedDict, total=False):
    """What a record must be equal to. A criterion that is not given accepts all."""

    #: Values that JSON cannot hold as they are, such as dates and tuples, are compared in their form in JSON.
    data: Any
    key: str | None
    unique: str | None
    headers: Mapping[str, str]
    priority: Priority
    #: A timedelta or seconds.
    delay: Duration | None
    deliver_at: datetime | None
    #: A task, or its path.
    task: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class Including:
    """Equals each dict that has at least some items. See including()."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = {name: _in_json(value) for name, value in items.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and all(
            name in other and value == other[name] for name, value in self._items.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"including({', '.join(f'{name}={value!r}' for name, value in self._items.items())})"


def including(**items: Any) -> Any:
    """Return what equals each dict with at least these items, for `data`, `kwargs` and `headers` of assertions.

        mq.assert_published("emails", "welcome", data=including(email="ann@shop.example"))

    Args:
        items: values in their form in Python or in JSON; also `including(...)` again, or `unittest.mock.ANY`.
    """
    return Including(items)


def expected_values(queue: str | None, name: str | None, criteria: Criteria) -> dict[str, Any]:
    """Return the values that the fields of a record must have.

    Raises:
        UnknownQueue: there is no such queue or topic.
        InvalidMessage: `delay` or `deliver_at` is not a duration or a datetime.
        TestKitError: `task` is no task.
    """
    expected: dict[str, Any] = {}
    if queue is not None:
        check_destination(queue)
        expected["queue"] = queue
    if name is not None:
        expected["name"] = name
    unknown = criteria.keys() - Criteria.__annotations__.keys()
    if unknown:
        raise TypeError(f"{min(unknown)!r} is no criterion; there are {', '.join(Criteria.__annotations__)}")
    return {**expected, **{field: _normalized(field, value) for field, value in criteria.items()}}


def _normalized(field: str, value: Any) -> Any:
    """Return a criterion in the form that a record has."""
    if field == "task":
        return _path_of(value)
    if field == "delay" and value is not None:
        milliseconds, _ = due(value, None)
        return timedelta(milliseconds=milliseconds or 0)
    if field == "deliver_at" and value is not None:
        return utc(due(None, value)[1])
    if field == "priority":
        return numbered(value)
    return _in_json(value) if field in ("data", "args", "kwargs") else value


def _in_json(value: Any) -> Any:
    """Return a value in its form in JSON."""
    try:
        return loads(dumps(value))
    except (InvalidMessage, DecodeError):  # it has mock.ANY or another object that is only compared
        if isinstance(value, dict):
            return {_key_in_json(key): _in_json(item) for key, item in value.items()}
        return [_in_json(item) for item in value] if isinstance(value, list | tuple) else value


def _key_in_json(key: Any) -> Any:
    try:
        return next(iter(loads(dumps({key: None}))))
    except (InvalidMessage, DecodeError):
        return key


def _path_of(task: Any) -> str:
    """Return the path of a task.

    Raises:
        TestKitError: it is no task, or there is no task of this path.
    """
    path = getattr(task, "module_path", task)
    found = find("", path) if isinstance(path, str) else None
    if found is None or found.accepts is None:
        raise TestKitError(f"task= must be a task of this project or its path, not {repr_of(task)}")
    return str(path)


def differences(record: Published, expected: Mapping[str, Any]) -> list[str]:
    """Return the fields in which a record is not as expected."""
    return [field for field, value in expected.items() if getattr(record, field) != value]


def described(expected: Mapping[str, Any]) -> str:
    """Return criteria as text."""
    return ", ".join(f"{field}={repr_of(value, 200)}" for field, value in expected.items())


def nearest(records: Sequence[Published], expected: Mapping[str, Any]) -> Published | None:
    """Return the most similar record: of the same queue and name if there is one, with the most similar data."""

    def likeness(record: Published) -> tuple[bool, bool, int, float]:
        different = differences(record, expected)
        similar = 0.0
        if "data" in different:
            texts = _pretty(expected["data"])[:MAX_COMPARED], _pretty(record.data)[:MAX_COMPARED]
            similar = difflib.SequenceMatcher(None, *texts).ratio()
        return "name" not in different, "queue" not in different, -len(different), similar

    return max(records, key=likeness, default=None)


def comparison(record: Published, expected: Mapping[str, Any]) -> str:
    """Return in which fields a record is not as expected, line by line for data."""
    lines = [f"the most similar message is {record!r}; - expected, + published:"]
    for name in differences(record, expected):
        before, after = _pretty(expected[name]).splitlines(), _pretty(getattr(record, name)).splitlines()
        diff = list(difflib.unified_diff(before, after, lineterm=""))[2:]
        lines += [f"{name}:", *(f"  {line}" for line in diff if not line.startswith("@@"))]
    return "\n".join(lines)


def _pretty(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=repr)
    except (TypeError, ValueError):
        return repr(value)


def check_destination(name: str) -> None:
    """Check that a queue, a topic or a group is configured.

    Raises:
        UnknownQueue: it is not.
    """
    config = get_config()
    if name not in config.topics:
        config.queue(name)


def message(
    name: str,
    data: Any = None,
    *,
    queue: str = "",
    attempt: int = 1,
    key: str | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    priority: Priority = 0,
    unique: str | None = None,
    expires: Duration | datetime | None = None,
    message_id: str | None = None,
) -> Message:
    """Return a message as a handler gets it: its data went through JSON.

        def test_a_customer_is_welcomed(mq):
            welcome(mq.message("welcome", {"email": "ann@shop.example"}))

    Args:
        name: selects the handler.
        data: JSON values, and others that are sent in their JSON form.
        queue: a queue, or a group such as `orders:billing`; "": the first one in the settings.
        attempt: the number of the delivery.
        key, headers, priority, unique, expires, message_id: as for `Queue.publish`.

    Raises:
        InvalidMessage: data, name, key or an option cannot be sent.
        NotSupported: the queue has no such option.
        UnknownQueue: the queue is not configured.
    """
    config = get_config()
    destination = config.queue(queue or next(iter(config.queues), ""))
    made, text, _ = publication(
        destination,
        name,
        data,
        key=key,
        headers=headers,
        priority=priority,
        unique=unique,
        expires=expires,
        message_id=message_id,
    )
    return made._replace(data=received(text), attempt=attempt)


class MessageOptions(TypedDict, total=False):
    """The options of message()."""

    queue: str
    attempt: int
    key: str | None
    headers: Mapping[str, str]
    priority: Priority
    unique: str | None
    expires: Duration | datetime | None
    message_id: str | None


def delivery(name: str, data: Any = None, *, entry: str = "1-0", **options: Unpack[MessageOptions]) -> Delivery:
    """Return a delivery of a message, for tests of code that works with the parts of a consumer.

    Args:
        name, data: as for message().
        entry: the id of the stream entry.
        options: of message().

    Raises:
        InvalidMessage, NotSupported, UnknownQueue: as message().
    """
    made = message(name, data, **options)
    return Delivery(made, READY, entry.encode(), dumps(made.data))


# Find the queue of a handler, a subscriber or a task, and make a message for it.


@dataclass(frozen=True, slots=True)
class FunctionMessage:
    """A message of a function, which may be published again and again."""

    #: The path of the function.
    where: str
    #: The options of its queue, partition or group.
    config: QueueConfig
    publication: Publication

    def publish(self) -> None:
        """Write the message to its queue or topic, without signals and middleware."""
        destination = self.publication.options.destination
        open_publisher(destination, open_transport("produce", destination.connection)).publish([self.publication])


def message_for(function: Any, given: Any) -> FunctionMessage:
    """Return a message for a function.

    Args:
        function: of a handler or subscriber, or a task.
        given: data, or a Message from mq.message(...); for a task a list of positional arguments, or a dict of keyword
            arguments.

    Raises:
        TestKitError: it is no such function; it does not accept these arguments; or it has several names.
        InvalidMessage: the message cannot be sent.
    """
    path = getattr(function, "module_path", None)
    if path is not None:
        return _for_task(function, path, given)
    entry = _entry(function, given)
    assert entry.queue is not None
    config = get_config()
    topic, separator, _ = entry.queue.partition(GROUP_SEPARATOR)
    destination = config.topic(topic) if separator else config.queue(entry.queue)
    if not isinstance(given, Message):
        made = publication(destination, entry.name, given)
    else:
        made = publication(
            destination,
            given.name,
            given.data,
            key=given.key,
            headers=given.headers,
            priority=given.priority,
            message_id=given.id,
            published_ms=given.published_ms,
        )
        made = made._replace(message=made.message._replace(expires_ms=given.expires_ms))
    return FunctionMessage(entry.where, _partition_for(config.queue(entry.queue), made), made)


def _partition_for(config: QueueConfig, made: Publication) -> QueueConfig:
    """Return the queue or group, or the partition that a message is for."""
    destination = made.options.destination
    return config.parts[destination.number] if destination.is_partition else config


def _for_task(task: Any, path: str, given: Any) -> FunctionMessage:
    args: Any = () if given is None else given
    kwargs: Any = {}
    if isinstance(given, Mapping):
        args, kwargs = (), given
    entry = registry.find("", path)
    if entry is None or entry.accepts is None or not isinstance(args, list | tuple):
        raise TestKitError(f"Task {path} takes a list of positional arguments, or a dict of keyword arguments")
    try:
        entry.accepts(args, kwargs)
    except TypeError as error:
        raise TestKitError(f"Task {path} cannot be called so: {error}") from error
    config = get_config().queue(task.queue_name)
    data = {"args": list(args), "kwargs": dict(kwargs)}
    made = publication(config, path, data, priority=task.priority, runs_task=True)
    return FunctionMessage(path, _partition_for(config, made), made)


def _entry(function: Any, given: Any) -> Handler:
    """Return what a function is registered as for this message."""
    registered = [entry for entry in registry.handlers() if entry.call is function]
    if not registered:
        raise TestKitError(f"{repr_of(function, 200)} is no task, and no function of a handler or subscriber")
    found = registered
    if isinstance(given, Message):
        found = [entry for entry in registered if entry.name in (ANY, given.name)]
        found = [entry for entry in found if entry.queue == given.queue] or found
    elif registered[0].name == ANY:
        found = []
    if len(found) != 1:
        known = ", ".join(f"{entry.name or 'all names'} in {entry.queue}" for entry in registered)
        raise TestKitError(
            f"{registered[0].where} handles {known}: name one of them, as in mq.message(name, data, queue=queue)"
        )
    return found[0]
