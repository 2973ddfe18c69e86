"""Where a group of a topic is in its log, as `Topic.groups()` and `Group.standing()` tell it."""

from typing import NamedTuple

from mq_django.stores.topic_stats import GroupStats


class GroupPlace(NamedTuple):
    """Where a group is in its log."""

    name: str
    #: The id of the last entry that it was given.
    offset: str
    #: Messages that it was given and that are not settled.
    pending: int
    #: Messages that it has not been given.
    lag: int
    #: How long the oldest of them has been in the log, in milliseconds; 0 when there is none.
    lag_ms: int
    #: Changes with every seek: receipts of another one are void.
    generation: int = 0
    #: The percentage of the retention by which it is behind, while that is too much.
    alarm: int | None = None
    #: Messages that retention took before it was given them.
    lost: int = 0


class Standing(NamedTuple):
    """A group against the retention of its topic."""

    place: GroupPlace
    #: How much of the retention it is behind: at 1 it begins to lose messages, or, by what it has pending, to hold up
    #: the trimming. None: there is no retention.
    share: float | None
    #: Messages from the oldest that it has pending, or else has not read, to the newest; and that one's age in ms.
    behind: int
    behind_ms: int


def standing_of(group: GroupStats) -> Standing:
    """Return a group as programs see it."""
    place = GroupPlace(*(getattr(group, name) for name in GroupPlace._fields))
    return Standing(place, group.share, group.behind, group.behind_ms)
