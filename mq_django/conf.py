"""`settings.MQ_DJANGO` as frozen configs, read at the first use."""

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Warning, register  # noqa: A004 - Django's name
from django.core.serializers.json import DjangoJSONEncoder
from django.core.signals import setting_changed
from django.utils import timezone
from django.utils.functional import Promise

from mq_django.core import clock
from mq_django.core.clock import use_time_zone
from mq_django.core.jsontext import use_forms
from mq_django.core.keys import dashed, is_name
from mq_django.core.logs import get_logger
from mq_django.core.options import (
    CLUSTER_SCHEMES,
    SENTINEL_SCHEMES,
    SERVER_SCHEMES,
    URL_SCHEMES,
    WrongParts,
    options_of,
)
from mq_django.core.project import EMBEDDED, Config, Thresholds
from mq_django.core.queue_configs import DeliveryOptions, GroupConfig, QueueConfig, RsmqConfig, TopicConfig
from mq_django.core.schedules import Scheduled, read_schedule
from mq_django.core.texts import listing, repr_of
from mq_django.errors import ConfigurationError, InvalidMessage, MissingDependency, NotSupported

__all__ = [
    "EMBEDDED",
    "SENTINEL_SCHEMES",
    "SERVER_SCHEMES",
    "URL_SCHEMES",
    "Config",
    "DeliveryOptions",
    "GroupConfig",
    "Problem",
    "QueueConfig",
    "RsmqConfig",
    "TopicConfig",
    "current_time_zone",
    "default_time_zone",
    "get_config",
    "get_config_if_valid",
    "read",
    "shown_setting",
]

logger = get_logger(__name__)

NOT_INSTALLED = "This project uses mq_django, which is not in INSTALLED_APPS: its commands and other checks are missing"

#: Options that queues in RSMQ's format do not have.
_NOT_IN_RSMQ = ("BREAKER", "OUTBOX", "PARTITIONS", "PRIORITY_AGEING")
#: Names that options had before, and how to write those that are not only renamed.
_RENAMED = {
    "AFTER_BURY": "ON_DEAD_LETTER",
    "CONSUME": "EXTERNAL",
    "DIRECTORY": "EMBEDDED_DIRECTORY",
    "EXPIRED": "ON_EXPIRE",
    **dict.fromkeys(("KEEP_HANDLED", "KEEP_HANDLED_COUNT", "KEEP_HANDLED_DATA"), "HISTORY"),
}
_WRITTEN = {
    "EXTERNAL": "Write 'EXTERNAL': True for a queue that other programs handle, else nothing.",
    "HISTORY": "Write 'HISTORY': {'AGE': ..., 'COUNT': ..., 'DATA': ...}.",
}
#: Options that each queue has for itself.
_NO_DEFAULTS = ("STORE", "CONNECTION")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a setting, for `manage.py check`."""

    setting: str
    message: str
    hint: str


def shown_setting(value: Any) -> str:
    """Return a setting's value for error messages, without the password of a URL, even of one that is no URL."""
    return re.sub(r"(//?|:).*@", r"\1***@", repr_of(value, 4000))[:100]


