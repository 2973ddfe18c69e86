"""The options of a task's messages that Django's tasks do not have."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mq_django.core.publish_checks import due
from mq_django.core.times import Duration


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
        due(self.delay, None)

    def for_one(self) -> dict[str, Any]:
        """Return the options of one publication that only a single message can have."""
        return {"unique": self.unique, "unique_for": self.unique_for, "on_conflict": self.on_conflict}

    def for_all(self) -> dict[str, Any]:
        """Return the other options of a publication."""
        return {"delay": self.delay, "expires": self.expires, "key": self.key}


#: The options of most tasks, made once.
DEFAULT = Publishing()
