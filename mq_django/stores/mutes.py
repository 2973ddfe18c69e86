"""Muted problems: kinds of problems of queues that are left out until a time, with who muted them, and why."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mq_django.core.jsontext import dumps, loads
from mq_django.core.keys import mutes_key
from mq_django.core.numbers import LAST_MS, whole
from mq_django.errors import DecodeError
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, reply_or_raise

#: Mutes that are kept. The next one then needs the end of another.
MAX_MUTES = 1000


class Mute(NamedTuple):
    """The end of a muted kind of problem, and who muted it and why."""

    #: Until when, in ms since 1970.
    until_ms: int
    who: str
    reason: str


#: Queue and kind of problem -> its mute.
Mutes = Mapping[tuple[str, str], Mute]


def read_command(namespace: str) -> Command:
    """Return the command that reads all mutes: see mutes_in()."""
    return ("HGETALL", mutes_key(namespace))


def mutes_in(reply: Any, now_ms: int) -> Mutes:
    """Return the mutes in a reply that have not ended. Values that other programs wrote are left out."""
    flat = reply_or_raise(reply)
    found = {_name(field): _mute(value) for field, value in zip(flat[::2], flat[1::2], strict=True)}
    return {name: mute for name, mute in found.items() if mute is not None and mute.until_ms > now_ms}


def write(transport: Transport, namespace: str, queue: str, kind: str, mute: Mute, now_ms: int) -> bool:
    """Mute a kind of problem of a queue, and forget mutes that have ended; return False if there are too many."""
    key = mutes_key(namespace)
    (reply,) = transport.pipeline([read_command(namespace)])
    known, there = mutes_in(reply, now_ms), reply_or_raise(reply)[::2]
    ended = [field for field in there if _name(field) not in known]
    if len(known) >= MAX_MUTES and (queue, kind) not in known:
        return False
    text = dumps({"until": mute.until_ms, "who": mute.who, "reason": mute.reason})
    commands: list[Command] = [("HDEL", key, *ended)] if ended else []
    replies = transport.pipeline([*commands, ("HSET", key, f"{kind}|{queue}", text)])
    reply_or_raise(replies[-1])
    return True


def delete(transport: Transport, namespace: str, queue: str, kind: str) -> bool:
    """Unmute a kind of problem of a queue, and return whether it was muted."""
    return bool(transport.ask(("HDEL", mutes_key(namespace), f"{kind}|{queue}")))


def _name(field: bytes) -> tuple[str, str]:
    kind, _, queue = field.decode(errors="replace").partition("|")
    return queue, kind


def _mute(value: bytes) -> Mute | None:
    try:
        found = loads(value)
        until_ms = whole(found["until"], LAST_MS)
        return None if until_ms is None else Mute(until_ms, str(found["who"]), str(found["reason"]))
    except (DecodeError, LookupError, TypeError):
        return None