class _Reader:
    """Reads a settings dict and collects all problems, so that `check` can report them together."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def refuse(self, setting: str, message: str, hint: str) -> None:
        self.problems.append(Problem(setting, message, hint))

    def refuse_parts(self, setting: str, error: WrongParts) -> None:
        for name, text in error.parts:
            part = f"{setting}[{repr_of(name, 300)}]" if name else setting
            self.refuse(part, f"{part}{text}.", f"Change {part}.")

    def options(self, raw: Mapping[Any, Any], config: type[Any], where: str) -> dict[str, Any]:
        options, found = options_of(config), {}
        for name, value in raw.items():
            setting = f"{where}[{repr_of(name, 300)}]"
            if name not in options and (new := _RENAMED.get(name)) in options:
                self.refuse(setting, f"{setting} is now {new}.", _WRITTEN.get(str(new), f"Write {new!r}."))
            elif name in _NOT_IN_RSMQ and config is RsmqConfig:
                self.refuse(setting, f"{setting} is not for queues in RSMQ's format.", f"Remove {name!r}.")
            elif name not in options:
                is_of_queue = config is Config and name in options_of(QueueConfig)
                where = 'It is an option of a queue, or of all in "DEFAULTS". ' if is_of_queue else ""
                self.refuse(setting, f"{setting} is not a setting.", f"{where}Use one of: {listing(options)}.")
            else:
                try:
                    found[options[name].attribute] = options[name].read(value)
                except WrongParts as error:
                    self.refuse_parts(setting, error)
                except TypeError as error:
                    message = f"{setting} must be {error}, not {shown_setting(value)}."
                    self.refuse(setting, message, f"Change {setting}.")
        return found

    def defaults(self, raw: Mapping[Any, Any]) -> dict[str, Any]:
        """Return options of all queues by the fields of QueueConfig."""
        where = 'MQ_DJANGO["DEFAULTS"]'
        for name in _NO_DEFAULTS:
            if name in raw:
                setting = f"{where}[{name!r}]"
                self.refuse(setting, f"{setting} is not for all queues.", f"Give each queue its {name}.")
        return self.options({name: raw[name] for name in raw if name not in _NO_DEFAULTS}, QueueConfig, where)

    def queues(
        self, raw: Mapping[Any, Any], defaults: Mapping[str, Any], namespace: str, connection: str
    ) -> dict[str, QueueConfig]:
        found: dict[str, QueueConfig] = {}
        for name, options in self._named(raw, "QUEUES", _queue_config, connection):
            if options.get("store") == "rsmq":
                has = options_of(RsmqConfig)
                own = {field: value for field, value in defaults.items() if field.upper() in has} | options
                found[name] = RsmqConfig(name=name, **own)
                self._check_slot(found[name], found[name].connection or connection)
            else:
                found[name] = QueueConfig(name=name, namespace=namespace, **{**defaults, **options})
                self._check_order(found[name])
        return found

    def _check_slot(self, config: QueueConfig, connection: str) -> None:
        if connection.startswith(CLUSTER_SCHEMES) and not re.search(r"\{[^}]+\}", config.namespace):
            where = f'MQ_DJANGO["QUEUES"][{config.name!r}]'
            message = f"{where} is in RSMQ's format on a Redis Cluster, and its keys would not be in one slot."
            hint = f"Give it a NAMESPACE in braces, such as {{{config.namespace}}}, and all its programs the same `ns`."
            self.refuse(where, message, hint)

    def _check_order(self, config: QueueConfig) -> None:
        where, most = f'MQ_DJANGO["QUEUES"][{config.name!r}]', config.concurrency.key
        if config.ordered and most not in (None, 1):
            message = f"{where} has ORDERED, so one message of each key runs at a time, and CONCURRENCY allows {most}."
            self.refuse(where, message, "Remove ORDERED, or 'key' of CONCURRENCY.")
        if config.on_dead_letter == "hold" and not config.ordered:
            message = f'{where} has ON_DEAD_LETTER "hold" without ORDERED: only keys with order wait for dead letters.'
            self.refuse(where, message, "Add ORDERED, or remove ON_DEAD_LETTER.")
        if config.ageing_ms and config.why_unsupported("priority"):
            message = f"{where} has PRIORITY_AGEING beside ORDERED or FAIR, which priorities would break."
            self.refuse(where, message, "Remove one of them, or write 'PRIORITY_AGEING': None.")

    def topics(
        self, raw: Mapping[Any, Any], namespace: str, connection: str, queues: Container[str]
    ) -> dict[str, TopicConfig]:
        found = {}
        for name, options in self._named(raw, "TOPICS", lambda _: TopicConfig, connection):
            called = repr_of(name, 300)
            where = f'MQ_DJANGO["TOPICS"][{called}]'
            if name in queues:
                self.refuse(where, f"{called} is the name of a queue and of a topic.", "Rename one of them.")
            found[name] = TopicConfig(name=name, namespace=namespace, **options)
            if found[name].keeps_rows:
                where += '["OUTBOX"]'
                message = f'{where} has KEEP_UNTIL "handled", and each group of a topic handles a message for itself.'
                self.refuse(where, message, "Write True.")
        return found

    def _named(
        self,
        raw: Mapping[Any, Any],
        what: str,
        config_of: Callable[[Mapping[Any, Any]], type[DeliveryOptions]],
        connection: str,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        kind = what.lower()[:-1]
        for name, options in raw.items():
            called = repr_of(name, 300)
            where = f'MQ_DJANGO["{what}"][{called}]'
            if not is_name(name):
                hint = f"{kind.capitalize()} names are 1 to 160 letters, digits, _ and -."
                if other := dashed(name):
                    hint += f" Write {other!r}: a dot is for partitions, and each {kind} has an entry of its own."
                self.refuse(where, f"{called} is not a valid name of a {kind}.", hint)
            elif not isinstance(options, Mapping):
                self.refuse(where, f"{where} must be a dict of options.", "Write {}.")
            else:
                found = self.options(options, config_of(options), where)
                if found.get("connection") == connection:
                    # Named or not, it is the same server.
                    del found["connection"]
                yield name, found

    def schedules(self, raw: Mapping[Any, Any], configs: Mapping[str, QueueConfig]) -> dict[str, Scheduled]:
        """Return the schedules whose messages can be published to their queues."""
        found = {}
        for name, entry in raw.items():
            where = f'MQ_DJANGO["SCHEDULES"][{repr_of(name, 300)}]'
            try:
                scheduled = read_schedule(name, entry, where=where)
            except WrongParts as error:
                self.refuse_parts(where, error)
            except MissingDependency as error:
                self.refuse(where, f"{where}: {error}.", "Install it, or use 'every'.")
            else:
                problem = problem_of(scheduled, configs)
                if problem is None:
                    found[name] = scheduled
                else:
                    self.problems.append(problem)
        return found


def problem_of(scheduled: Scheduled, configs: Mapping[str, QueueConfig]) -> Problem | None:
    """Return why the message of a schedule cannot be published to its queue; None: it can."""
    where, config = scheduled.where, configs.get(scheduled.queue)
    if config is None:
        message = f"{where} names the queue {repr_of(scheduled.queue)}, which is not configured."
        return Problem(where, message, f"Configured are {listing(configs)}.")
    if not config.has_schedules:
        message = f"{where} names the queue {repr_of(scheduled.queue)}, whose RSMQ format has no schedules."
        return Problem(where, message, "Let a task of another queue publish to it.")
    try:
        scheduled.publication(config)
    except (InvalidMessage, NotSupported) as error:
        return Problem(where, f"{where} cannot be published: {error}.", "Change it to a valid message.")
    return None


def _queue_config(options: Mapping[Any, Any]) -> type[QueueConfig]:
    return RsmqConfig if options.get("STORE") == "rsmq" else QueueConfig


def read(raw: Any) -> tuple[Config, list[Problem]]:
    """Return the config of a settings value, and its problems."""
    reader = _Reader()
    if not isinstance(raw, Mapping):
        reader.refuse("MQ_DJANGO", "MQ_DJANGO must be a dict.", 'Write MQ_DJANGO = {"QUEUES": {"default": {}}}.')
        raw = {}
    found = reader.options(raw, Config, "MQ_DJANGO")
    namespace = found.get("namespace", "mq")
    connection = found.get("connection", EMBEDDED)
    defaults = found["defaults"] = reader.defaults(found.get("defaults", {}))
    configs = reader.queues(found.pop("queues", {"default": {}}), defaults, namespace, connection)
    logs = reader.topics(found.pop("topics", {}), namespace, connection, configs)
    schedules = reader.schedules(found.pop("schedules", {}), configs)
    if "thresholds" in found:
        figures = reader.options(found["thresholds"], Thresholds, 'MQ_DJANGO["THRESHOLDS"]')
        found["thresholds"] = Thresholds(**figures)
    base = getattr(settings, "BASE_DIR", None)
    if base is not None and "embedded_directory" not in found:
        found["embedded_directory"] = Path(base) / ".mq_django"
    config = Config(queues=MappingProxyType(configs), topics=MappingProxyType(logs), schedules=schedules, **found)
    return config, reader.problems


# Registered here, because without the app nothing registers the other checks, and whatever publishes imports this.
@register("mq_django")
def check_installed(**_: Any) -> list[CheckMessage]:
    """Report that the package is used, and that its app is not installed."""
    if apps.is_installed("mq_django"):
        return []
    return [Warning(f"{NOT_INSTALLED}.", hint="Add 'mq_django' to INSTALLED_APPS.", id="mq_django.W010")]


@cache
def get_config() -> Config:
    """Return the config of `settings.MQ_DJANGO`.

    Raises:
        ConfigurationError: a setting is not valid. `manage.py check` reports each.
    """
    config, problems = read(getattr(settings, "MQ_DJANGO", {}))
    if problems:
        raise ConfigurationError(" ".join(problem.message for problem in problems))
    _find_app()
    return config


def _find_app() -> None:
    if apps.ready and not apps.is_installed("mq_django"):
        _warn_that_app_is_missing()


@cache
def _warn_that_app_is_missing() -> None:
    logger.warning(NOT_INSTALLED)


# Views are imported when the checks have begun, which then do not look at check_installed() any more.
_find_app()


def get_config_if_valid() -> Config | None:
    """Return the config; None if a setting is not valid, which `check` names."""
    try:
        return get_config()
    except ConfigurationError:
        return None


def default_time_zone() -> tzinfo:
    """Return the time zone of the project: with `TIME_ZONE = None` that of the system, as Django documents it."""
    return timezone.get_default_timezone() if settings.TIME_ZONE else _system_time_zone()


def current_time_zone() -> tzinfo:
    """Return the time zone that is active here. Django's own function fails with `TIME_ZONE = None`."""
    return timezone.get_current_timezone() if settings.TIME_ZONE else _system_time_zone()


@cache
def _system_time_zone() -> tzinfo:
    with suppress(OSError, ValueError, ZoneInfoNotFoundError):
        if name := os.environ.get("TZ"):
            return ZoneInfo(name)
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file, key="localtime")
    return datetime.fromtimestamp(clock.now(), UTC).astimezone().tzinfo or UTC


def _json_form(value: Any) -> Any:
    """Return what Django's JSON encoder writes for a value: dates, times, UUID, Decimal, lazy text; an enum's value."""
    return value.value if isinstance(value, Enum) else DjangoJSONEncoder().default(value)


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("MQ_DJANGO", "BASE_DIR"):
        get_config.cache_clear()


setting_changed.connect(_forget, dispatch_uid="mq_django.conf")
use_time_zone(current_time_zone, lambda: settings.USE_TZ)
use_forms(_json_form, Promise)
