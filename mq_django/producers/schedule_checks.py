"""Check a schedule when it is created or changed."""

from collections.abc import Mapping
from typing import Any

from mq_django import registry
from mq_django.conf import QueueConfig, default_time_zone
from mq_django.core import clock
from mq_django.core.exceptions import repr_of
from mq_django.core.schedule_options import definition_of, read_definition
from mq_django.core.schedules import NEVER, Scheduled
from mq_django.discovery import import_declaring
from mq_django.errors import ConfigurationError, InvalidMessage, InvalidSchedule, MissingDependency, NotSupported


def checked(config: QueueConfig, name: str, options: Mapping[str, Any]) -> tuple[bytes, Scheduled]:
    """Return the definition of a schedule whose ticks can be published, and the schedule.

    Raises:
        InvalidSchedule: no schedule can have these options.
        InvalidMessage: its messages could not be sent.
        MissingDependency: croniter is not installed.
    """
    given = {option: value for option, value in options.items() if value is not None}
    path = getattr(given.get("task"), "module_path", given.get("task"))
    if path is not None:
        given["task"] = path
    try:
        definition = definition_of(given)
        entry = read_definition(config.name, name, definition)
        if path is not None:
            check_task(config, path, entry.data)
        entry.publication(config)
        _check_time(entry)
    except (MissingDependency, InvalidMessage):
        raise
    except (TypeError, ConfigurationError, NotSupported) as error:
        raise InvalidSchedule(f"Schedule {repr_of(name)}: {error}") from error
    return definition, entry


def check_task(config: QueueConfig, path: str, data: Mapping[str, Any]) -> None:
    """Check a task's arguments. Only tasks of this project have a handler, and no path is imported.

    Raises:
        TypeError: the path is not that of a task, or its function cannot be called with these arguments.
    """
    handler = registry.find(config.name, path)
    if handler is None:  # perhaps of a module that this process has not needed
        import_declaring()
        handler = registry.find(config.name, path)
    if handler is None or handler.accepts is None:
        raise TypeError(f"{repr_of(path, 300)} is not the path of a task of this project")
    handler.accepts(data["args"], data["kwargs"])


def _check_time(entry: Scheduled) -> None:
    try:
        if entry.next_ms(clock.now_ms(), default_time_zone()) != NEVER:
            return
    except (ValueError, OverflowError) as error:
        raise TypeError("its first tick would be after the year 9999") from error
    raise TypeError("it would never fire: it has no tick before it ends")
