"""Starred queues: those that a user of the admin wants to see first."""

from collections.abc import Sequence
from typing import Any

from mq_django.core.jsontext import dumps, loads
from mq_django.core.keys import stars_key
from mq_django.errors import DecodeError
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, reply_or_raise

#: Queues that a user can star, and users who can.
MAX_STARS, MAX_USERS = 50, 1000


def read_command(namespace: str, user: str) -> Command:
    """Return the command that reads the stars of a user: see stars_in()."""
    return ("HGET", stars_key(namespace), user)


def stars_in(reply: Any) -> Sequence[str]:
    """Return the queues in a reply that are starred; none for a value that another program wrote."""
    try:
        found = loads(reply_or_raise(reply) or b"[]")
    except DecodeError:
        return ()
    return [name for name in found if isinstance(name, str)][:MAX_STARS] if isinstance(found, list) else ()


def write(transport: Transport, namespace: str, user: str, queues: Sequence[str]) -> bool:
    """Keep the queues that a user has starred; return False if there are too many of them, or of users."""
    key = stars_key(namespace)
    if not queues:
        transport.ask(("HDEL", key, user))
        return True
    users, is_known = map(reply_or_raise, transport.pipeline([("HLEN", key), ("HEXISTS", key, user)]))
    if len(queues) > MAX_STARS or (users >= MAX_USERS and not is_known):
        return False
    transport.ask(("HSET", key, user, dumps(list(queues))))
    return True
