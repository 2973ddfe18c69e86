"""Take the queues and topics away for a while, and put them back as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

from mq_django.conf import get_config
from mq_django.transport.connections import open_wire
from mq_django.transport.scripts import MOVED_CLOCK, Command
from mq_django.transport.sessions import Wire, reply_or_raise
from mq_django.transport.test_server import key_patterns


@contextmanager
def without_keys() -> Iterator[None]:
    """Let all queues and topics be empty while a block runs. Then they have their messages again."""
    wires = [open_wire("chores", connection) for connection in get_config().connections()]
    saved = [(wire, _dumped(wire)) for wire in wires]
    delete_all()
    try:
        yield
    finally:
        delete_all()
        for wire, commands in saved:
            _send(wire, commands)


def delete_all() -> None:
    """Delete all keys of the queues and topics. The moved time stays."""
    for connection in get_config().connections():
        wire = open_wire("chores", connection)
        _send(wire, [("UNLINK", key) for key in _keys(wire)])


def _dumped(wire: Wire) -> list[Command]:
    """Return the commands that restore the keys of a server as they are now."""
    commands: list[Command] = []
    for key in _keys(wire):
        lifetime, content = wire.trip([("PTTL", key), ("DUMP", key)])
        # It may have expired in between.
        if content is not None:
            left_ms = max(0, int(reply_or_raise(lifetime)))
            commands.append(("RESTORE", key, left_ms, reply_or_raise(content), "REPLACE"))
    return commands


def _keys(wire: Wire) -> set[bytes]:
    found: set[bytes] = set()
    for pattern in key_patterns(get_config()):
        cursor: bytes = b"0"
        while cursor:
            (reply,) = wire.trip([("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)])
            cursor, keys = reply_or_raise(reply)
            found.update(keys)
            cursor = b"" if int(cursor) == 0 else cursor
    return found - {MOVED_CLOCK.encode()}


def _send(wire: Wire, commands: list[Command]) -> None:
    for (reply,) in wire.trips([[command] for command in commands]):
        reply_or_raise(reply)
