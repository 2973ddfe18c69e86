"""Try which commands a Redis user may run, without running any.

The commands are queued in a transaction that is never executed. Redis checks the rights of a command when it queues it,
on all versions, and forgets the queue when the connection is closed. `ACL DRYRUN` would need a right of its own, and
Redis 7.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mq_django.core.configs import QueueConfig
from mq_django.errors import NotPermitted
from mq_django.inspector.doctor.findings import NOT_LOOKED, DoctorFinding, named
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.transport.connections import open_session
from mq_django.transport.failures import translate
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Session


def missing_rights(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report the commands that the queues need and the user may not run."""
    missing: dict[str, list[str]] = defaultdict(list)
    for queue in server.queues:
        refused = _refused(queue, open_session("inspect", server.connection))
        if refused is None:
            yield DoctorFinding(
                code=NOT_LOOKED,
                level="note",
                seen="MULTI is refused, so the rights of the Redis user could not be tried.",
                advice="Give the user the rights that docs/settings.md lists; they include +@transaction.",
                where=server.where,
            )
            return
        for command in refused:
            missing[command].append(queue.name)
    if missing:
        yield _finding(missing, server)


def _refused(queue: QueueConfig, session: Session) -> list[str] | None:
    """Return the commands that the user may not run on the keys of a queue; None if no transaction can begin."""
    commands = commands_of(queue)
    try:
        # In a trip of its own: without a transaction the commands would run.
        (begun,) = session.trip([("MULTI",)])
        if begun != b"OK":
            return None
        replies = session.trip(commands)
    finally:
        session.close()
    return [
        _name(command)
        for command, reply in zip(commands, replies, strict=True)
        if isinstance(reply, Exception) and isinstance(translate(reply), NotPermitted)
    ]


def _finding(missing: dict[str, list[str]], server: ServerFacts) -> DoctorFinding:
    queues = sorted({name for names in missing.values() for name in names})
    # TIME has no keys.
    if len(missing) >= len(commands_of(server.queues[0])) - 1:
        seen = f"The Redis user may not use the keys of {named(queues)}."
        advice = "Give the user the keys and channels of these queues: docs/settings.md lists the patterns."
    else:
        seen = f"The Redis user may not run {', '.join(missing)} on the keys of {named(queues)}."
        advice = f"ACL SETUSER NAME {' '.join('+' + command.lower().replace(' ', '|') for command in missing)}"
    return DoctorFinding(code="D115", level="error", seen=seen, advice=advice, where=server.where)


def _name(command: Command) -> str:
    return " ".join(map(str, command[:2])) if command[0] == "XGROUP" else str(command[0]).upper()


def commands_of(queue: QueueConfig) -> Sequence[Command]:
    """Return each command that consumers and producers send, or their scripts run, once."""
    keys = queue.keys
    stream, scores, fields, text = keys.ready, keys.due, keys.waiting, keys.result("doctor")
    return [
        ("EVAL", "return 1", 1, stream),
        # A session replaces EVALSHA in capitals by the text of a script of ours.
        ("evalsha", "0" * 40, 1, stream),
        ("TIME",),
        ("PUBLISH", keys.wake, ""),
        ("SUBSCRIBE", keys.wake),
        ("XADD", stream, "*", "type", ""),
        ("XACK", stream, keys.group, "0-1"),
        ("XDEL", stream, "0-1"),
        ("XRANGE", stream, "-", "+"),
        ("XREVRANGE", stream, "+", "-"),
        ("XLEN", stream),
        ("XREADGROUP", "GROUP", keys.group, "doctor", "STREAMS", stream, ">"),
        ("XCLAIM", stream, keys.group, "doctor", 0, "0-1"),
        ("XPENDING", stream, keys.group),
        ("XGROUP", "CREATE", stream, keys.group, 0),
        ("XGROUP", "DELCONSUMER", stream, keys.group, "doctor"),
        ("XINFO", "STREAM", stream),
        ("ZADD", scores, 0, "doctor"),
        ("ZREM", scores, "doctor"),
        ("ZCARD", scores),
        ("ZCOUNT", scores, 0, 0),
        ("ZSCORE", scores, "doctor"),
        ("ZRANGE", scores, 0, 0),
        ("ZRANGEBYSCORE", scores, 0, 0),
        ("ZREMRANGEBYSCORE", scores, 0, 0),
        ("ZREMRANGEBYRANK", scores, 0, 0),
        ("HSET", fields, "doctor", ""),
        ("HSETNX", fields, "doctor", ""),
        ("HGET", fields, "doctor"),
        ("HMGET", fields, "doctor"),
        ("HDEL", fields, "doctor"),
        ("HEXISTS", fields, "doctor"),
        ("HLEN", fields),
        ("HSTRLEN", fields, "doctor"),
        ("HINCRBY", fields, "doctor", 0),
        ("HGETALL", fields),
        ("EXPIRE", fields, 1),
        ("PEXPIRE", fields, 1),
        ("EXISTS", fields),
        ("TYPE", fields),
        ("DEL", fields),
        ("APPEND", text, ""),
        ("SET", text, ""),
        ("GETRANGE", text, 0, 0),
    ]
