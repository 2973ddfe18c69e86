"""The options of a task's messages that Django's tasks do not have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mq_django.core import clock
from mq_django.core.messages import NO_HEADERS
from mq_django.core.publish_checks import check_headers, check_text, due, expiry, uniqueness
from mq_django.core.times import Duration
from mq_django.producers.sinks import check_sending


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
    outbox: bool | None = None
    #: These two are no part of the hash, because a dict has none.
    headers: Mapping[str, str] | None = field(default=None, hash=False)
    #: Internal: the headers that carry a timeout and a retry policy.
    of_call: Mapping[str, str] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        due(self.delay, None)
        object.__setattr__(self, "headers", dict(check_headers(self.headers or NO_HEADERS)) or None)
        if self.expires is not None:
            expiry(self.expires, clock.now_ms())
        for option, value in (("unique", self.unique), ("key", self.key)):
            if value is not None:
                check_text(option, value)
        # A unique key and a due time may come with a later using(): publication() checks that they do.
        uniqueness("", self.unique_for, self.on_conflict, waits=True)
        check_sending(
            self.using, on_commit=self.on_commit is None or self.on_commit, robust=self.robust, outbox=self.outbox
        )

    def for_one(self) -> dict[str, Any]:
        """Return the options of one publication that only a single message can have."""
        return {"unique": self.unique, "unique_for": self.unique_for, "on_conflict": self.on_conflict}

    def for_all(self) -> dict[str, Any]:
        """Return the other options of a publication."""
        return {"delay": self.delay, "expires": self.expires, "key": self.key, "headers": self.all_headers}

    @property
    def all_headers(self) -> Mapping[str, str]:
        """Return the headers of a message: those of a timeout and a retry policy, too."""
        return {**(self.headers or {}), **self.of_call} if self.of_call else self.headers or NO_HEADERS


#: The options of most tasks, made once.
DEFAULT = Publishing()
