"""A published message, as tests compare it."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from mq_django import registry
from mq_django.core.jsontext import received
from mq_django.core.publication import Publication
from mq_django.core.step_ids import STEP_NAME

#: The most characters of a value in the text of a record.
MAX_SHOWN = 300


@dataclass(frozen=True, slots=True, repr=False)
class Published:
    """A message that was published, or waits for a commit.

    Records are equal if their messages have the same content. Ids and expiry times are not compared.
    """

    #: A queue, a group or a topic.
    queue: str
    name: str
    #: As its handler receives it: a tuple is a list, a date is text.
    data: Any = None
    key: str | None = None
    unique: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    #: The argument `delay`.
    delay: timedelta | None = None
    #: The argument `deliver_at`, in UTC.
    deliver_at: datetime | None = None
    #: When it expires, in UTC.
    expires: datetime | None = field(default=None, compare=False)
    id: str = field(default="", compare=False)
    #: The path of the task that it runs, also as a step of a workflow; empty if it runs none.
    task: str = ""
    #: In a step, an argument that is the value of another step is None.
    args: Sequence[Any] = field(default_factory=list)
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return one line with the fields that have a value."""
        left_out = {"id", "task", "name", "data"} if self.task else {"id"}
        shown = [
            f"{each.name}={getattr(self, each.name)!r:.{MAX_SHOWN}}"
            for each in fields(self)
            if each.name not in left_out and getattr(self, each.name) != _default(each)
        ]
        return f"Published({', '.join(shown if not self.task else [*shown, f'task={self.task!r}'])})"


def _default(each: Any) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def published_of(publication: Publication) -> Published:
    """Return the record of a publication."""
    message, data_text, options = publication
    data = received(data_text)
    handler = registry.find(message.queue, message.name)
    # Only the handlers of tasks take arguments.
    runs_task = handler is not None and handler.accepts is not None and isinstance(data, dict)
    return Published(
        queue=message.queue,
        name=message.name,
        data=data,
        key=message.key,
        unique=message.unique,
        headers=dict(message.headers),
        priority=message.priority,
        delay=None if options.delay_ms is None else timedelta(milliseconds=options.delay_ms),
        deliver_at=utc(options.due_ms),
        expires=utc(message.expires_ms),
        id=message.id,
        task=message.name.removeprefix(STEP_NAME) if runs_task else "",
        args=data.get("args", []) if runs_task else [],
        kwargs=data.get("kwargs", {}) if runs_task else {},
    )


def utc(ms: int | None) -> datetime | None:
    """Return a time in ms since 1970 as a datetime in UTC; None for None."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
