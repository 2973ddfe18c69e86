"""What messages somebody means: by id, name, key, error or time."""

import re
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from mq_django.core.exceptions import exception_of
from mq_django.core.redaction import redact_text
from mq_django.errors import InvalidFilter

_ERROR_CLASS = re.compile(r"([A-Za-z_][\w.]{0,199})(?=:|\Z)", re.ASCII)


class Filterable(Protocol):
    """What a filter looks at of a message."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def published_ms(self) -> int | None: ...


class FailureGroup(NamedTuple):
    """Dead letters of one name that failed with the same error; either may be empty."""

    name: str
    #: Its class.
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a message must be like to be meant; what is empty or None does not matter.

    Raises:
        InvalidFilter: a value has the wrong type. To leave it out would select more messages.
    """

    id: str = ""
    #: In its name, whatever the case.
    name: str = ""
    key: str = ""
    #: In what it failed with, whatever the case.
    error: str = ""
    #: Published at or after, and before: ms since 1970.
    since_ms: int | None = None
    until_ms: int | None = None
    #: Of dead letters.
    group: FailureGroup | None = None

    def __post_init__(self) -> None:
        texts = (self.id, self.name, self.key, self.error, *(self.group or ()))
        moments = (self.since_ms, self.until_ms)
        if not all(isinstance(text, str) for text in texts) or not all(at is None or type(at) is int for at in moments):
            raise InvalidFilter(f"A filter has text, and times as whole milliseconds, not {self!r:.200}")

    def __bool__(self) -> bool:
        return self != NOTHING

    def matches(self, message: Filterable, error: str = "") -> bool:
        """Tell whether a message is meant, or a dead letter with its error."""
        at = message.published_ms
        return (
            (not self.id or self.id == message.id)
            and self.name.casefold() in message.name.casefold()
            and (not self.key or self.key == message.key)
            and (self.since_ms is None or (at is not None and at >= self.since_ms))
            and (self.until_ms is None or (at is not None and at < self.until_ms))
            and (self.group is None or self.group == FailureGroup(message.name, error_class(error)))
            # As people see it: who looks for a secret must not find where it is.
            and (not self.error or self.error.casefold() in redact_text(error).casefold())
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what matters of it, as JSON can hold it."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}

    @classmethod
    def of(cls, found: Any) -> "Filter":
        """Return the filter that `as_dict` told.

        Raises:
            InvalidFilter: `as_dict` of this version tells nothing of the kind.
        """
        if not isinstance(found, dict) or any(value in ("", None) for value in found.values()):
            raise InvalidFilter(f"Not a filter: {found!r:.200}")
        group = found.get("group")
        if "group" in found and not (isinstance(group, list) and len(group) == len(FailureGroup._fields)):
            raise InvalidFilter(f"Not a group: {group!r:.200}")
        try:
            return cls(**found | ({"group": FailureGroup(*group)} if group else {}))
        except TypeError as error:
            raise InvalidFilter(f"Not a filter: {found!r:.200}") from error


NOTHING = Filter()


def error_class(error: str) -> str:
    """Return what dead letters are grouped by: the class of an error, or its text when that is one word."""
    found = _ERROR_CLASS.match(error)
    return found[1] if found else ""


def is_exception(word: str) -> bool:
    """Tell whether what an error begins with can only be the class of an exception, and so quotes no data.

    A handler may bury a message with any text, such as a name or a word of its data. So the class must be one that this
    process knows.
    """
    return exception_of(word) is not None
