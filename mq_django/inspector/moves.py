"""Move dead letters to another queue."""

from collections.abc import Iterable, Sequence

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.partitions import public_name
from mq_django.core.texts import repr_of
from mq_django.errors import NotSupported, QueueFull, StoreError
from mq_django.inspector.actions import Outcome
from mq_django.inspector.queues import require_queue
from mq_django.inspector.stream_reader import one_queue
from mq_django.stores.dead_letters import is_entry, open_dead_letters
from mq_django.stores.moving import REFUSED, Mover
from mq_django.transport.connections import open_wire


def targets(name: str) -> list[str]:
    """Return the queues, and groups of topics, to which the dead letters of one can be moved."""
    config = get_config()
    groups = [group for topic in config.topics for group in registry.groups(topic)]
    return sorted(found for found in {*config.queues, *groups} - {name} if config.queue(found).partitions == 1)


def check_target(name: str, target: str) -> QueueConfig:
    """Return the options of the queue to which dead letters of `name` are to be moved.

    Raises:
        UnknownQueue: it is not configured, or there is no such group of a topic.
        NotSupported: it is the same queue, or a topic.
        StoreError: cannot reach Redis.
    """
    config = get_config()
    if public_name(target) == public_name(name):
        raise NotSupported(f"The dead letters are those of queue {name!r}: redrive them instead of moving them")
    if target in config.topics:
        raise NotSupported(
            f"{repr_of(target)} is a topic: dead letters are moved to a queue, or to one group of a topic"
        )
    require_queue(target)
    found = config.queue(target)
    if found.partitions > 1:
        raise NotSupported(f"{repr_of(target)} has or is a partition: dead letters are not moved to these")
    return found


def move(name: str, target: str, entries: Sequence[str]) -> Outcome:
    """Move dead letters to another queue, each at its first attempt.

    A message keeps its id, name, data, key, headers, time of publication and the history of its attempts, and the
    priority and the unique key where the format of the target has them. It no longer expires. Those that the target
    refuses stay where they are: they are too long for it, or another message has the id in RSMQ's format.

    If it is interrupted, it can be repeated within a week: no message is lost, and none is in the target twice.

    Args:
        name: the queue, or the group of a topic as `topic:group`.
        target: the queue that gets them, or the group of a topic. It may have another format and be on another server.
        entries: the entries of the dead letters.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: dead letters cannot be moved there.
        StoreError: cannot reach Redis to look for the group of a topic.
    """
    source, into = one_queue(name), check_target(name, target)
    mover = Mover(source, open_wire("inspect", source.connection), into)
    chosen = list(dict.fromkeys(entries))
    outcome = Outcome(missing=sum(not is_entry(entry) for entry in chosen))
    left = [entry for entry in chosen if is_entry(entry)]
    while left and outcome.error is None:
        left = _step(mover, left, into, outcome)
    return outcome


def move_messages(name: str, target: str, message_ids: Sequence[str]) -> Outcome:
    """Move dead letters to another queue, each at its first attempt; a message keeps all that the other can hold.

    Args:
        name: the queue.
        target: the queue that gets them, or the group of a topic.
        message_ids: the ids of their messages.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: dead letters cannot be moved there.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    check_target(name, target)
    config, left, outcome = get_config().queue(name), list(dict.fromkeys(message_ids)), Outcome()
    wire = open_wire("inspect", config.connection)
    for part in config.each_part:
        if not left or outcome.error is not None:
            break
        entries = open_dead_letters(part, wire).find(left)
        found = move(part.name, target, [entry for entry in entries if entry is not None])
        outcome.done, outcome.refused = outcome.done + found.done, outcome.refused + found.refused
        outcome.missing, outcome.error = outcome.missing + found.missing, found.error
        left = [message_id for message_id, entry in zip(left, entries, strict=True) if entry is None]
    outcome.missing += len(left)
    return outcome


def without_handler(target: str, names: Iterable[str]) -> list[str]:
    """Return those of some names of messages for which no handler of a queue is registered in this project.

    It is empty if other programs handle the queue.
    """
    if get_config().queue(target).external:
        return []
    return sorted(name for name in set(names) if registry.find(target, name) is None)


def _step(mover: Mover, entries: list[str], target: QueueConfig, outcome: Outcome) -> list[str]:
    """Move the first of some dead letters, and return the others."""
    try:
        words, is_full = mover.write(entries[:100])
        mover.remove(entries, words)
    except StoreError as error:
        outcome.error = error
        return entries
    outcome.missing += words.count("MISSING")
    outcome.refused += sum(word in REFUSED for word in words)
    outcome.done += sum(word not in REFUSED and word != "MISSING" for word in words)
    if is_full:
        outcome.error = QueueFull(f"Queue {target.name!r} is at its MAX_DEPTH of {target.max_depth}")
    return entries[len(words) :]
