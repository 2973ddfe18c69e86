"""Try which commands a Redis user may run, without running any.

The commands are queued in a transaction that is never executed. Redis checks the rights of a command when it queues it,
and forgets the queue when the connection is closed. `ACL DRYRUN` would need a right of its own.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mq_django.core.queue_configs import QueueConfig
from mq_django.errors import NotPermitted
from mq_django.inspector.doctor.findings import Seen, named
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.transport.failures import translate
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Session

#: Commands whose second word is a right of its own.
CONTAINERS = frozenset({"XGROUP", "XINFO", "MEMORY"})


class MissingRights(NamedTuple):
    """What a user may not do: the names of commands, and of the queues whose keys or channels it may not use."""

    commands: set[str]
    keys: set[str]
    channels: set[str]


def missing_rights(server: ServerFacts) -> Iterator[Seen]:
    """Report the commands, keys and channels that the queues need and the user may not use.

    Raises:
        NotPermitted: MULTI is refused.
    """
    found = MissingRights(set(), set(), set())
    for queue in server.queues:
        _try(queue, Session(server.client), found)
    if commands := sorted(found.commands):
        advice = f"ACL SETUSER NAME {' '.join('+' + name.lower().replace(' ', '|') for name in commands)}"
        yield Seen(f"The Redis user may not run {', '.join(commands)}.", advice=advice)
    uses = {"keys": found.keys, "channels": found.channels}
    if refused := [f"the {what} of {named(sorted(queues))}" for what, queues in uses.items() if queues]:
        advice = "Grant their patterns, of keys with ~ and of channels with &: docs/settings.md lists them."
        yield Seen(f"The Redis user may not use {' and '.join(refused)}.", advice=advice)


def _try(queue: QueueConfig, session: Session, found: MissingRights) -> None:
    """Add what the user may not do in a queue."""
    commands = commands_of(queue)
    try:
        # In a pipeline of its own: without a transaction the commands would run.
        (begun,) = session.pipeline([("MULTI",)])
        if begun != b"OK":
            raise NotPermitted("MULTI is refused. Add +multi to the rights of the user while you look")
        replies = session.pipeline(commands)
    finally:
        session.close()
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, Exception) and isinstance(translate(reply), NotPermitted):
            # Redis looks at the command first, then at keys and channels, and says which of them it refuses.
            if "channel" in str(reply):
                found.channels.add(queue.name)
            elif " key" in str(reply):
                found.keys.add(queue.name)
            else:
                found.commands.add(_name(command))


def _name(command: Command) -> str:
    return " ".join(map(str, command[:2])) if command[0] in CONTAINERS else str(command[0]).upper()


def commands_of(queue: QueueConfig) -> Sequence[Command]:
    """Return each command that consumers and producers send, or their scripts run, once.

    A test compares them with those that docs/settings.md has for a consumer.
    """
    # A key that nothing uses: if a proxy sent the commands to another server than MULTI, nothing would be lost.
    keys, key = queue.keys, queue.keys.result("doctor")
    return [
        ("EVAL", "return 1", 1, key),
        # A session replaces EVALSHA in capitals by the text of a script of ours.
        ("evalsha", "0" * 40, 1, key),
        ("TIME",),
        ("PUBLISH", keys.wake, ""),
        ("SUBSCRIBE", keys.wake),
        *_of_streams(key, keys.group),
        ("MEMORY", "USAGE", key),
        ("INFO",),
        ("ZADD", key, 0, "doctor"),
        ("ZREM", key, "doctor"),
        ("ZCARD", key),
        ("ZCOUNT", key, 0, 0),
        ("ZSCORE", key, "doctor"),
        ("ZRANGE", key, 0, 0),
        ("ZRANGEBYSCORE", key, 0, 0),
        ("ZREMRANGEBYSCORE", key, 0, 0),
        ("ZREMRANGEBYRANK", key, 0, 0),
        ("ZSCAN", key, 0),
        ("HSET", key, "doctor", ""),
        ("HSETNX", key, "doctor", ""),
        ("HGET", key, "doctor"),
        ("HMGET", key, "doctor"),
        ("HDEL", key, "doctor"),
        ("HEXISTS", key, "doctor"),
        ("HLEN", key),
        ("HSTRLEN", key, "doctor"),
        ("HINCRBY", key, "doctor", 0),
        ("HGETALL", key),
        ("HSCAN", key, 0),
        ("EXPIRE", key, 1),
        ("PEXPIRE", key, 1),
        ("EXISTS", key),
        ("TYPE", key),
        ("DEL", key),
        *_of_results(key),
        *_of_workflows(key),
    ]


def _of_streams(key: str, group: str) -> Sequence[Command]:
    return [
        ("XADD", key, "*", "type", ""),
        ("XACK", key, group, "0-1"),
        ("XDEL", key, "0-1"),
        ("XRANGE", key, "-", "+"),
        ("XTRIM", key, "MINID", "~", 0),
        ("XLEN", key),
        ("XREADGROUP", "GROUP", group, "doctor", "STREAMS", key, ">"),
        ("XCLAIM", key, group, "doctor", 0, "0-1"),
        ("XPENDING", key, group),
        ("XGROUP", "CREATE", key, group, 0),
        ("XGROUP", "DELCONSUMER", key, group, "doctor"),
        ("XGROUP", "SETID", key, group, 0),
        ("XINFO", "STREAM", key),
        ("XINFO", "GROUPS", key),
        ("XINFO", "CONSUMERS", key, group),
    ]


def _of_results(key: str) -> Sequence[Command]:
    return [
        ("APPEND", key, ""),
        ("SET", key, ""),
        ("GETRANGE", key, 0, 0),
        ("STRLEN", key),
        ("HRANDFIELD", key, 1),
    ]


def _of_workflows(key: str) -> Sequence[Command]:
    return [("LINDEX", key, 0), ("LLEN", key), ("LPOP", key), ("RPUSH", key, ""), ("PERSIST", key)]
