"""What tests ask of published messages: whether a record matches, and in what the most similar one differs."""

import difflib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from mq_django.conf import get_config
from mq_django.core.exceptions import repr_of
from mq_django.core.jsontext import dumps, loads
from mq_django.core.publish_checks import due
from mq_django.core.times import Duration
from mq_django.errors import DecodeError, InvalidMessage, TestKitError
from mq_django.registry import find
from mq_django.testing.published import Published, utc

#: The characters of data that are compared to find the most similar record.
MAX_COMPARED = 2000


class Criteria(TypedDict, total=False):
    """What a record must be equal to. A criterion that is not given accepts all."""

    #: Values that JSON cannot hold as they are, such as dates and tuples, are compared in their form in JSON.
    data: Any
    key: str | None
    unique: str | None
    headers: Mapping[str, str]
    priority: int
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
    for field in differences(record, expected):
        before, after = _pretty(expected[field]).splitlines(), _pretty(getattr(record, field)).splitlines()
        diff = list(difflib.unified_diff(before, after, lineterm=""))[2:]
        lines += [f"{field}:", *(f"  {line}" for line in diff if not line.startswith("@@"))]
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
