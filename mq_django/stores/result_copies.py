"""The results of tasks, and what handlers report, follow the messages when the number of partitions changes."""

import re
from collections.abc import Iterator, Sequence

from mq_django.conf import QueueConfig
from mq_django.core.keys import QueueKeys
from mq_django.transport import scripts
from mq_django.transport.connections import get_clients
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Pooled, Wire, reply_or_raise

#: Keys that one command asks for, and that one SCAN looks at.
ASKED, SCANNED = 200, 1000
#: Copies that are written at a time: each may have megabytes.
WRITTEN = 20

#: The time to live of a copy is that of the key, rounded up to this, ms.
ROUNDED_MS = 1000


def copy_of_messages(wire: Wire, source: QueueConfig, target: QueueConfig, ids: Sequence[str]) -> None:
    """Move the results of tasks that have not ended, and what handlers have reported, to another partition.

    A copy that is there stays. So this can be repeated.
    """
    if source.keys.queue == target.keys.queue:
        return
    for at in range(0, len(ids), ASKED):
        pairs = [pair for each in ids[at : at + ASKED] for pair in _pairs(source.keys, target.keys, each)]
        _move(wire, pairs)


def copy_ended(wire: Wire, old: QueueConfig, new: QueueConfig) -> int:
    """Move the results of tasks that have ended to where their ids lead, and return how many there were.

    They are found by a scan of all keys of the server, once for all partitions.
    """
    sources = {part.keys.queue: part.keys for part in old.each_part}
    form = re.compile(rf"{re.escape(old.namespace)}:\{{([^{{}}]*)\}}:result:(.*)", re.DOTALL)
    found = 0
    for keys in _scanned(old):
        pairs: list[tuple[str, str]] = []
        for key in keys:
            match = form.fullmatch(key)
            if match is not None and match[1] in sources:
                target = new.places_of(match[2])[0].keys
                if target.queue != match[1]:
                    pairs.append((key, target.result(match[2])))
        found += _move(wire, pairs)
    return found


def _pairs(source: QueueKeys, target: QueueKeys, message_id: str) -> Iterator[tuple[str, str]]:
    yield source.result(message_id), target.result(message_id)
    yield source.progress(message_id), target.progress(message_id)


def _move(wire: Wire, pairs: Sequence[tuple[str, str]]) -> int:
    """Move keys with text, or with fields, and return how many there were."""
    asked = wire.trips([[("PTTL", key)] for key, _ in pairs]) if pairs else []
    there = [(pair, reply_or_raise(ms)) for pair, (ms,) in zip(pairs, asked, strict=True) if reply_or_raise(ms) > 0]
    for at in range(0, len(there), WRITTEN):
        batch = there[at : at + WRITTEN]
        reads: list[Command] = [
            ("GETRANGE", key, 0, -1) if ":result:" in key else ("HGETALL", key) for (key, _), _ in batch
        ]
        commands = list[Command]()
        for ((_, copy), ms), (value,) in zip(batch, wire.trips([[read] for read in reads]), strict=True):
            found = reply_or_raise(value)
            args: list[Argument] = [-(-ms // ROUNDED_MS) * ROUNDED_MS, *(found if isinstance(found, list) else [found])]
            commands.append(scripts.command("repartition_copy", keys=[copy], args=args))
        for (reply,) in wire.trips([[command] for command in commands]):
            reply_or_raise(reply)
        for (reply,) in wire.trips([[("DEL", key)] for (key, _), _ in batch]):
            reply_or_raise(reply)
    return len(there)


def _scanned(old: QueueConfig) -> Iterator[list[str]]:
    """Yield the keys of results of a queue, and perhaps of others."""
    escaped = re.sub(r"([*?\[\]\\^])", r"\\\1", old.namespace)
    pattern = f"{escaped}:{{{old.name}{'.*' if old.parts else '}:result:*'}"
    for client in get_clients("chores", old.connection):
        node, cursor = Pooled(client), b"0"
        while True:
            command: Command = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
            cursor, keys = reply_or_raise(node.trip([command])[0])
            yield [key.decode(errors="surrogateescape") for key in keys]
            if cursor == b"0":
                break
