"""Where messages are when a run has come to rest, read from Redis past everything that is tested."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import redis

from mq_django.core.jsontext import loads
from mq_django.core.keys import KINDS, GroupKeys, QueueKeys, RsmqKeys, activity_key
from mq_django.errors import DecodeError
from tests.chaos.settings import is_beside


@dataclass(frozen=True, kw_only=True)
class Rest:
    """One queue at rest."""

    #: Ids of messages that are ready, pending or wait.
    queued: list[str] = field(default_factory=list)
    #: Ids of dead letters, one for each.
    dead: list[str] = field(default_factory=list)
    #: Dead letters that never were messages of ours.
    foreign_dead: int = 0
    #: Publishes that Redis counted.
    published: int = 0
    pending: int = 0
    #: Consumers in the streams and registered ones.
    consumers: list[str] = field(default_factory=list)
    #: Keys that are not in the schema.
    strange_keys: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


def look(client: redis.Redis, keys: QueueKeys) -> Rest:
    """Return where everything of a queue is."""
    bodies = [attributes(fields) for stream in keys.streams() for _, fields in _undone(client, keys, stream)]
    bodies += [attributes({b"message": body}) for body in _waiting(client, keys)]
    dead = [label(attributes(fields)) for _, fields in _entries(client, keys.dead)]
    return Rest(
        queued=sorted(found for body in bodies if (found := label(body))),
        dead=sorted(found for found in dead if found),
        foreign_dead=sum(not found for found in dead),
        published=_published(client, keys),
        pending=sum(_pending(client, keys, stream) for stream in keys.streams()) + _owned(client, keys),
        consumers=sorted(set(consumers(client, keys))),
        strange_keys=sorted(_strange(client, keys)),
    )


def look_at_all(client: redis.Redis, every: Sequence[QueueKeys]) -> Rest:
    """Return where everything of several queues is."""
    rests = [look(client, keys) for keys in every]
    # Each namespace's counters are in what each of its queues found.
    published = {keys.namespace: rest.published for keys, rest in zip(every, rests, strict=True)}
    return Rest(
        queued=sorted(message for rest in rests for message in rest.queued),
        dead=sorted(message for rest in rests for message in rest.dead),
        foreign_dead=sum(rest.foreign_dead for rest in rests),
        published=sum(published.values()),
        pending=sum(rest.pending for rest in rests),
        consumers=sorted({name for rest in rests for name in rest.consumers}),
        strange_keys=sorted(set.intersection(*(set(rest.strange_keys) for rest in rests))),
    )


def left(client: redis.Redis, keys: QueueKeys) -> int:
    """Return how many messages are ready, pending or wait."""
    if isinstance(keys, RsmqKeys):
        return int(client.zcard(keys.zset))
    found = 0
    for stream in keys.streams():
        if _is(client, stream, b"stream"):
            found += len(_undone(client, keys, stream)) if _is_log(keys, stream) else client.xlen(stream)
    return found + int(client.hlen(keys.waiting) if _is(client, keys.waiting, b"hash") else 0)


def consumers(client: redis.Redis, keys: QueueKeys) -> list[str]:
    """Return everybody who is known to Redis as a consumer of a queue."""
    names = [name.decode() for name in _bytes(client.hkeys(keys.consumers))]
    found = [name.partition(":")[2] for name in names if name.startswith("consumer:")]
    for stream in keys.streams():
        if client.exists(stream):
            found += [row["name"].decode() for row in client.xinfo_consumers(stream, keys.group)]
    return found


def published(client: redis.Redis, keys: QueueKeys) -> Counter[str]:
    """Return how many messages of each name Redis has counted as published: the script that publishes counts."""
    found: Counter[str] = Counter()
    for key in client.scan_iter(match=keys.hours(0).removesuffix("0") + "*", count=1000):
        counters: Any = client.hgetall(key)
        for counter, number in counters.items():
            kind, _, what = counter.decode().partition("|")[2].partition("|")
            found[what] += int(number) if kind == "published" and what else 0
    return found


def label(attributes: Mapping[str, Any]) -> str | None:
    """Return the id that the run gave a message, or None for what is not of the run."""
    data = attributes.get("data")
    found = data.get("id") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def attributes(fields: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the attributes of an entry, with what is not JSON as nothing."""
    try:
        if b"message" in fields:
            found = loads(fields[b"message"])
            found = found if isinstance(found, dict) else {}
        else:
            found = {"data": loads(fields[b"data"])} if b"data" in fields else {}
    except DecodeError:
        return {}
    if isinstance(found.get("data"), str):
        try:
            found["data"] = loads(found["data"].encode())
        except DecodeError:
            return {}
    return found


