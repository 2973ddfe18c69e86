"""The passes of groups: in each of them the effects of a message happen once."""

from typing import NamedTuple

from django.db import transaction
from django.db.models import F

from mq_django.conf import GroupConfig
from mq_django.core import clock
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import Offset, before
from mq_django.core.partitions import public_name
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError, UnknownGroup
from mq_django.inbox.entries import digest_of, inbox_passes, shown
from mq_django.registry import find, handlers, names
from mq_django.stores.log import Log, PartitionedLog

NOT_REPEATABLE = (
    "repeat=True is for groups with a subscriber that is decorated with @exactly_once, and {queue!r} has none here. "
    "Any other subscriber handles a message each time that it is delivered"
)


class Pass(NamedTuple):
    """The pass in which a group is."""

    number: int = 0
    #: When it began, in milliseconds since 1970; 0: with the first message.
    raised_ms: int = 0
    #: The group was moved, or a part of its log was replayed, so that any message may come again.
    is_sought: bool = False


FIRST = Pass()


def pass_of(queue: str, using: str) -> Pass:
    """Return the pass of a queue or group in a database. Only groups, named `topic:group`, have more than one."""
    if GROUP_SEPARATOR not in queue:
        return FIRST
    rows = inbox_passes().objects.using(using).filter(pk=digest_of(public_name(queue)))
    found = rows.values_list("number", "raised_ms").first()
    return FIRST if found is None else Pass(found[0], found[1], is_sought=True)


def databases_of(queue: str) -> list[str]:
    """Return the aliases of the databases of a queue's or group's handlers with `@exactly_once`."""
    found = {handler.once for name in names(queue) if (handler := find(queue, name)) is not None}
    return sorted(alias for alias in found if alias is not None)


def once_databases() -> list[str]:
    """Return the aliases of the databases of all handlers with `@exactly_once`."""
    return sorted({entry.once for entry in handlers() if entry.once is not None})


def note_return(queue: str, *, repeat: bool) -> None:
    """Note that messages of a group come again, before they do.

    Nothing is written for a group without `@exactly_once`.

    Args:
        queue: the group, as `topic:group`.
        repeat: raise the pass, so that their effects happen again, once.

    Raises:
        ConfigurationError: `repeat` is no bool, or no subscriber of the group has `@exactly_once`.
        DatabaseError: a database cannot be written.
    """
    given: object = repeat
    if not isinstance(given, bool):
        raise ConfigurationError(f"repeat must be True or False, not {repr_of(given)}")
    if repeat:
        check_repeat(queue)
    for alias in databases_of(queue):
        _note(public_name(queue), alias, repeat=repeat)


def check_repeat(queue: str) -> None:
    """Check that the effects of a group's subscribers can be let happen again.

    Raises:
        ConfigurationError: none of them has `@exactly_once`.
    """
    if not databases_of(queue):
        raise ConfigurationError(NOT_REPEATABLE.format(queue=queue))


def _note(queue: str, using: str, *, repeat: bool) -> None:
    digest, rows = digest_of(queue), inbox_passes().objects.using(using)
    with transaction.atomic(using=using):
        rows.get_or_create(digest=digest, defaults={"queue": shown(queue, 321)})
        if repeat:
            rows.filter(pk=digest).update(number=F("number") + 1, raised_ms=clock.now_ms())


# Move a group of a topic whose subscribers may have `@exactly_once`.


def seek(log: Log | PartitionedLog, group: GroupConfig, position: Offset, *, repeat: bool) -> None:
    """Move a group, and raise its pass before with `repeat`: see Group.seek().

    Raises:
        UnknownGroup: the group does not exist.
        InvalidOffset: `position` is none in a log.
        ConfigurationError: `repeat` is not possible.
        DatabaseError: a database of the subscribers cannot be written. The group was not moved.
    """
    before(position)
    if databases_of(group.name) and all(found.name != group.group for found in log.groups()):
        raise UnknownGroup(f"Topic {group.topic!r} has no group {group.group!r}")
    note_return(group.name, repeat=repeat)
    log.seek(group.group, position)
