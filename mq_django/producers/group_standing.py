"""The results of `Topic.groups()` and `Group.standing()`: the position and lag of a group."""

from typing import NamedTuple

from mq_django.stores.topic_stats import GroupStats


class GroupPlace(NamedTuple):
    """The position of a group in its log."""

    name: str
    #: The last entry that was delivered to it.
    offset: str
    pending: int
    #: Messages that were not delivered to it yet.
    lag: int
    #: How long the oldest of them has been in the log, in ms; 0 if there is none.
    lag_ms: int
    #: It changes with every seek. Deliveries of an earlier generation cannot be settled.
    generation: int = 0
    #: The percentage of the retention by which it lags behind while an alarm is raised, else None.
    alarm: int | None = None
    #: Messages that were trimmed before they were delivered to it.
    lost: int = 0


class Standing(NamedTuple):
    """The position of a group, compared with the retention of its topic."""

    place: GroupPlace
    #: The share of the retention by which it lags behind. From 1 it loses messages, or its pending messages delay
    #: the trimming. None: the topic has no retention.
    share: float | None
    #: The number of messages from its oldest pending or undelivered one to the newest, and the age of that oldest in
    #: ms.
    behind: int
    behind_ms: int


def standing_of(group: GroupStats) -> Standing:
    """Return the public form of a group's stats."""
    place = GroupPlace(*(getattr(group, name) for name in GroupPlace._fields))
    return Standing(place, group.share, group.behind, group.behind_ms)
