"""The public status of a topic's group, returned by `Topic.groups()` and `Group.status()`."""

from typing import NamedTuple

from mq_django.stores.topic_values import GroupStats


class GroupPosition(NamedTuple):
    """The offset of a group in its topic's log, and its pending and undelivered messages."""

    name: str
    #: The id of the last delivered entry; `0-0` for none.
    offset: str
    #: Delivered messages that are not settled.
    pending: int
    #: Undelivered messages.
    lag: int
    #: The age of the oldest undelivered message in milliseconds; 0 when there is none.
    lag_ms: int
    #: Changes with every seek. Receipts of another generation are invalid.
    generation: int = 0
    #: The percentage of the retention when the alarm was raised; None: no alarm.
    alarm: int | None = None
    #: Messages trimmed before delivery, since it subscribed.
    lost: int = 0


class GroupStatus(NamedTuple):
    """A group's position and how much of its topic's retention it uses."""

    position: GroupPosition
    #: Share of the retention. From 1 on the group loses messages, or its pending ones delay trimming. None: the topic
    #: has no retention.
    share: float | None
    #: Messages from the oldest pending or undelivered one to the newest, and the age of the oldest in milliseconds.
    behind: int
    behind_ms: int


def group_status(stats: GroupStats) -> GroupStatus:
    """Return the public status of a group with these statistics."""
    position = GroupPosition(*(getattr(stats, name) for name in GroupPosition._fields))
    return GroupStatus(position, stats.share, stats.behind, stats.behind_ms)
