"""`settings.MQ_DJANGO` as frozen configs, read when first asked for."""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from mq_django.core.keys import NAME, QueueKeys
from mq_django.core.retries import RetryPolicy
from mq_django.errors import ConfigurationError, UnknownQueue

EMBEDDED = "embedded"
URL_SCHEMES = ("redis://", "rediss://", "unix://")

#: Settings that will come, so that whoever reads about them is told more than "unknown".
LATER = frozenset({"CONCURRENCY", "OUTBOX", "PARTITIONS", "RATE_LIMIT", "SCHEDULES", "TOPICS"})


#: A publish asks several times, and spelling a queue's keys takes 5 microseconds.
queue_keys = cache(QueueKeys)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The options of one queue, each with its default."""

    name: str
    namespace: str = "mq"
    store: str = "stream"
    #: After this long without a heartbeat of its supervisor, a delivery goes to somebody else.
    visibility_timeout: timedelta = timedelta(seconds=10)
    #: Deliveries that may fail before a message is buried.
    max_attempts: int = 25
    retry: RetryPolicy = RetryPolicy()
    #: How long a handler may run; None: without end.
    timeout: timedelta | None = None
    #: Bytes of JSON that a message's data may have.
    max_size: int = 256 * 1024
    #: Messages ready, waiting and pending together, from which a publish raises QueueFull; None: no limit.
    max_depth: int | None = None
    #: How long a task's result is kept; zero: not at all.
    result_ttl: timedelta = timedelta(days=1)

    @property
    def keys(self) -> QueueKeys:
        """Return the queue's Redis keys."""
        return queue_keys(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All of `settings.MQ_DJANGO`."""

    #: A django-redis alias, a URL, or `embedded`.
    connection: str = EMBEDDED
    namespace: str = "mq"
    #: Where the embedded server keeps its data.
    directory: Path = field(default_factory=lambda: Path.cwd() / ".mq_django")
    queues: Mapping[str, QueueConfig]
    #: Triggers without code: see `mq_django.triggers`.
    signals: tuple[Mapping[str, Any], ...] = ()

    def queue(self, name: str) -> QueueConfig:
        """Return the options of a queue, or raise UnknownQueue."""
        try:
            return self.queues[name]
        except (KeyError, TypeError):
            known = ", ".join(sorted(self.queues)) or "none"
            raise UnknownQueue(f'No queue {name!r} in MQ_DJANGO["QUEUES"]; configured: {known}') from None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a setting, as `manage.py check` says it."""

    setting: str
    message: str
    hint: str


def _duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # not a number, or more than a timedelta holds
            return timedelta(seconds=value)
    raise TypeError("a timedelta or a number of seconds")


def _positive_duration(value: Any) -> timedelta:
    duration = _duration(value)
    if duration <= timedelta(0):
        raise TypeError("a timedelta or a number of seconds above zero")
    return duration


def _optional_timeout(value: Any) -> timedelta | None:
    return None if value is None else _positive_duration(value)


def _result_ttl(value: Any) -> timedelta:
    duration = _duration(value)
    if duration < timedelta(0):
        raise TypeError("a timedelta or a number of seconds, not below zero")
    return duration


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeError("a whole number from 1")
    return value


def _optional_count(value: Any) -> int | None:
    return None if value is None else _count(value)


def _size(value: Any) -> int:
    # Consumers refuse what is over a megabyte, so a larger limit would let messages in that nobody handles.
    if _count(value) > 1024 * 1000:
        raise TypeError("a number of bytes from 1 to 1,024,000")
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError("a number")
    return value


def _exceptions(value: Any) -> tuple[type[Exception], ...]:
    if isinstance(value, list | tuple) and all(
        isinstance(item, type) and issubclass(item, Exception) for item in value
    ):
        return tuple(value)
    raise TypeError("a list of exception classes")


RETRY_ARGUMENTS = {
    "max_attempts": _optional_count,
    "delay": _duration,
    "factor": _number,
    "max_delay": _duration,
    "jitter": _number,
    "bury_on": _exceptions,
}


def _retry_argument(name: str, value: Any) -> Any:
    try:
        return RETRY_ARGUMENTS[name](value)
    except TypeError as error:
        raise TypeError(f"a RetryPolicy whose {name} is {error}") from error


def _retry(value: Any) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if not isinstance(value, Mapping):
        raise TypeError("a RetryPolicy, or a dict of its arguments")
    unknown = [key for key in value if key not in RETRY_ARGUMENTS]
    if unknown:
        raise TypeError(f"a dict of {', '.join(RETRY_ARGUMENTS)} (it has {unknown[0]!r})")
    arguments = {name: _retry_argument(name, item) for name, item in value.items()}
    try:
        return RetryPolicy(**arguments)
    except ValueError as error:
        raise TypeError(f"a RetryPolicy that can work ({error})") from error


def _store(value: Any) -> str:
    if value != "stream":
        raise TypeError('"stream"')
    return str(value)


#: Option -> what reads its value; it raises TypeError with the words for "must be ...".
QUEUE_OPTIONS = {
    "STORE": _store,
    "VISIBILITY_TIMEOUT": _positive_duration,
    "MAX_ATTEMPTS": _count,
    "RETRY": _retry,
    "TIMEOUT": _optional_timeout,
    "MAX_SIZE": _size,
    "MAX_DEPTH": _optional_count,
    "RESULT_TTL": _result_ttl,
}


def _connection(value: Any) -> str:
    is_url = isinstance(value, str) and "://" in value
    if not isinstance(value, str) or not value or (is_url and not value.startswith(URL_SCHEMES)):
        raise TypeError('a django-redis alias, a redis://, rediss:// or unix:// URL, or "embedded"')
    return value


def _namespace(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,80}", value):
        raise TypeError("1 to 80 letters, digits, and any of _ . : -")
    return value


def _directory(value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise TypeError("a path")
    return Path(value)


def _signals(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise TypeError("a list of dicts")
    return tuple(MappingProxyType(dict(item)) for item in value)


OPTIONS = {
    "CONNECTION": _connection,
    "NAMESPACE": _namespace,
    "DIRECTORY": _directory,
    "SIGNALS": _signals,
}


def _shown(value: Any) -> str:
    """Return a setting's value for people: without a URL's password, which would end up in logs."""
    return re.sub(r"//[^/@]*@", "//***@", f"{value!r:.300}")[:100]


class _Reader:
    """Reads a settings dict and collects every problem, so that `check` can name them all at once."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def refuse(self, setting: str, message: str, hint: str) -> None:
        self.problems.append(Problem(setting, message, hint))

    def options(self, raw: Mapping[Any, Any], readers: Mapping[str, Any], where: str) -> dict[str, Any]:
        found = {}
        for name, value in raw.items():
            setting = f"{where}[{name!r}]"
            if name in LATER:
                self.refuse(setting, f"{setting} is not available in this version.", f"Remove {name!r}.")
            elif name not in readers:
                known = ", ".join(sorted(readers))
                self.refuse(setting, f"{setting} is not a setting.", f"Use one of: {known}.")
            else:
                try:
                    found[str(name).lower()] = readers[name](value)
                except TypeError as error:
                    self.refuse(setting, f"{setting} must be {error}, not {_shown(value)}.", f"Change {setting}.")
        return found

    def queues(self, raw: Any, namespace: str) -> dict[str, QueueConfig]:
        where = 'MQ_DJANGO["QUEUES"]'
        if not isinstance(raw, Mapping):
            self.refuse(where, f"{where} must be a dict of name: options.", 'Write {"default": {}}.')
            return {}
        found = {}
        for name, options in raw.items():
            if not isinstance(name, str) or not NAME.fullmatch(name):
                hint = "Queue names are 1 to 160 letters, digits, _ and -."
                self.refuse(f"{where}[{name!r}]", f"{name!r} cannot name a queue.", hint)
            elif not isinstance(options, Mapping):
                self.refuse(f"{where}[{name!r}]", f"{where}[{name!r}] must be a dict of options.", "Write {}.")
            else:
                read = self.options(options, QUEUE_OPTIONS, f"{where}[{name!r}]")
                found[name] = QueueConfig(name=name, namespace=namespace, **read)
        return found


def read(raw: Any) -> tuple[Config, list[Problem]]:
    """Return the config in a settings value, and all that is wrong with it."""
    reader = _Reader()
    if not isinstance(raw, Mapping):
        reader.refuse("MQ_DJANGO", "MQ_DJANGO must be a dict.", 'Write MQ_DJANGO = {"QUEUES": {"default": {}}}.')
        raw = {}
    options = dict(raw)
    queues = options.pop("QUEUES", {"default": {}})
    found = reader.options(options, OPTIONS, "MQ_DJANGO")
    configs = reader.queues(queues, found.get("namespace", "mq"))
    base = getattr(settings, "BASE_DIR", None)
    if base is not None and "directory" not in found:
        found["directory"] = Path(base) / ".mq_django"
    return Config(queues=MappingProxyType(configs), **found), reader.problems


@cache
def get_config() -> Config:
    """Return the config of `settings.MQ_DJANGO`.

    Raises:
        ConfigurationError: a setting is wrong; `manage.py check` names each.
    """
    config, problems = read(getattr(settings, "MQ_DJANGO", {}))
    if problems:
        raise ConfigurationError(" ".join(problem.message for problem in problems))
    return config


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("MQ_DJANGO", "BASE_DIR"):
        get_config.cache_clear()


setting_changed.connect(_forget, dispatch_uid="mq_django.conf")
