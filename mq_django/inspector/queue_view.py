"""A queue for display: message counts, consumers, activity and problems."""

from dataclasses import dataclass
from typing import Literal

from mq_django.inspector.activity import NONE, Activity
from mq_django.inspector.consumers import ConsumerView

#: Age of the oldest ready message from which a queue is shown as late.
LATE_MS = 60_000

#: Minutes in which dead letters count as recent.
RECENT = 30

#: Share of failed attempts from which it is highlighted.
MANY_ERRORS = 0.05

#: Minutes over which growth is measured, and the minimum growth in messages.
GROWING, MIN_GROWTH = 10, 100

#: The possible problems of a queue, the worst first.
Problem = Literal["unreadable", "unconsumed", "unattended", "paused", "unhandled", "growing", "buried", "late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue: its messages by place, its consumers, the activity of the last hour."""

    name: str
    now_ms: int = 0
    ready: int = 0
    pending: int = 0
    delayed: int = 0
    unhandled: int = 0
    #: Over the limit of their key.
    parked: int = 0
    dead: int = 0
    #: For how long the oldest ready message has been ready, in ms; None without ready messages.
    oldest_ms: int | None = None
    #: Milliseconds until the first delayed message is due; None without delayed messages.
    next_due_ms: int | None = None
    paused: bool = False
    #: Live ones first.
    consumers: tuple[ConsumerView, ...] = ()
    #: False if other programs handle it: their consumers may not be known.
    consume: bool = True
    #: The live supervisors that do its housekeeping and have no consumers in it.
    housekeepers: tuple[ConsumerView, ...] = ()
    activity: Activity = NONE
    #: Why it cannot be read; empty when it can.
    error: str = ""

    @property
    def depth(self) -> int:
        """Return ready + waiting + pending."""
        return self.ready + self.pending + self.delayed + self.unhandled + self.parked

    @property
    def alive(self) -> int:
        """Return the number of live consumers."""
        return sum(consumer.alive and consumer.is_process for consumer in self.consumers)

    @property
    def is_served(self) -> bool:
        """Return whether a live consumer is known, or other programs handle the queue."""
        return self.alive > 0 or not self.consume

    @property
    def recently_buried(self) -> int:
        """Return how many messages became dead letters in the last half hour, if they still are."""
        return min(self.dead, sum(self.activity.buried[-RECENT:]))

    @property
    def error_share(self) -> float | None:
        """Return the share of failed attempts in the last half hour, 0 to 1; None without attempts."""
        failed = sum(self.activity.retried[-RECENT:]) + sum(self.activity.buried[-RECENT:])
        ran = failed + sum(self.activity.handled[-RECENT:])
        return failed / ran if ran else None

    @property
    def fails_often(self) -> bool:
        """Return whether the share of failed attempts is high."""
        return (self.error_share or 0.0) >= MANY_ERRORS

    @property
    def growth(self) -> int:
        """Return the growth of the queue in the last full minutes, 0 if it does not grow steadily.

        It must grow in both halves of that time, so that bursts do not count. Half of the growth must be ready, so that
        delayed messages do not count.
        """
        halves = [self._surplus(-GROWING - 1, -GROWING // 2 - 1), self._surplus(-GROWING // 2 - 1, -1)]
        total = sum(halves)
        enough = max(MIN_GROWTH, sum(self.activity.published[-GROWING - 1 : -1]) // 10)
        return total if min(halves) > 0 and total >= enough and self.ready >= total // 2 else 0

    def _surplus(self, first: int, last: int) -> int:
        gone = sum(self.activity.handled[first:last]) + sum(self.activity.buried[first:last])
        return sum(self.activity.published[first:last]) - gone

    def problems(self) -> list[Problem]:
        """Return the problems of the queue, the worst first."""
        wrong: dict[Problem, bool] = {
            "unreadable": bool(self.error),
            "unconsumed": not self.is_served and self.depth > 0,
            "unattended": not self.consume and not self.housekeepers and self.depth > 0,
            "paused": self.paused,
            "unhandled": self.unhandled > 0,
            "growing": self.is_served and not self.paused and self.growth > 0,
            "buried": self.recently_buried > 0,
            "late": self.is_served and not self.paused and (self.oldest_ms or 0) >= LATE_MS,
        }
        return [problem for problem, exists in wrong.items() if exists]
