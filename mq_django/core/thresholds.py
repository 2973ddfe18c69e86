"""The kinds of problems of queues, the worst first, and the figures above which a queue has one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from mq_django.core.clock import MAX_DELAY, read_duration
from mq_django.core.options import option, options_of
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError

#: The possible problems of a queue, the worst first. Those of outboxes, schedules and runs of workflows are found in
#: `mq_django.inspector.problem_list`, the others by `QueueView.problems()`.
Problem = Literal[
    "unreadable",
    "unconsumed",
    "unattended",
    "outbox",
    "stalled",
    "lost",
    "retention",
    "held",
    "breaker",
    "starved",
    "unhandled",
    "schedule",
    "stuck",
    "growing",
    "buried",
    "late",
    "paused",
    "hold",
    "ready",
    "dead",
]

#: How bad a problem is; of all those from one of these kinds on.
Severity = Literal["critical", "warning", "notice"]
_FIRST: Mapping[Problem, Severity] = {"unreadable": "critical", "retention": "warning", "paused": "notice"}


def severity_of(kind: Problem) -> Severity:
    """Return how bad a problem is."""
    kinds: tuple[Problem, ...] = get_args(Problem)
    return next(_FIRST[each] for each in reversed(kinds[: kinds.index(kind) + 1]) if each in _FIRST)


#: Causes that a queue with partitions has if one of them has it. The others are found from the sums.
OF_PARTS: frozenset[Problem] = frozenset(
    {"unreadable", "unconsumed", "unattended", "stalled", "paused", "late"},
)


def _read_age(value: Any) -> float | None:
    if value is None:
        return None
    words = "a timedelta or a number of seconds from 0, or None for no limit"
    try:
        seconds = min(read_duration(value), MAX_DELAY).total_seconds()
    except TypeError as error:
        raise TypeError(words) from error
    if seconds < 0:
        raise TypeError(words)
    return seconds


def _read_count(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise TypeError("a whole number from 0, or None for no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The figures above which a queue has a problem. None: no figure is a problem.

    Raises ConfigurationError if one is no such figure.
    """

    #: Seconds for which the oldest message that is ready, or was fetched and has not started, has waited.
    max_age: float | None = field(
        default=60,
        metadata=option(_read_age, "How long the oldest message that has not started has waited.", shown="60 s"),
    )
    #: Ready messages, and those that were fetched and have not started.
    max_ready: int | None = field(
        default=None, metadata=option(_read_count, "Messages that have not started.", shown="no limit")
    )
    #: Dead letters, however old.
    max_dead: int | None = field(
        default=None, metadata=option(_read_count, "Dead letters, however old.", shown="no limit")
    )
    #: Messages that became dead letters in the last half hour.
    max_buried: int | None = field(
        default=0, metadata=option(_read_count, "Messages that became dead letters in the last half hour.")
    )
    #: Messages without a handler in any consumer.
    max_unhandled: int | None = field(
        default=0, metadata=option(_read_count, "Messages without a handler in any consumer.")
    )
    #: Messages by which the queue has grown in ten minutes. Growth that is not steady, or below 100, counts as 0.
    max_growth: int | None = field(
        default=0,
        metadata=option(
            _read_count,
            "Messages by which the queue has grown in ten minutes. Growth that is not steady, or below 100, counts as "
            "0.",
        ),
    )
    #: Seconds for which the oldest message in an outbox has waited for its publication.
    max_outbox_age: float | None = field(
        default=60,
        metadata=option(
            _read_age,
            "How long the oldest message in an [outbox](transactions.md) has waited for its publication.",
            shown="60 s",
        ),
    )

    def __post_init__(self) -> None:
        for each in options_of(type(self)).values():
            value = getattr(self, each.attribute)
            try:
                object.__setattr__(self, each.attribute, each.read(value))
            except TypeError as error:
                raise ConfigurationError(
                    f"Thresholds.{each.attribute} must be {error}, not {repr_of(value)}"
                ) from error


def exceeds(figure: float, most: float | None) -> bool:
    """Return whether a figure is above its threshold."""
    return most is not None and figure > most
