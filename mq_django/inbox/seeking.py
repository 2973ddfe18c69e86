"""Move a group of a topic whose subscribers may have `@exactly_once`."""

from mq_django.conf import GroupConfig
from mq_django.core.offsets import Offset, before
from mq_django.errors import UnknownGroup
from mq_django.inbox.passes import databases_of, note_return
from mq_django.stores.log import Log
from mq_django.stores.partitioned_log import PartitionedLog


def seek(log: Log | PartitionedLog, group: GroupConfig, place: Offset, *, repeat: bool) -> None:
    """Move a group, and raise its pass before with `repeat`: see Group.seek().

    Raises:
        UnknownGroup: the group does not exist.
        InvalidOffset: `place` is not a position in a log.
        ConfigurationError: `repeat` is not possible.
        DatabaseError: a database of the subscribers cannot be written. The group was not moved.
    """
    before(place)
    if databases_of(group.name) and all(found.name != group.group for found in log.groups()):
        raise UnknownGroup(f"Topic {group.topic!r} has no group {group.group!r}")
    note_return(group.name, repeat=repeat)
    log.seek(group.group, place)
