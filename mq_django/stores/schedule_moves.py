"""The schedules of a queue follow their messages when the number of partitions changes."""

from collections.abc import Mapping, Sequence
from operator import attrgetter

from mq_django.conf import QueueConfig
from mq_django.stores.runtime_schedules import parse, states_of
from mq_django.stores.schedule_state import home_of, named, scheduled
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: The HASHes of schedules: of those in code and settings, and of those that were created at run time.
_HASHES = (attrgetter("schedules"), attrgetter("runtime_schedules"))


def move_schedules(wire: Wire, old: QueueConfig, new: QueueConfig) -> int:
    """Move what is known of the schedules of a queue to their new partitions, and return how many moved.

    What is there already stays, and nothing is removed before it was written. So this can be repeated.
    """
    moved = 0
    for part in old.each_part:
        for key_of in _HASHES:
            states = states_of(reply_or_raise(wire.trip([("HGETALL", key_of(part.keys))])[0]))
            for name, state in states.items():
                target = _home(new, name, state).keys
                if target.queue != part.keys.queue:
                    fields = [(named(f"{kind}:", name), value) for kind, value in state.items()]
                    _move(wire, key_of(part.keys), key_of(target), fields)
                    moved += 1
    return moved


def _home(new: QueueConfig, name: str, state: Mapping[str, bytes]) -> QueueConfig:
    """Return the partition of a schedule: by the key of its messages, if that is known, else by its name."""
    own = next((entry for entry in scheduled() if (entry.queue, entry.name) == (new.name, name)), None)
    entry = parse(new, name, state["definition"]).entry if "definition" in state else own
    return new.place_of(key=None, unique=name) if entry is None else home_of(new, entry)


def _move(wire: Wire, source: str, target: str, fields: Sequence[tuple[bytes, bytes]]) -> None:
    writes: list[Command] = [("HSETNX", target, field, value) for field, value in fields]
    for reply in wire.trip(writes):
        reply_or_raise(reply)
    reply_or_raise(wire.trip([("HDEL", source, *(field for field, _ in fields))])[0])
