"""What events for Sentry say about messages, and what they must not say."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import NAMESPACE_OID, uuid5

from django.conf import settings

from mq_django.core.messages import Message
from mq_django.core.redaction import REDACTED, redact, redact_forms, redact_text, secrets_in
from mq_django.core.schedules import SCHEDULE_HEADER, Cron, Every, Scheduled
from mq_django.core.texts import line
from mq_django.errors import MissingDependency
from mq_django.middleware import Handling
from mq_django.stores.schedules import scheduled

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.scope import add_global_event_processor
    from sentry_sdk.types import Event, Hint
    from sentry_sdk.utils import capture_internal_exceptions, event_from_exception
except ImportError as error:
    raise MissingDependency(
        "The middleware for Sentry needs the package sentry-sdk: python -m pip install 'mq-django[sentry]'"
    ) from error

#: With what `sentry` needs of the package.
__all__ = [
    "Event",
    "Hint",
    "add_global_event_processor",
    "capture_internal_exceptions",
    "event_from_exception",
    "sentry_sdk",
]

#: Tag -> the attribute of a log record about a message, see `consumers/decisions.py`.
TAGS = {
    "mq.queue": "queue",
    "mq.message": "message_name",
    "mq.message_id": "message_id",
    "mq.handler": "handler",
    "mq.attempt": "attempt",
    "mq.reason": "reason",
}
#: Sentry drops a tag that is longer.
MAX_TAG = 200
#: Fewer characters may be a part of something else.
SHORTEST = 6
#: The loggers of this package.
LOGGERS = "mq_django."

Processor = Callable[[Event, Hint], Event | None]


def describe(scope: "sentry_sdk.Scope", handling: Handling) -> None:
    """Give a scope the tags of an attempt, and its name as the transaction. Its events get what is sent of the data."""
    message = handling.message
    found = {
        "mq.queue": handling.queue,
        "mq.message": message.name,
        "mq.message_id": message.id,
        "mq.handler": handling.handler,
        "mq.attempt": handling.attempt,
    }
    for tag, value in found.items():
        scope.set_tag(tag, _tag(value))
    scope.set_transaction_name(handling.handler, source="task")
    scope.add_event_processor(_with_message(message, handling.messages))


def _sends_data() -> bool:
    """Return whether the project lets Sentry have the data of messages."""
    options = sentry_sdk.get_client().options
    # Newer versions of the SDK derive it from `send_default_pii`, unless the project sets it.
    collected = options.get("data_collection")
    return bool(collected.get("queues") if collected else options.get("send_default_pii"))


def _with_message(message: Message, messages: Sequence[Message]) -> Processor:
    def process(event: Event, _: Hint) -> Event:
        clean(event)
        found = set[str]().union(*(secrets_in([each.data, dict(each.headers)]) for each in messages))
        # The longest first: one may be a part of another, of which the rest would be left.
        secrets = sorted(found - {""}, key=len, reverse=True)
        event.update(_without(event, secrets))
        if _sends_data() and event.get("type") != "transaction":
            event.setdefault("contexts", {})["mq message"] = {
                "data": redact(message.data),
                "headers": redact(dict(message.headers)),
                "key": None if message.key is None else redact_forms(message.key),
            }
        return event

    return process


def _without(value: Any, secrets: Collection[str]) -> Any:
    """Return a part of an event without secrets of the message: a handler has them in variables of any name.

    A short one, such as a PIN, may be part of other texts, and is replaced only if it is the whole text.
    """
    if isinstance(value, dict):
        return {key: _without(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [_without(each, secrets) for each in value]
    if not isinstance(value, str):
        return value
    for secret in secrets:
        if len(secret) >= SHORTEST:
            value = value.replace(secret, REDACTED)
        elif value.strip("'\"") == secret:
            value = REDACTED
    return value


def clean(event: Event) -> None:
    """Remove what may be the data of a message, and what looks like a secret.

    Local variables contain the message in the frames of mq_django, and any part of its data in the handler's frames.
    They are sent only if the data is.
    """
    sends_data = _sends_data()
    for frame in _frames(event):
        variables = frame.pop("vars", None)
        if variables and sends_data:
            frame["vars"] = redact(variables)
    for exception in _values(event, "exception"):
        if isinstance(exception.get("value"), str):
            exception["value"] = redact_text(exception["value"])
    for crumb in _values(event, "breadcrumbs"):
        crumb.update({name: redact(crumb[name]) for name in ("message", "data") if name in crumb})
    if "extra" in event:
        event["extra"] = redact(event["extra"])
    entry: Any = event.get("logentry") or {}
    for name in ("message", "formatted"):
        if isinstance(entry.get(name), str):
            entry[name] = redact_text(entry[name])
    if "params" in entry:
        entry["params"] = redact(entry["params"])


def _values(event: Event, interface: str) -> Iterator[dict[str, Any]]:
    found: Any = event.get(interface)
    values = found.get("values") if isinstance(found, Mapping) else None
    yield from (value for value in values or () if isinstance(value, dict))


def _frames(event: Event) -> Iterator[dict[str, Any]]:
    for interface in ("exception", "threads"):
        for value in _values(event, interface):
            yield from (value.get("stacktrace") or {}).get("frames") or ()


def describe_record(event: Event, record: Any) -> None:
    """Give the event of a log line of mq_django the same tags, if the line is about a message."""
    clean(event)
    found = {tag: value for tag, name in TAGS.items() if (value := getattr(record, name, None)) not in (None, "")}
    if "mq.queue" not in found:
        return
    event["tags"] = {**dict(event.get("tags") or {}), **{tag: _tag(value) for tag, value in found.items()}}
    # Those of the process, which has logged other messages, too.
    event.pop("breadcrumbs", None)
    about = found.get("mq.handler") or found.get("mq.message") or found["mq.queue"]
    event["transaction"] = about
    if "exception" not in event:
        # The text of the line is the same for all messages, or has the id of one.
        event["fingerprint"] = [record.msg, about, str(found.get("mq.reason", ""))]


def _tag(value: object) -> str:
    return redact_forms(line(str(value)))[:MAX_TAG]


# Check-ins of Sentry's cron monitors: https://develop.sentry.dev/sdk/telemetry/check-ins/.

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
    #: The schedule that the monitor expects; None if only Redis knows it.
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
    """Return the monitor of a schedule. The end of a long name, such as a task's path, says most."""
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
