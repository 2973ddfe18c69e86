"""Filters of messages by id, name, key, error or time."""

import re
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from mq_django.core.redaction import redact_text
from mq_django.core.texts import exception_of, repr_of
from mq_django.errors import InvalidFilter

#: The same as in parts/dead_letters.lua. Ruby separates the names of a class by `::`, and PHP by a backslash.
_ERROR_CLASS = re.compile(r"[A-Za-z_](?:[\w.\\]|::(?=[A-Za-z_]))*+(?=:|\Z)", re.ASCII)


class Filterable(Protocol):
    """The attributes of a message that a filter uses."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def published_ms(self) -> int | None: ...


class FailureGroup(NamedTuple):
    """Dead letters with the same name and error. Either may be empty."""

    name: str
    #: The class of the error.
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The conditions that a message must match. Empty values and None match everything.

    Raises:
        InvalidFilter: a value has the wrong type. Ignoring it would select more messages.
    """

    id: str = ""
    #: A part of its name; case does not matter.
    name: str = ""
    key: str = ""
    #: A part of its error; case does not matter.
    error: str = ""
    #: Published at or after the first time and before the second, in ms since 1970.
    since_ms: int | None = None
    until_ms: int | None = None
    #: For dead letters only.
    group: FailureGroup | None = None

    def __post_init__(self) -> None:
        texts = (self.id, self.name, self.key, self.error, *(self.group or ()))
        moments = (self.since_ms, self.until_ms)
        if not all(isinstance(text, str) for text in texts) or not all(at is None or type(at) is int for at in moments):
            raise InvalidFilter(f"A filter has text, and times as whole milliseconds, not {repr_of(self, 200)}")

    def __bool__(self) -> bool:
        return self != NOTHING

    def matches(self, message: Filterable, error: str = "") -> bool:
        """Return whether a message, or a dead letter with its error, matches."""
        at = message.published_ms
        return (
            (not self.id or self.id == message.id)
            and self.name.casefold() in message.name.casefold()
            and (not self.key or self.key == message.key)
            and (self.since_ms is None or (at is not None and at >= self.since_ms))
            and (self.until_ms is None or (at is not None and at < self.until_ms))
            and (self.group is None or self.group == FailureGroup(message.name, error_class(error)))
            # The error as it is displayed: a search for a secret must not reveal where it is.
            and (not self.error or self.error.casefold() in redact_text(error).casefold())
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the conditions as JSON values."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}

    @classmethod
    def of(cls, found: Any) -> "Filter":
        """Return the filter for a result of as_dict().

        Args:
            found: that result.

        Raises:
            InvalidFilter: as_dict() of this version returns no such value.
        """
        if not isinstance(found, dict) or any(value in ("", None) for value in found.values()):
            raise InvalidFilter(f"Not a filter: {repr_of(found, 200)}")
        group = found.get("group")
        if "group" in found and not (isinstance(group, list) and len(group) == len(FailureGroup._fields)):
            raise InvalidFilter(f"Not a group: {repr_of(group, 200)}")
        try:
            return cls(**found | ({"group": FailureGroup(*group)} if group else {}))
        except TypeError as error:
            raise InvalidFilter(f"Not a filter: {repr_of(found, 200)}") from error


NOTHING = Filter()


def error_class(error: str) -> str:
    """Return the class of an error, by which dead letters are grouped, or its text if that is one word."""
    found = _ERROR_CLASS.match(error)
    return found[0] if found and len(found[0]) <= 200 else ""


def is_exception(word: str) -> bool:
    """Return whether the first word of an error is the class of an exception, and therefore quotes no data.

    A handler may bury a message with any text, such as a word of its data. So the class must be known to this process.
    """
    return exception_of(word) is not None
