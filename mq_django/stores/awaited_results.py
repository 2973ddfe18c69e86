"""Look at the results that a process waits for, and register it for those that have not ended."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mq_django.conf import QueueConfig
from mq_django.stores.results import MAX_RESULT, Result, read_result
from mq_django.transport import scripts
from mq_django.transport.fan_out import fan_out
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: Milliseconds for which a registration is valid. A process that waits for longer registers again at each look.
REGISTERED_MS = 30_000
#: Results that one script call looks at.
BATCH = 500


class SeenResult(NamedTuple):
    """What there is of a result."""

    #: Its key exists.
    exists: bool
    #: How long it was while it had not ended.
    length: int = 0
    #: It has ended.
    ended: Result | None = None


def read_ended(value: bytes) -> Result | None:
    """Return the result in the value of a key, or None if it has not ended."""
    found = read_result(value)
    return found if found is not None and found.has_ended else None


def part_with(wires: Sequence[Wire], parts: Sequence[QueueConfig], message_id: str) -> QueueConfig:
    """Return the one of these partitions that has a result; the first one if none has it.

    Args:
        wires: the wire of each.
        parts: the likely one first.
        message_id: of the result.

    Raises:
        StoreError: Redis cannot be reached, or refuses a command.
    """
    if len(parts) == 1:
        return parts[0]
    trips: list[list[Command]] = [[("EXISTS", part.keys.result(message_id))] for part in parts]
    replies = fan_out(wires, trips)
    return next((part for part, (reply,) in zip(parts, replies, strict=True) if reply_or_raise(reply)), parts[0])


def watch(wire: Wire, config: QueueConfig, known: Mapping[str, int], process: str) -> dict[str, SeenResult]:
    """Look at results, and register a process for those that have not ended.

    Args:
        wire, config: of their queue.
        known: key -> the length that the result had at the last look; 0 at the first.
        process: the end of its channel.

    Raises:
        StoreError: Redis cannot be reached, or refuses a command.
    """
    found: dict[str, SeenResult] = {}
    left = dict(known)
    while left:
        keys = list(left)[:BATCH]
        args: list[Argument] = [process, REGISTERED_MS, *(left[key] for key in keys)]
        command = scripts.command("results_watch", keys=[*keys, config.keys.waiters], args=args)
        replies = reply_or_raise(wire.trip([command])[0])
        for key, reply in zip(keys, replies, strict=False):
            length = left.pop(key)
            found[key] = seen = _read(wire, key, reply)
            if seen.exists and seen.ended is None and not isinstance(reply, int) and seen.length != length:
                # It has an ending, after which it was delivered again. It is not registered yet.
                left[key] = seen.length
    return found


def _read(wire: Wire, key: str, reply: bytes | int | None) -> SeenResult:
    if reply is None:
        return SeenResult(exists=False)
    if isinstance(reply, int):
        return SeenResult(exists=True, length=reply)
    return read_notification(wire, key, reply)


def read_notification(wire: Wire, key: str, value: bytes) -> SeenResult:
    """Return what there is of a result whose value was sent, or "" in its place if it is too long.

    Raises:
        StoreError: it was too long, and Redis cannot be reached.
    """
    if value:
        return SeenResult(exists=True, length=len(value), ended=read_ended(value))
    text = reply_or_raise(wire.trip([("GETRANGE", key, 0, MAX_RESULT - 1)])[0])
    return SeenResult(exists=bool(text), length=len(text), ended=read_ended(text))
