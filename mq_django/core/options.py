"""Options of the settings: how a field of a config declares one, and the functions that read their values.

These functions raise TypeError with the words that follow "must be".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from mq_django.core.breakers import Breaker
from mq_django.core.clock import MAX_DELAY, read_duration
from mq_django.core.limits import Limit, Rate, Weights
from mq_django.core.redaction import replace_logins
from mq_django.core.retries import RetryPolicy
from mq_django.core.rsmq_format import MAX_MAXSIZE, MAX_SECONDS, MIN_MAXSIZE, check_maxsize
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError, InvalidValue

#: Schemes of URLs of a server, of a master that Sentinels know, and of a Redis Cluster.
SERVER_SCHEMES = ("redis://", "rediss://", "unix://")
SENTINEL_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
CLUSTER_SCHEMES = ("redis+cluster://", "rediss+cluster://")
URL_SCHEMES = (*SERVER_SCHEMES, *SENTINEL_SCHEMES, *CLUSTER_SCHEMES)

Value = TypeVar("Value")


class WrongParts(TypeError):
    """Everything that is wrong in a value of several parts, so that `check` names each by its path."""

    def __init__(self, parts: Sequence[tuple[str, str]]) -> None:
        #: (name of the part, or "" for the whole value; the text that follows the name)
        self.parts = parts
        super().__init__("; ".join(f"{repr_of(name)}{text}" if name else f"it{text}" for name, text in parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of the settings, declared by a field of a config."""

    #: The key in the settings, and the name of the field.
    name: str
    attribute: str
    #: Returns the field's value for a value from the settings.
    read: Callable[[Any], Any]
    #: Markdown for the tables of docs/settings.md. `shown` is the default as one writes it, if repr() does not give
    #: that.
    help_text: str
    shown: str
    #: A number is shown in KiB or MiB.
    is_bytes: bool


def option(
    read: Callable[[Any], Any], help_text: str, *, name: str = "", shown: str = "", is_bytes: bool = False
) -> dict[str, Any]:
    """Return the metadata of a field that declares an option. Its name is that of the field unless `name` is given."""
    return {"name": name, "read": read, "help_text": help_text, "shown": shown, "is_bytes": is_bytes}


def options_of(config: type[Any]) -> dict[str, Option]:
    """Return the options of a config by name."""
    declared = [field for field in fields(config) if field.metadata]
    named = {field.metadata["name"] or field.name.upper(): field for field in declared}
    return {name: Option(**{**field.metadata, "name": name, "attribute": field.name}) for name, field in named.items()}


def _reader(
    kind: type | tuple[type, ...],
    words: str,
    allowed: Callable[[Any], object] = lambda _: True,
    convert: Callable[[Any], Any] = lambda value: value,
) -> Callable[[Any], Any]:
    """Return a function that reads values of these types, if they are allowed. A bool does not count as a number."""

    def read(value: Any) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool) or not allowed(value):
            raise TypeError(words)
        return convert(value)

    return read


def read_positive_duration(value: Any) -> timedelta:
    duration = read_duration(value)
    if duration <= timedelta(0):
        raise TypeError("a timedelta or a number of seconds above zero")
    return duration


def _duration_from(least: float, words: str) -> Callable[[Any], timedelta]:
    """Return a reader of durations. Longer than any delay is a mistake in the unit, such as milliseconds."""

    def read(value: Any) -> timedelta:
        duration = read_duration(value)
        if not timedelta(seconds=least) <= duration <= MAX_DELAY:
            raise TypeError(f"a timedelta or a number of seconds {words} {MAX_DELAY.days} days")
        return duration

    return read


read_period = _duration_from(1e-6, "above zero and up to")
read_result_ttl = _duration_from(0, "from 0 to")


def read_visibility_timeout(value: Any) -> timedelta:
    duration = read_duration(value)
    # Others decide by a few heartbeats in this time: below a second a busy machine would look dead.
    if not timedelta(seconds=1) <= duration <= timedelta(days=1):
        raise TypeError("a timedelta or a number of seconds from 1 to 86,400")
    return duration


def read_ageing(value: Any) -> timedelta | None:
    if value is None:
        return None
    duration = read_duration(value)
    # 100 steps are less than the time since 1970: see lua/parts/ranks.lua.
    if not timedelta(seconds=0.01) <= duration <= timedelta(days=1):
        raise TypeError("None, or a timedelta or a number of seconds from 0.01 to 86,400")
    return duration


def _optional(read: Callable[[Any], Value]) -> Callable[[Any], Value | None]:
    return lambda value: None if value is None else read(value)


read_optional_period = _optional(read_period)
read_count = _reader(int, "a whole number from 1", lambda value: value >= 1)
read_optional_count = _optional(read_count)
#: The most partitions of a queue: a supervisor has a heartbeat in each.
MAX_PARTITIONS = 256
read_partitions = _reader(int, f"a whole number from 1 to {MAX_PARTITIONS}", lambda value: 1 <= value <= MAX_PARTITIONS)
# Consumers do not accept entries over a megabyte, so messages above this limit could not be handled.
read_size = _reader(int, "a number of bytes from 1 to 1,024,000", lambda value: 1 <= value <= 1024 * 1000)
read_share = _reader((int, float), "a number above 0 and up to 1", lambda value: 0 < value <= 1, float)
read_switch = _reader(bool, "True or False")


