"""Where the messages of a queue are, read past the stores."""

from collections.abc import Sequence
from typing import Any

import redis

from mq_django.core.jsontext import loads
from mq_django.core.keys import QueueKeys


def ready(client: redis.Redis, keys: QueueKeys) -> list[dict[str, Any]]:
    """Return the attributes of every entry of `ready` and then of `front`."""
    return [attributes(fields) for key in keys.streams() for _, fields in client.xrange(key)]


def attributes(fields: dict[bytes, bytes]) -> dict[str, Any]:
    """Return the attributes in an entry of either form, its data decoded."""
    found: dict[str, Any] = {name.decode(): value.decode() for name, value in fields.items()}
    body = found.pop("message", None)
    if body is not None:
        return {**loads(body.encode()), **found}
    return {**found, "data": loads(found["data"].encode())}


def delayed(client: redis.Redis, keys: QueueKeys) -> dict[str, dict[str, Any]]:
    """Return the bodies in `due`, the first due coming first, by member."""
    members: Sequence[bytes] = client.zrange(keys.due, 0, -1)
    return {member.decode(): loads(client.hget(keys.waiting, member)) for member in members}


def is_empty(client: redis.Redis, keys: QueueKeys) -> bool:
    """Tell whether nothing at all was written for a queue."""
    return next(client.scan_iter(match=f"{keys.namespace}:*", count=1000), None) is None


def now_ms(client: redis.Redis) -> int:
    """Return the server's clock in milliseconds."""
    seconds, micros = client.time()
    return seconds * 1000 + micros // 1000
