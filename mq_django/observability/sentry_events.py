"""What events for Sentry say about messages, and what they must not say."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mq_django.core.messages import Message
from mq_django.core.redaction import redact, redact_forms, redact_text
from mq_django.core.visible import line
from mq_django.middleware import Handling
from mq_django.observability.sentry_package import Event, Hint, sentry_sdk

#: Tag -> the attribute of a log record about a message, see `consumers/failure_logs.py`.
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
    scope.add_event_processor(_with_message(message))


def _sends_data() -> bool:
    """Return whether the project lets Sentry have the data of messages."""
    options = sentry_sdk.get_client().options
    # Newer versions of the SDK derive it from `send_default_pii`, unless the project sets it.
    collected = options.get("data_collection")
    return bool(collected.get("queues") if collected else options.get("send_default_pii"))


def _with_message(message: Message) -> Processor:
    def process(event: Event, _: Hint) -> Event:
        clean(event)
        if _sends_data() and event.get("type") != "transaction":
            event.setdefault("contexts", {})["mq message"] = {
                "data": redact(message.data),
                "headers": redact(dict(message.headers)),
                "key": None if message.key is None else redact_forms(message.key),
            }
        return event

    return process


def clean(event: Event) -> None:
    """Remove what may be the data of a message, and what looks like a secret.

    Local variables contain the message in the frames of mq_django, and any part of its data in those of a handler. They
    are sent only if the data is.
    """
    sends_data = _sends_data()
    for frame in _frames(event):
        variables = frame.pop("vars", None)
        if variables and sends_data:
            frame["vars"] = redact(variables)
    for exception in _values(event, "exception"):
        if isinstance(exception.get("value"), str):
            exception["value"] = redact_text(exception["value"])
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
            stack = value.get("stacktrace")
            yield from (stack or {}).get("frames") or ()


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