def read_outbox(value: Any) -> bool | Literal["handled"]:
    """Return whether there is an outbox, and "handled" if its rows are kept until their messages are handled."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, Mapping):
        raise TypeError('True, False, or a dict with "KEEP_UNTIL"')
    if wrong := [(name, " is not an option of OUTBOX: KEEP_UNTIL") for name in value if name != "KEEP_UNTIL"]:
        raise WrongParts(wrong)
    until = value.get("KEEP_UNTIL", "published")
    if until not in ("published", "handled"):
        raise WrongParts([("KEEP_UNTIL", f' must be "published" or "handled", not {repr_of(until)}')])
    return True if until == "published" else "handled"


@dataclass(frozen=True, slots=True)
class History:
    """How long a queue keeps what became of its messages, of how many, and whether with their data."""

    age: timedelta
    count: int = 100_000
    data: bool = False

    @property
    def age_ms(self) -> int:
        """Return `age` in milliseconds, from 1."""
        return max(1, round(self.age.total_seconds() * 1000))


_OF_HISTORY: Mapping[str, Callable[[Any], Any]] = {"AGE": read_period, "COUNT": read_count, "DATA": read_switch}


def _read_parts(
    option: str,
    readers: Mapping[str, Callable[[Any], Any]],
    value: Mapping[Any, Any],
    needed: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the parts of an option by the names of fields. `needed`: what is said of those that are missing."""
    wrong, found = [], {}
    for name, part in value.items():
        try:
            found[name.lower()] = readers[name](part)
        except KeyError:
            wrong.append((name, f" is not an option of {option}: {', '.join(readers)}"))
        except TypeError as error:
            wrong.append((name, f" must be {error}, not {repr_of(part, 100)}"))
    wrong += [(name, text) for name, text in needed.items() if name not in value]
    if wrong:
        raise WrongParts(wrong)
    return found


def read_history(value: Any) -> History | None:
    """Return what a queue keeps of its history; None: nothing."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return History(read_period(value))
    return History(**_read_parts("HISTORY", _OF_HISTORY, value, {"AGE": " is missing: how long the history is kept"}))


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How much of what a handler streams is kept, and for how long after its message has ended."""

    entries: int = 10_000
    bytes: int = 1024 * 1024
    ttl: timedelta = timedelta(hours=1)

    @property
    def ttl_ms(self) -> int:
        """Return `ttl` in milliseconds, from 1."""
        return max(1, round(self.ttl.total_seconds() * 1000))


_OF_STREAM: Mapping[str, Callable[[Any], Any]] = {
    "entries": _reader(int, "a whole number from 1 to 1,000,000", lambda value: 1 <= value <= 1_000_000),
    "bytes": _reader(int, "a number of bytes from 1,024 to 67,108,864", lambda value: 1024 <= value <= 64 * 1024**2),
    "ttl": read_period,
}


def read_stream(value: Any) -> StreamLimits | None:
    """Return how much a queue keeps of what its handlers stream; None: they cannot stream."""
    if value is None or isinstance(value, bool):
        return StreamLimits() if value else None
    if not isinstance(value, Mapping):
        raise TypeError("True, None, or a dict of " + ", ".join(_OF_STREAM))
    return StreamLimits(**_read_parts("STREAM", _OF_STREAM, value))


read_paths = _reader(
    (list, tuple),
    "a list of dotted paths",
    lambda value: all(isinstance(item, str) and "." in item for item in value),
    tuple,
)
read_modules = _reader(
    (list, tuple),
    "a list of dotted paths of modules",
    lambda value: all(isinstance(item, str) and all(map(str.isidentifier, item.split("."))) for item in value),
    tuple,
)


def read_retry(value: Any) -> RetryPolicy:
    # Each argument is checked alone: the delays cannot cause its error.
    found: RetryPolicy = _made(RetryPolicy, value, delay=0, max_delay=MAX_DELAY)
    return found


def read_breaker(value: Any) -> Breaker | None:
    return None if value is None else _made(Breaker, value)


def _made(kind: Any, value: Any, **neutral: Any) -> Any:
    """Return an object of a class, or of a dict of its arguments."""
    if isinstance(value, kind):
        return value
    named = kind.__name__
    if not isinstance(value, Mapping):
        raise TypeError(f"a {named}, or a dict of its arguments")
    known = [field.name for field in fields(kind)]
    wrong = [(key, f" is not an argument of {named}: {', '.join(known)}") for key in value if key not in known]
    for name in [name for name in known if name in value]:
        try:
            kind(**{**neutral, name: value[name]})
        except ConfigurationError as error:
            wrong.append((name, str(error).removeprefix(f"{named}.{name}")))
    if wrong:
        raise WrongParts(wrong)
    try:
        return kind(**value)
    except ConfigurationError as error:
        raise WrongParts([("", f": {error}")]) from error


