"""The options of a task's messages that Django's tasks do not have."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mq_django.core.publish_checks import due
from mq_django.core.times import Duration
from mq_django.errors import InvalidMessage
from mq_django.task_backend.compat import InvalidTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """The options of `Queue.publish` that `using()` accepts."""

    delay: Duration | None = None
    unique: str | None = None
    unique_for: Duration | str | None = None
    on_conflict: str | None = None
    expires: Duration | datetime | None = None
    key: str | None = None
    using: str | None = None
    #: None: the backend's OPTIONS decide.
    on_commit: bool | None = None
    robust: bool = False

    def __post_init__(self) -> None:
        try:
            due(self.delay, None)
        except InvalidMessage as error:
            raise InvalidTask(str(error)) from error

    def options(self) -> dict[str, Any]:
        """Return the options for `Queue.publish`, except `on_commit`."""
        return {
            "delay": self.delay,
            "unique": self.unique,
            "unique_for": self.unique_for,
            "on_conflict": self.on_conflict,
            "expires": self.expires,
            "key": self.key,
            "using": self.using,
            "robust": self.robust,
        }


#: The options of most tasks, made once.
DEFAULT = Publishing()
