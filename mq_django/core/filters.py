"""Filters of messages by id, name, key, data, error or time."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from mq_django.core.ids import is_text
from mq_django.core.jsontext import dumps
from mq_django.core.message_format import BINARY_DATA
from mq_django.core.redaction import MAX_DEPTH, REDACTED, redact, redact_text
from mq_django.core.texts import exception_of, repr_of
from mq_django.errors import InvalidFilter, InvalidMessage

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
    @property
    def data(self) -> Any: ...


class FailureGroup(NamedTuple):
    """Dead letters with the same name and error. Either may be empty."""

    name: str
    #: The class of the error.
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The conditions that a message must match. Empty values and None match everything.

    Raises:
        InvalidFilter: a value has the wrong type, or `data` cannot be read. Ignoring it would select more messages.
    """

    id: str = ""
    #: A part of its name; case does not matter.
    name: str = ""
    key: str = ""
    #: What its data must have, separated by spaces, in quotation marks if it has spaces: a text that their JSON
    #: contains, where case does not matter, or `path=value`. Secrets, which are not shown, match nothing.
    data: str = ""
    #: A part of its error; case does not matter.
    error: str = ""
    #: Published at or after the first time and before the second, in ms since 1970.
    since_ms: int | None = None
    until_ms: int | None = None
    #: For dead letters only.
    group: FailureGroup | None = None

    def __post_init__(self) -> None:
        texts = (self.id, self.name, self.key, self.data, self.error, *(self.group or ()))
        moments = (self.since_ms, self.until_ms)
        if not all(isinstance(text, str) for text in texts) or not all(at is None or type(at) is int for at in moments):
            raise InvalidFilter(f"A filter has text, and times as whole milliseconds, not {repr_of(self, 200)}")
        if self.data and not data_terms(self.data):
            raise InvalidFilter("A filter of data has no words")

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
            # The last one, because it takes longest.
            and (not self.data or _has_all(message.data, data_terms(self.data)))
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


# What is looked for in data, as people write it.

#: The most words, and steps of a path.
MAX_WORDS = 20
#: A word: text and quoted text without a space between. A path, and what follows it.
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_EQUATION = re.compile(r"([^\W\d][\w.-]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?", re.ASCII)


def words(text: str) -> list[str]:
    """Return the words of a text with their quotation marks.

    Raises:
        InvalidFilter: a quotation mark is missing, or there are too many words.
    """
    if not is_text(text) or _WORD.sub("", text).strip():
        raise InvalidFilter(f"A quotation mark is missing: {repr_of(text, 200)}")
    found = _WORD.findall(text)
    if len(found) > MAX_WORDS:
        raise InvalidFilter(f"More than {MAX_WORDS} words: {repr_of(text, 200)}")
    return found


def unquoted(word: str) -> str:
    """Return a word without its quotation marks."""
    return _QUOTED.sub(lambda quoted: re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL), word)


class DataTerm(NamedTuple):
    """What data must have: a text in their JSON, or with a path a value."""

    path: str
    value: str
    #: The text, and as it is quoted in JSON.
    forms: tuple[str, ...] = ()

    def is_in(self, data: Any, text: str) -> bool:
        """Return whether data have it. `text` is their JSON in the case in which texts are compared."""
        if not self.path:
            return any(form in text for form in self.forms)
        # The arguments of a task are named like top-level values.
        roots = [data, data.get("kwargs")] if isinstance(data, dict) else [data]
        return any(_is_value(found, self.value) for root in roots for found in _at(root, self.path))


@lru_cache(maxsize=200)
def data_terms(text: str) -> tuple[DataTerm, ...]:
    """Return the conditions in the text of a filter of data.

    Raises:
        InvalidFilter: a quotation mark or a value is missing, or there are too many words.
    """
    return tuple(map(_term, words(text)))


def _term(word: str) -> DataTerm:
    if equation := _EQUATION.fullmatch(word):
        path, value = equation.groups()
        if not value or path.count(".") >= MAX_WORDS:
            raise InvalidFilter(f'A path has a value, as in customer=C-4242 or note="", not {repr_of(word, 200)}')
        return DataTerm(path, unquoted(value))
    value = unquoted(word)
    if not value:
        raise InvalidFilter(f"There is no text to look for: {repr_of(word, 200)}")
    return DataTerm("", value, (value.casefold(), dumps(value)[1:-1].decode().casefold()))


#: Text that all programs write into JSON as it is: letters, and characters between them that nobody escapes; or digits.
_PLAIN = re.compile(r"[A-Za-z0-9 _.@-]*[A-DF-Za-df-z][A-Za-z0-9 _.@-]*|[0-9]{1,15}", re.ASCII)


@lru_cache(maxsize=200)
def _needles(text: str) -> tuple[bytes, ...]:
    return tuple(term.value.lower().encode() for term in data_terms(text) if _PLAIN.fullmatch(term.value))


def may_match(texts: Iterable[bytes], data: str) -> bool:
    """Return whether a message may match a filter of data: to look at its texts costs less than to read them.

    Args:
        texts: its data as JSON, alone or in other text, and its id.
        data: the condition of the filter.
    """
    needles = _needles(data)
    if not needles:
        return True
    low = b"\0".join(texts).lower()
    # Data in Base64 are read.
    return BINARY_DATA.encode() in low or all(needle in low for needle in needles)


def _has_all(data: Any, terms: Sequence[DataTerm]) -> bool:
    """Return whether data have all of this, also without their secrets, which nobody may find out by searching."""
    if data is None:
        return False
    return _have(data, terms) and _have(redact(data), terms)


def _have(data: Any, terms: Sequence[DataTerm]) -> bool:
    try:
        # No term has a zero byte, so none matches a part of a placeholder.
        text = dumps(data).decode().replace(REDACTED, "\0").casefold()
    except InvalidMessage:
        return False
    return all(term.is_in(data, text) for term in terms)


def _at(value: Any, path: str, depth: int = 0) -> Iterator[Any]:
    """Yield the values at a dotted path: a key may have dots, and a list has the values of its items."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _at(item, path, depth + 1)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        steps = path.split(".")
        for count in range(1, len(steps) + 1):
            if (key := ".".join(steps[:count])) in value:
                yield from _at(value[key], ".".join(steps[count:]), depth + 1)


def _is_value(found: Any, value: str) -> bool:
    """Return whether a value in JSON is the one that somebody has written: 42 is also 42.0, and the text 42."""
    if isinstance(found, str | Mapping):
        return found == value
    if dumps(found).decode() == value:
        return True
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return is_number and bool(_NUMBER.fullmatch(value)) and Decimal(value) == found


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
