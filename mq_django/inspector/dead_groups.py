"""The counts of dead letters by name and error, as counted when they were buried."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core.filters import FailureGroup
from mq_django.core.numbers import whole
from mq_django.errors import StoreError
from mq_django.transport.connections import open_wires
from mq_django.transport.failures import readable
from mq_django.transport.fan_out import fan_out
from mq_django.transport.sessions import Wire, reply_or_raise


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """Dead letters of one name that failed with the same error."""

    #: None: the dead letters of all groups beyond the first 1000.
    group: FailureGroup | None
    count: int
    #: When the last one was buried, in ms since 1970.
    buried_ms: int


def groups(name: str) -> list[DeadGroup]:
    """Return the counts of dead letters by name and error, largest first, as counted when they were buried.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    parts = get_config().queue(name).each_part
    each = groups_of_queues(parts, open_wires("inspect", [part.connection for part in parts]))
    for found in each:
        if isinstance(found, StoreError):
            raise found
    return _added([group for found in each if not isinstance(found, StoreError) for group in found])


def _added(found: Sequence[DeadGroup]) -> list[DeadGroup]:
    """Return groups with those of several partitions added up, largest first."""
    counts: Counter[FailureGroup | None] = Counter()
    newest: dict[FailureGroup | None, int] = {}
    for each in found:
        counts[each.group] += each.count
        newest[each.group] = max(newest.get(each.group, 0), each.buried_ms)
    groups = [DeadGroup(group=group, count=count, buried_ms=newest[group]) for group, count in counts.items()]
    return sorted(groups, key=_largest_first)


def groups_of_queues(configs: Sequence[QueueConfig], wires: Sequence[Wire]) -> list[list[DeadGroup] | StoreError]:
    """Return the same of several queues, each of which has its wire; an error for one that cannot be read."""
    replies = fan_out(wires, [[("HGETALL", config.keys.dead_groups)] for config in configs])
    return list(map(readable(_groups), replies))


def _groups(replies: Sequence[Any]) -> list[DeadGroup]:
    flat = reply_or_raise(replies[0])
    found = [group for pair in zip(flat[::2], flat[1::2], strict=True) if (group := _group(*pair))]
    return sorted(found, key=_largest_first)


def _largest_first(group: DeadGroup) -> tuple[bool, int, FailureGroup | None]:
    return group.group is None, -group.count, group.group


def _group(field: bytes, value: bytes) -> DeadGroup | None:
    error, separator, name = field.decode(errors="backslashreplace").partition("|")
    numbers = [number for part in value.split(b" ") if (number := whole(part)) is not None]
    if len(numbers) != 2:
        return None
    return DeadGroup(group=FailureGroup(name, error) if separator else None, count=numbers[0], buried_ms=numbers[1])
