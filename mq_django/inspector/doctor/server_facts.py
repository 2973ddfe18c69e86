"""What a Redis server says of itself, read in a bounded time and without writing."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import redis

from mq_django.conf import DeliveryOptions, QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.numbers import whole
from mq_django.errors import ConnectionLost, ConnectionRejected, ServerBusy, StoreError
from mq_django.registry import groups
from mq_django.transport.capabilities import Finding, examine
from mq_django.transport.connections import get_client
from mq_django.transport.failures import address
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Pooled, Transport, reply_or_raise

#: Round trips that are measured.
PINGS = 9
#: Settings that are read.
SETTINGS = ("tcp-keepalive", "client-output-buffer-limit")

#: Commands whose second word says what they do.
_CONTAINERS = ("CONFIG", "CLUSTER")


class UsedMemory(NamedTuple):
    """Bytes of memory in use, and how many there may be; 0 if unknown. `name` says whose limit it is."""

    used: int
    limit: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A server, as seen once."""

    connection: str
    #: Its address, and the setting that names it.
    where: str
    client: redis.Redis
    transport: Transport
    #: The queues, partitions and groups in code that are on it, and the names of the topics.
    queues: Sequence[QueueConfig]
    topics: Sequence[str]
    #: The fields of INFO, and settings of CONFIG; empty if refused.
    info: Mapping[str, str]
    settings: Mapping[str, str]
    cluster: Mapping[str, str]
    #: What `runconsumer` would say about it at its start.
    risks: Sequence[Finding]
    #: Command -> why the server has refused it.
    refused: Mapping[str, str]
    #: Seconds by which the server's clock is ahead of the one of this machine.
    ahead: float

    def number(self, field: str) -> int:
        """Return a number of INFO; 0 if it is missing."""
        return whole(self.info.get(field)) or 0

    @property
    def memory(self) -> UsedMemory:
        """Return how much memory it uses, of maxmemory or else of its machine."""
        used, most = self.number("used_memory"), self.number("maxmemory")
        if most:
            return UsedMemory(used, most, "maxmemory")
        return UsedMemory(used, self.number("total_system_memory"), "the machine's memory")


def server_facts(connection: str, client: redis.Redis) -> ServerFacts:
    """Read what a server says of itself.

    Args:
        connection: the CONNECTION that leads to it.
        client: to it: of a cluster, to one of its masters.

    Raises:
        ConfigurationError: CONNECTION cannot be used.
        StoreError: it cannot be reached, or does not answer.
    """
    config, transport = get_config(), Pooled(client)
    of_groups = [part for topic in config.topics for name in groups(topic) for part in config.queue(name).each_part]
    topics = [part for topic in config.topics.values() for part in topic.each_part]
    refused: dict[str, str] = {}
    ahead = _ahead(transport, refused)
    info = _fields(_ask(transport, ("INFO",), refused) or b"")
    is_cluster = info.get("cluster_enabled") == "1"
    return ServerFacts(
        connection=connection,
        # Without user and password, and with the setting that names it.
        where=f"{address(client.connection_pool)} ({config.where_is(connection)})",
        transport=transport,
        client=client,
        queues=[queue for queue in (*config.each_part(), *of_groups) if _is_on(client, queue, queue.keys.wake)],
        topics=[topic.name for topic in topics if _is_on(client, topic, topic.keys.log)],
        info=info,
        settings=_settings(transport, refused),
        cluster=_fields(_ask(transport, ("CLUSTER", "INFO"), refused) or b"") if is_cluster else {},
        # INFO is needed for all of it.
        risks=examine(client) if info else (),
        refused=refused,
        ahead=ahead,
    )


def _is_on(client: redis.Redis, config: DeliveryOptions, key: str) -> bool:
    """Return whether a queue or a topic is on a server."""
    return get_client("inspect", config.connection, key=key) is client


def _ahead(transport: Transport, refused: dict[str, str]) -> float:
    """Return how far the server's clock is ahead, by the fastest of some round trips."""
    clocks: list[tuple[float, float]] = []
    for _ in range(PINGS):
        began, at = time.monotonic(), clock.now()
        reply = None if "TIME" in refused else _ask(transport, ("TIME",), refused)
        took = time.monotonic() - began
        if isinstance(reply, list):
            clocks.append((took, _seconds(*reply) - (at + took / 2)))
    return min(clocks, default=(0.0, 0.0))[1]


def _seconds(seconds: bytes, micros: bytes) -> float:
    return (whole(seconds) or 0) + (whole(micros) or 0) / 1_000_000


def _settings(transport: Transport, refused: dict[str, str]) -> dict[str, str]:
    reply = _ask(transport, ("CONFIG", "GET", *SETTINGS), refused) or ()
    return dict(zip(map(_text, reply[::2]), map(_text, reply[1::2]), strict=True))


def _ask(transport: Transport, command: Command, refused: dict[str, str]) -> Any:
    """Return a reply, or None if the server refuses the command, as managed servers do."""
    name = " ".join(map(str, command[:2])) if command[0] in _CONTAINERS else str(command[0])
    try:
        return reply_or_raise(transport.pipeline([command])[0])
    except (ConnectionLost, ConnectionRejected, ServerBusy):
        raise
    except StoreError as error:
        refused[name] = str(error)
        return None


def _fields(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in _text(text).splitlines() if not line.startswith("#"))
    return {name: value.strip() for name, separator, value in lines if separator}


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