def _bytes(reply: Any) -> list[bytes]:
    """Return what a client that decodes nothing returns; redis-py's types know only of both kinds."""
    return list(reply)


def _entries(client: redis.Redis, key: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    reply: Any = client.xrange(key)
    return [(entry, fields or {}) for entry, fields in reply]


def _is(client: redis.Redis, key: str, kind: bytes) -> bool:
    return bool(client.type(key) == kind)


def _is_log(keys: QueueKeys, stream: str) -> bool:
    return isinstance(keys, GroupKeys) and stream == keys.topic.log


def _undone(client: redis.Redis, keys: QueueKeys, stream: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Return what is ready or pending in a stream; a log keeps what was handled, too."""
    if not _is_log(keys, stream) or not client.exists(stream):
        return _entries(client, stream)
    groups = [group for group in client.xinfo_groups(stream) if group["name"] == keys.group.encode()]
    if not groups:
        return _entries(client, stream)
    after: Any = client.xrange(stream, min=b"(" + groups[0]["last-delivered-id"])
    pending = client.xpending_range(stream, keys.group, "-", "+", 100_000)
    held: Any = [client.xrange(stream, row["message_id"], row["message_id"])[0] for row in pending]
    return [*held, *after]


def _waiting(client: redis.Redis, keys: QueueKeys) -> list[bytes]:
    """Return the bodies that wait; RSMQ keeps all in one place."""
    if not isinstance(keys, RsmqKeys):
        return _bytes(client.hvals(keys.waiting))
    members = _bytes(client.zrange(keys.zset, 0, -1))
    return [body for body in _bytes(client.hmget(keys.hash, members)) if body] if members else []


def _owned(client: redis.Redis, keys: QueueKeys) -> int:
    return int(client.hlen(keys.owners)) if isinstance(keys, RsmqKeys) else 0


def _pending(client: redis.Redis, keys: QueueKeys, stream: str) -> int:
    return int(client.xpending(stream, keys.group)["pending"]) if client.exists(stream) else 0


def _published(client: redis.Redis, keys: QueueKeys) -> int:
    found = 0
    for key in client.scan_iter(match=f"{keys.namespace}:*counters:h:*", count=1000):
        counters: Any = {} if is_beside(key.decode()) else client.hgetall(key)
        found += sum(int(n) for name, n in counters.items() if name.endswith(b"|published|"))
    return found


def _strange(client: redis.Redis, keys: QueueKeys) -> list[str]:
    known = {getattr(keys, name) for name in KINDS} | {keys.asleep, keys.shares}
    if isinstance(keys, GroupKeys):
        known |= {keys.topic.log, keys.topic.control, keys.topic.published}
    if isinstance(keys, RsmqKeys):
        known |= {keys.zset, keys.hash, keys.names, *keys.own()}
    known.add(activity_key(keys.namespace))
    counters = [keys.minutes(0).removesuffix("m:0"), keys.breaker(""), keys.message_stream("")]
    if isinstance(keys, GroupKeys):
        counters.append(keys.topic.minutes(0).removesuffix("m:0"))
    found = [key.decode(errors="replace") for key in _bytes(client.scan_iter(count=1000))]
    return [key for key in set(found) if key not in known and not (key.startswith(tuple(counters)) or is_beside(key))]
