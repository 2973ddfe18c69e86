"""`settings.MQ_DJANGO` as frozen configs, read when first asked for."""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from mq_django.core.configs import EMBEDDED, Config, GroupConfig, Handling, QueueConfig, TopicConfig
from mq_django.core.keys import NAME
from mq_django.core.retries import RetryPolicy
from mq_django.errors import ConfigurationError

__all__ = [
    "EMBEDDED",
    "URL_SCHEMES",
    "Config",
    "GroupConfig",
    "Handling",
    "Problem",
    "QueueConfig",
    "TopicConfig",
    "get_config",
    "read",
]

URL_SCHEMES = ("redis://", "rediss://", "unix://")

#: Settings of the design that this version does not have.
LATER = frozenset({"PARTITIONS", "OUTBOX"})


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


def _retry(value: Any) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if not isinstance(value, Mapping):
        raise TypeError("a RetryPolicy, or a dict of its arguments")
    arguments: dict[str, Any] = dict(value)
    for name in ("delay", "max_delay"):
        if name in arguments:
            arguments[name] = _duration(arguments[name])
    try:
        return RetryPolicy(**arguments)
    except ValueError as error:
        raise TypeError(str(error)) from error


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


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise TypeError("a number above 0 and up to 1")
    return float(value)


TOPIC_OPTIONS = {
    "RETENTION": _optional_timeout,
    "RETENTION_COUNT": _optional_count,
    "RETENTION_BYTES": _optional_count,
    "RETENTION_ALARM": _share,
    "DUPLICATE_WINDOW": _positive_duration,
    "VISIBILITY_TIMEOUT": _positive_duration,
    "MAX_ATTEMPTS": _count,
    "RETRY": _retry,
    "TIMEOUT": _optional_timeout,
    "MAX_SIZE": _size,
}


def _connection(value: Any) -> str:
    if not isinstance(value, str) or not value:
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
                    self.refuse(setting, f"{setting} must be {error}, not {value!r:.100}.", f"Change {setting}.")
        return found

    def queues(self, raw: Any, namespace: str) -> dict[str, QueueConfig]:
        return {
            name: QueueConfig(name=name, namespace=namespace, **options)
            for name, options in self._named(raw, "QUEUES", QUEUE_OPTIONS)
        }

    def topics(self, raw: Any, namespace: str, queues: Container[str]) -> dict[str, TopicConfig]:
        found = {}
        for name, options in self._named(raw, "TOPICS", TOPIC_OPTIONS):
            if name in queues:
                self.refuse(
                    f'MQ_DJANGO["TOPICS"][{name!r}]', f"{name!r} names a queue and a topic.", "Rename one of them."
                )
            found[name] = TopicConfig(name=name, namespace=namespace, **options)
        return found

    def _named(self, raw: Any, what: str, readers: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        where, kind = f'MQ_DJANGO["{what}"]', what.lower()[:-1]
        if not isinstance(raw, Mapping):
            self.refuse(where, f"{where} must be a dict of name: options.", 'Write {"default": {}}.')
            return
        for name, options in raw.items():
            if not isinstance(name, str) or not NAME.fullmatch(name):
                hint = f"{kind.capitalize()} names are 1 to 160 letters, digits, _ and -."
                self.refuse(f"{where}[{name!r}]", f"{name!r} cannot name a {kind}.", hint)
            elif not isinstance(options, Mapping):
                self.refuse(f"{where}[{name!r}]", f"{where}[{name!r}] must be a dict of options.", "Write {}.")
            else:
                yield name, self.options(options, readers, f"{where}[{name!r}]")


def read(raw: Any) -> tuple[Config, list[Problem]]:
    """Return the config in a settings value, and all that is wrong with it."""
    reader = _Reader()
    if not isinstance(raw, Mapping):
        reader.refuse("MQ_DJANGO", "MQ_DJANGO must be a dict.", 'Write MQ_DJANGO = {"QUEUES": {"default": {}}}.')
        raw = {}
    options = dict(raw)
    queues = options.pop("QUEUES", {"default": {}})
    topics = options.pop("TOPICS", {})
    found = reader.options(options, OPTIONS, "MQ_DJANGO")
    namespace = found.get("namespace", "mq")
    configs = reader.queues(queues, namespace)
    logs = reader.topics(topics, namespace, configs)
    base = getattr(settings, "BASE_DIR", None)
    if base is not None and "directory" not in found:
        found["directory"] = Path(base) / ".mq_django"
    return Config(queues=MappingProxyType(configs), topics=MappingProxyType(logs), **found), reader.problems


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
