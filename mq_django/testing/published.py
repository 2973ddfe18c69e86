"""A published message, as tests compare it."""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from mq_django import registry
from mq_django.conf import get_config
from mq_django.core.clock import Duration
from mq_django.core.ids import STEP_NAME
from mq_django.core.jsontext import dumps, loads, received
from mq_django.core.message_format import Priority, numbered
from mq_django.core.publication import Publication
from mq_django.core.publish_checks import due
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, InvalidMessage, TestKitError
from mq_django.registry import find

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
    if field not in ("data", "args", "kwargs"):
        return value
    found = _in_json(value)
    return list(found) if field == "args" and isinstance(found, tuple) else found


def _in_json(value: Any) -> Any:
    """Return a value in its form in JSON."""
    try:
        return loads(dumps(value))
    except (InvalidMessage, DecodeError):  # it has mock.ANY or another object that is only compared
        return value


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
