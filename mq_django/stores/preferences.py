"""What users choose to see of queues: those that are starred come first, and muted kinds of problems are left out."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.core.jsontext import LAST_MS, dumps, loads, whole
from mq_django.core.keys import mutes_key, stars_key
from mq_django.errors import DecodeError
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, reply_or_raise

#: Queues that a user can star, and users who can.
MAX_STARS, MAX_USERS = 50, 1000


def read_stars(namespace: str, user: str) -> Command:
    """Return the command that reads the stars of a user: see stars_in()."""
    return ("HGET", stars_key(namespace), user)


def stars_in(reply: Any) -> Sequence[str]:
    """Return the queues in a reply that are starred; none for a value that another program wrote."""
    try:
        found = loads(reply_or_raise(reply) or b"[]")
    except DecodeError:
        return ()
    return [name for name in found if isinstance(name, str)][:MAX_STARS] if isinstance(found, list) else ()


def write_stars(transport: Transport, namespace: str, user: str, queues: Sequence[str]) -> bool:
    """Keep the queues that a user has starred; return False if there are too many of them, or of users."""
    key = stars_key(namespace)
    if not queues:
        transport.ask(("HDEL", key, user))
        return True
    users, is_known = transport.ask_all([("HLEN", key), ("HEXISTS", key, user)])
    if len(queues) > MAX_STARS or (users >= MAX_USERS and not is_known):
        return False
    transport.ask(("HSET", key, user, dumps(list(queues))))
    return True


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


def read_mutes(namespace: str) -> Command:
    """Return the command that reads all mutes: see mutes_in()."""
    return ("HGETALL", mutes_key(namespace))


def mutes_in(reply: Any, now_ms: int) -> Mutes:
    """Return the mutes in a reply that have not ended. Values that other programs wrote are left out."""
    flat = reply_or_raise(reply)
    found = {_name(field): _mute(value) for field, value in zip(flat[::2], flat[1::2], strict=True)}
    return {name: mute for name, mute in found.items() if mute is not None and mute.until_ms > now_ms}


def write_mute(transport: Transport, namespace: str, queue: str, kind: str, mute: Mute, now_ms: int) -> bool:
    """Mute a kind of problem of a queue, and forget mutes that have ended; return False if there are too many."""
    key = mutes_key(namespace)
    (reply,) = transport.pipeline([read_mutes(namespace)])
    known, there = mutes_in(reply, now_ms), reply_or_raise(reply)[::2]
    ended = [field for field in there if _name(field) not in known]
    if len(known) >= MAX_MUTES and (queue, kind) not in known:
        return False
    text = dumps({"until": mute.until_ms, "who": mute.who, "reason": mute.reason})
    commands: list[Command] = [("HDEL", key, *ended)] if ended else []
    transport.ask_all([*commands, ("HSET", key, f"{kind}|{queue}", text)])
    return True


def delete_mute(transport: Transport, namespace: str, queue: str, kind: str) -> bool:
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
