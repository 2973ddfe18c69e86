"""Check-ins of Sentry's cron monitors: https://develop.sentry.dev/sdk/telemetry/check-ins/."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import NAMESPACE_OID, uuid5

from django.conf import settings

from mq_django.core.messages import Message
from mq_django.core.schedules import SCHEDULE_HEADER, Cron, Every, Scheduled
from mq_django.observability.sentry_package import capture_checkin, capture_internal_exceptions
from mq_django.stores.schedule_state import scheduled

#: The longest name of a monitor, and what it may not contain.
MAX_SLUG = 50
_FOREIGN = re.compile(r"[^a-z0-9_-]+")
#: Aliases of cron expressions that Sentry does not know.
_ALIASES = {"@midnight": "@daily", "@annually": "@yearly"}
#: The units of Sentry's intervals, the longest first: its monitors do not count seconds.
_UNITS = {"day": timedelta(days=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1)}


@dataclass(frozen=True)
class ScheduledRun:
    """One tick of a schedule, as a monitor sees it."""

    #: The monitor.
    slug: str
    #: The same for all attempts, in whichever process.
    id: str
    #: What the monitor expects; None if only Redis knows the schedule.
    config: Any

    def check_in(self, status: Literal["in_progress", "ok", "error"]) -> None:
        """Send a check-in. An error of the SDK must not fail the attempt."""
        with capture_internal_exceptions():
            capture_checkin(self.slug, self.id, status, monitor_config=self.config)


def run_of(message: Message) -> ScheduledRun | None:
    """Return the tick that a message is of; None if it is of no schedule, or of one that no monitor can expect."""
    name = message.headers.get(SCHEDULE_HEADER)
    if name is None:
        return None
    entry = next((each for each in scheduled() if each.id == (message.queue, name)), None)
    expected = None if entry is None else monitor_schedule(entry)
    if entry is not None and expected is None:
        return None
    config = None if expected is None else {"schedule": expected, "timezone": _zone(entry)}
    return ScheduledRun(slug(name), uuid5(NAMESPACE_OID, f"{message.queue}/{message.id}").hex, config)


def slug(name: str) -> str:
    """Return the monitor of a schedule. Of a long name, such as a task's path, the end says most."""
    return _FOREIGN.sub("-", name.lower())[-MAX_SLUG:].strip("-") or "schedule"


def monitor_schedule(entry: Scheduled) -> dict[str, Any] | None:
    """Return when a monitor expects check-ins, or None if it cannot know: for parts of a minute, and until an end."""
    if entry.ends is not None:
        return None
    match entry.when:
        case Cron(expression):
            return {"type": "crontab", "value": _ALIASES.get(expression, expression)}
        case Every(period):
            for unit, length in _UNITS.items():
                if not period % length:
                    return {"type": "interval", "value": period // length, "unit": unit}
    return None


def _zone(entry: Scheduled | None) -> str:
    zone = entry.when.zone if entry is not None and isinstance(entry.when, Cron) else None
    return zone or settings.TIME_ZONE or "UTC"
