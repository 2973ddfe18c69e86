"""Checks of a Redis server: what it supports, and settings that endanger messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis
from redis import exceptions

from mq_django.errors import ConnectionRejected
from mq_django.transport.failures import SENTINEL_ADVICE, translated
from mq_django.transport.sessions import Session

#: The oldest supported version, and a command that it was the first to have. Servers that hide INFO have that, too.
OLDEST, COMMAND_OF_OLDEST = "7.0", "EXPIRETIME"

#: The first and last 8.10 whose RDB and AOF files may not load after an exact trim by MINID.
BROKEN_FILES = ((8, 10, 0), (8, 10, 2))


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a server."""

    #: A stable identifier.
    id: str
    #: Sentences about what was seen, and about what to do.
    seen: str
    advice: str = ""
    #: Messages would certainly be lost, or nothing would work.
    fatal: bool = False

    @property
    def message(self) -> str:
        """Return what was seen and what to do, for a log."""
        return f"{self.seen} {self.advice}".rstrip()


def examine(client: redis.Redis) -> list[Finding]:
    """Return the problems of a server.

    Raises:
        ConnectionRejected: the server and CONNECTION do not match.
        StoreError: Redis cannot be reached, or refuses INFO.
    """
    # First, because its errors explain why a connection cannot be made.
    known = _knows(client, COMMAND_OF_OLDEST)
    with translated():
        info: dict[str, Any] = client.info()
    # As Redis and older versions of Valkey say it, and as Valkey 9 does.
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):
        raise ConnectionRejected(f"The server is a Sentinel, which has no queues. {SENTINEL_ADVICE}")
    found = [
        _of_version(info, known),
        _of_eviction(info),
        _of_persistence(info, _config(client, "save")),
        _of_files(info),
    ]
    return [finding for finding in found if finding is not None]


def _knows(client: redis.Redis, command: str) -> bool:
    """Return whether the server has a command; True if it rejects the question."""
    # Not through the client: versions of redis-py parse this reply differently.
    session = Session(client)
    (reply,) = session.pipeline([("COMMAND", "INFO", command)])
    session.release()
    return isinstance(reply, Exception) or bool(reply and reply[0])


def _config(client: redis.Redis, name: str) -> str | None:
    """Return a setting of the server, or None if CONFIG is not allowed, as on many managed servers."""
    try:
        found = client.config_get(name)
    except exceptions.RedisError:
        return None
    return found.get(name)


def _of_version(info: Mapping[str, Any], known: bool) -> Finding | None:
    if known:
        return None
    seen = f"Redis {info.get('redis_version')} is too old: mq_django needs {OLDEST} or newer."
    return Finding("version", seen, fatal=True)


def _of_eviction(info: Mapping[str, Any]) -> Finding | None:
    policy, advice = str(info.get("maxmemory_policy", "noeviction")), "Set it to noeviction."
    if policy == "noeviction":
        return None
    if policy.startswith("allkeys") and info.get("maxmemory"):
        seen = f"Redis evicts any key when its memory is full (maxmemory-policy {policy}): messages would be lost."
        return Finding("eviction", seen, advice, fatal=True)
    return Finding("eviction", f"Redis may evict keys when its memory is full (maxmemory-policy {policy}).", advice)


def _of_persistence(info: Mapping[str, Any], save: str | None) -> Finding | None:
    if info.get("aof_enabled") or info.get("role") == "slave":
        return None
    advice = "Set appendonly to yes."
    if save == "":
        return Finding("persistence", "Redis does not persist data: all messages are lost when it restarts.", advice)
    seen = "Redis has no append-only file: a crash loses the messages since its last snapshot."
    return Finding("persistence", seen, advice)


def _of_files(info: Mapping[str, Any]) -> Finding | None:
    version = str(info.get("redis_version", ""))
    parts = tuple(int(part) for part in version.split(".") if part.isdecimal())
    first, last = BROKEN_FILES
    if "valkey_version" in info or not first <= parts <= last:
        return None
    seen = f"Redis {version} can write files that it cannot load again, after XTRIM or XADD with an exact MINID."
    return Finding("files", seen, "mq_django never does that, but another program may: upgrade Redis.")
