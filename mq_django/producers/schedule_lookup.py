"""Find the schedules that the methods of `schedules` are about."""

from typing import NoReturn

from mq_django.conf import QueueConfig, get_config
from mq_django.core.exceptions import repr_of
from mq_django.core.ids import is_text
from mq_django.core.schedules import Scheduled
from mq_django.errors import InvalidSchedule, NotSupported, ScheduleInCode, UnknownSchedule
from mq_django.producers.partition_check import check_partitions
from mq_django.stores.runtime_schedules import RuntimeSchedules
from mq_django.stores.schedule_state import Schedules, home_of
from mq_django.stores.schedule_status import Origin, PlannedSchedule, ScheduleStatus, statuses
from mq_django.transport.connections import Role, open_wire

OTHER_PARTITION = (
    "Schedule {name!r} would be in another partition of its queue with this key: delete it, and create it again"
)


class ScheduleLookup:
    """Finds schedules, and the stores of their states."""

    def __init__(self, role: Role = "produce") -> None:
        self._role = role

    def _runtime(self, config: QueueConfig) -> RuntimeSchedules:
        check_partitions(config)
        return RuntimeSchedules(config, open_wire(self._role, config.connection))

    def _store(self, found: PlannedSchedule) -> Schedules:
        config = get_config().queue(found.home)
        check_partitions(config)
        return (
            self._runtime(config)
            if found.origin is Origin.RUNTIME
            else Schedules(config, open_wire(self._role, config.connection))
        )

    def _find(self, config: QueueConfig, name: str) -> PlannedSchedule | None:
        if not is_named(name):
            return None
        return next(iter(statuses(config, open_wire(self._role, config.connection), name=name).found), None)

    def _existing(self, config: QueueConfig, name: str) -> PlannedSchedule:
        found = self._find(config, name)
        if found is None or found.origin is Origin.REMOVED:
            refuse_unknown(config, name)
        return found

    def _changeable(self, config: QueueConfig, name: str) -> PlannedSchedule:
        found = self._existing(config, name)
        if found.origin is not Origin.RUNTIME:
            raise ScheduleInCode(
                f"Schedule {name!r} of queue {config.name!r} is in {place_of(found)}: change it there, or pause it"
            )
        return found


def is_named(name: object) -> bool:
    """Return whether a schedule may have this name; one that others have written may have bytes that are not UTF-8."""
    return is_text(name, errors="surrogateescape")


def config_of(queue: str) -> QueueConfig:
    """Return the config of a queue that has schedules, else raise NotSupported; UnknownQueue for a partition."""
    config = get_config().whole_queue(queue)
    if not config.has_schedules:
        raise NotSupported(f"{repr_of(queue)} has no schedules: it has RSMQ's format, or is a group of a topic")
    return config


def same_home(config: QueueConfig, entry: Scheduled, before: PlannedSchedule) -> QueueConfig:
    """Return where the state of a schedule is; raise InvalidSchedule if a change would need another partition."""
    home = home_of(config, entry)
    if home.name != before.home:
        raise InvalidSchedule(OTHER_PARTITION.format(name=entry.name))
    return home


def checked_text(by: object) -> str:
    """Return the name of a user, else raise InvalidSchedule."""
    if not isinstance(by, str):
        raise InvalidSchedule(f"by must be text, such as request.user.get_username(), not {repr_of(by)}")
    return by


def place_of(found: ScheduleStatus) -> str:
    """Return where a schedule is defined, for error messages."""
    return "Redis, created at run time" if found.origin is Origin.RUNTIME else found.origin.value


def refuse_unknown(config: QueueConfig, name: str) -> NoReturn:
    """Raise UnknownSchedule."""
    raise UnknownSchedule(f"Queue {config.name!r} has no schedule {repr_of(name, 300)}")