read_on_expire = _reader(str, '"discard" or "bury"', ("discard", "bury").__contains__)
read_durability = _reader(str, '"master" or "replica"', ("master", "replica").__contains__)
read_store = _reader(str, '"stream" or "rsmq"', ("stream", "rsmq").__contains__)


def _limit(value: Any, read: Callable[[Any], Value], words: str) -> Limit[Value]:
    parts = value if isinstance(value, Mapping) else {"queue": value}
    if not parts or set(parts) - {"queue", "key"}:
        raise TypeError(f'{words}, or a dict of "queue" and "key"')
    try:
        return Limit(**{name: None if part is None else read(part) for name, part in parts.items()})
    except (TypeError, ValueError) as error:
        raise TypeError(f'{words}, or a dict of "queue" and "key"') from error


def read_rate_limit(value: Any) -> Limit[Rate]:
    return _limit(value, Rate.parse, 'a rate such as "10/s", "100/m" or "5/10s"')


def read_concurrency(value: Any) -> Limit[int]:
    return _limit(value, read_count, "a whole number from 1")


read_on_dead_letter = _reader(str, '"continue" or "hold"', ("continue", "hold").__contains__)
#: The most keys with a weight: each fetch sends them.
MAX_WEIGHTS = 1000


def read_fair(value: Any) -> Weights | None:
    if value is None or isinstance(value, bool):
        return () if value else None
    is_valid = isinstance(value, Mapping) and len(value) <= MAX_WEIGHTS
    if not is_valid or not all(isinstance(key, str) and _is_weight(weight) for key, weight in value.items()):
        raise TypeError(f"True, False, or a dict of up to {MAX_WEIGHTS:,} keys and their weights, from 0.001 to 1,000")
    return tuple(sorted((key, float(weight)) for key, weight in value.items()))


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.001 <= value <= 1000


# RSMQ allows a vt of 0. Then a message stays visible, and two consumers would handle it at once.
read_vt = _reader(
    int,
    f"a whole number of seconds from 1 to {MAX_SECONDS}",
    lambda value: 1 <= value <= MAX_SECONDS,
    lambda value: timedelta(seconds=value),
)
read_delay = _reader(int, f"a whole number of seconds from 0 to {MAX_SECONDS}", lambda value: 0 <= value <= MAX_SECONDS)


def read_maxsize(value: Any) -> int:
    try:
        # Text, as clients may pass it, is a mistake in the settings.
        return check_maxsize(value if isinstance(value, int) else None)
    except InvalidValue as error:
        raise TypeError(f"a whole number from {MIN_MAXSIZE} to {MAX_MAXSIZE}, or -1") from error


#: The longest version of a project's code, in characters.
MAX_RELEASE = 80
read_release = _reader(
    str,
    f"a text of at most {MAX_RELEASE} printed characters without |",
    lambda value: len(value) <= MAX_RELEASE and value.isprintable() and "|" not in value,
)
read_namespace = _reader(
    str, "1 to 80 letters, digits, and any of _ . : -", re.compile(r"[A-Za-z0-9_.:-]{1,80}").fullmatch
)
# With braces, because on a Redis Cluster the namespace has the hash tag.
read_rsmq_namespace = _reader(
    str, "1 to 80 letters, digits, and any of _ . : - { }", re.compile(r"[A-Za-z0-9_.:{}-]{1,80}").fullmatch
)


def _is_connection(value: str) -> bool:
    # A URL with one slash is a mistake and may contain a password. As an alias it would be shown in full.
    is_url = ":/" in value or "@" in value
    return value.startswith(URL_SCHEMES) if is_url else bool(value)


read_connection = _reader(str, f'a django-redis alias, a URL ({", ".join(URL_SCHEMES)}), or "embedded"', _is_connection)


def read_test(value: Any) -> str:
    """Return the connection of the tests; "" without one."""
    if not isinstance(value, Mapping) or set(value) - {"CONNECTION"}:
        raise TypeError('a dict with "CONNECTION"')
    return read_own_connection(value.get("CONNECTION"))


def read_own_connection(value: Any) -> str:
    """Return the connection of a queue or topic; "" for that of the project."""
    return read_connection(value) if value else ""


read_directory = _reader(
    (str, Path),
    "a path, and no URL",
    # The value of a path is shown, for example when it cannot be used.
    lambda value: "://" not in (text := str(value)) and replace_logins(text, "") == text,
    Path,
)
read_options = _reader(Mapping, "a dict of options")
read_options_by_name = _reader(Mapping, 'a dict of name: options, such as {"default": {}}')
read_signals = _reader(
    (list, tuple),
    "a list of dicts",
    lambda value: all(isinstance(item, Mapping) for item in value),
    lambda value: tuple(MappingProxyType(dict(item)) for item in value),
)
