"""The triggers in `MQ_DJANGO["SIGNALS"]`."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from mq_django.conf import Config, get_config, read
from mq_django.core.logs import get_logger
from mq_django.core.publication import check_name
from mq_django.core.templates import Arguments
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError, MQError
from mq_django.triggers.declarations import (
    Enqueues,
    MessageTarget,
    Target,
    TaskTarget,
    Trigger,
    build,
    connect_waiting,
    mapping,
    on_signal,
    primary_key,
    several,
    task_arguments,
)

logger = get_logger("mq_django.triggers")

#: The keys of an entry that are arguments of `@on_signal`, and all keys.
DECLARED = signature(on_signal).parameters.keys() - {"args"}
KEYS = DECLARED | {"task", "args", "queue", "name", "data"}

_connected: list[Trigger] = []


def connect_all() -> None:
    """Connect the triggers that waited for the models, and those in the settings."""
    connect_waiting()
    _connect_configured()


def _connect_configured() -> None:
    try:
        config = get_config()
    except ConfigurationError:
        return  # reported by `manage.py check`, which an error here would prevent from running
    for number, entry in enumerate(config.signals):
        try:
            trigger = read_entry(config, number, entry)
            trigger.connect()
        except MQError as error:
            logger.error('MQ_DJANGO["SIGNALS"][%d] is not connected: %s', number, error)  # noqa: TRY400
        else:
            _connected.append(trigger)


def _reconnect(*, setting: str, **_: Any) -> None:
    if setting == "MQ_DJANGO" and apps.ready:
        while _connected:
            _connected.pop().disconnect()
        _connect_configured()


setting_changed.connect(_reconnect, dispatch_uid="mq_django.triggers")


def check_triggers(**_: Any) -> list[CheckMessage]:
    """Report each invalid entry of the setting."""
    config, _problems = read(getattr(settings, "MQ_DJANGO", {}))
    found: list[CheckMessage] = []
    for number, entry in enumerate(config.signals):
        try:
            read_entry(config, number, entry).resolve()
        except MQError as error:
            message = f'MQ_DJANGO["SIGNALS"][{number}] is not valid: {error}.'
            found.append(Error(message, hint=f'Change MQ_DJANGO["SIGNALS"][{number}].', id="mq_django.E005"))
    return found


def read_entry(config: Config, number: int, entry: Mapping[str, Any]) -> Trigger:
    """Return the trigger of an entry.

    Raises:
        ConfigurationError, InvalidMessage, UnknownQueue: the entry is not valid.
    """
    unknown = [key for key in entry if key not in KEYS]
    if unknown:
        raise ConfigurationError(f"{repr_of(unknown[0])} is not one of {', '.join(sorted(KEYS))}")
    if "signal" not in entry:
        raise ConfigurationError('it has no "signal"')
    target = _target(entry)
    config.queue(target.queue)
    declared = {
        **{name: entry[name] for name in DECLARED & entry.keys()},
        "signal": [_loaded(each) for each in several(entry["signal"])],
        "when": _loaded(entry.get("when")),
        "cancel_on": _cancellations(entry.get("cancel_on", ())),
    }
    return build(target, f"SIGNALS[{number}]", **declared)


def _target(entry: Mapping[str, Any]) -> Target:
    if "task" in entry and not {"queue", "name", "data"} & entry.keys():
        task = _loaded(entry["task"])
        if not isinstance(task, Enqueues):
            raise ConfigurationError(f"{repr_of(entry['task'])} is not a task of mq_django")
        return TaskTarget(task, task_arguments(_loaded(entry.get("args"))))
    if "queue" in entry and "name" in entry and not {"task", "args"} & entry.keys():
        return MessageTarget(entry["queue"], check_name(entry["name"]), _data(entry.get("data")))
    raise ConfigurationError('it needs "task" (and "args"), or "queue" and "name" (and "data")')


def _data(data: Any) -> Callable[[Arguments], Any]:
    if data is None:
        return primary_key
    return mapping(data if isinstance(data, str) and "{" in data else _loaded(data))


def _cancellations(entries: Any) -> Any:
    """Return `cancel_on` with its signals loaded. build() checks its form."""
    if not isinstance(entries, list | tuple):
        return entries
    return [[_loaded(each[0]), *each[1:]] if isinstance(each, list | tuple) and each else each for each in entries]


def _loaded(value: Any) -> Any:
    """Return the object at a dotted path. Any other value is returned as it is."""
    if not isinstance(value, str):
        return value
    try:
        return import_string(value)
    except ImportError as error:
        raise ConfigurationError(f"{repr_of(value)} cannot be imported: {error}") from error
