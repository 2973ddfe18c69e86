"""Looks at a Redis server: settings and states that endanger messages, or slow their handling down."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import redis
from redis.exceptions import RedisError, ResponseError
from redis.sentinel import SentinelConnectionPool

from mq_django.conf import DeliveryOptions, QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.jsontext import whole
from mq_django.errors import ConnectionLost, ConnectionRejected, NotPermitted, ServerBusy, StoreError, WrongNode
from mq_django.inspector.doctor.findings import NOT_CHECKED, DoctorCheck, Seen, mib, named
from mq_django.registry import groups
from mq_django.transport.capabilities import Finding, examine
from mq_django.transport.connections import get_client
from mq_django.transport.failures import address, translate
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sentinel_urls import sentinel_address
from mq_django.transport.sessions import Pooled, Session, Transport

# What a Redis server says of itself, read in a bounded time and without writing.

#: Round trips that are measured.
PINGS = 9
#: Settings that are read.
SETTINGS = ("tcp-keepalive", "client-output-buffer-limit")

#: Commands whose second word says what they do.
_CONTAINERS = ("CONFIG", "CLUSTER")


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
    #: The lines about it that `runconsumer` would log at its start.
    risks: Sequence[Finding]
    #: Command -> why the server has refused it.
    refused: Mapping[str, str]
    #: Seconds by which the server's clock is ahead of the one of this machine.
    ahead: float


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
        return transport.ask(command)
    except (ConnectionLost, ConnectionRejected, ServerBusy):
        raise
    except StoreError as error:
        refused[name] = str(error)
        return None


def _fields(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in _text(text).splitlines() if not line.startswith("#"))
    return {name: value.strip() for name, separator, value in lines if separator}


# Try which commands a Redis user may run, without running any.
#
# The commands are queued in a transaction that is never executed. Redis checks the rights of a command when it
# queues it, and forgets the queue when the connection is closed. `ACL DRYRUN` would need a right of its own.

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


#: Commands by what follows their key.
_BY_ARGUMENTS: Mapping[tuple[Argument, ...], str] = {
    (): "DEL EXISTS HGETALL HLEN LLEN LPOP PERSIST STRLEN TYPE XLEN ZCARD",
    ("",): "APPEND RPUSH SET",
    (0,): "HSCAN LINDEX ZSCAN",
    (0, 0): "GETRANGE ZCOUNT ZRANGE ZRANGEBYSCORE ZREMRANGEBYRANK ZREMRANGEBYSCORE",
    (0, "doctor"): "ZADD",
    (1,): "EXPIRE HRANDFIELD PEXPIRE",
    ("doctor",): "HDEL HEXISTS HGET HMGET HSTRLEN ZREM ZSCORE",
    ("doctor", ""): "HSET HSETNX",
    ("doctor", 0): "HINCRBY",
    ("*", "type", ""): "XADD",
    ("0-1",): "XDEL",
    ("-", "+"): "XRANGE",
    ("+", "-"): "XREVRANGE",
    ("MINID", "~", 0): "XTRIM",
}


def commands_of(queue: QueueConfig) -> Sequence[Command]:
    """Return each command that consumers and producers send, or their scripts run, once.

    A test compares them with those that docs/settings.md has for a consumer.
    """
    # A key that nothing uses: if a proxy sent the commands to another server than MULTI, nothing would be lost.
    keys, key, group = queue.keys, queue.keys.result("doctor"), queue.keys.group
    return [
        ("EVAL", "return 1", 1, key),
        # A session replaces EVALSHA in capitals by the text of a script of ours.
        ("evalsha", "0" * 40, 1, key),
        ("TIME",),
        ("INFO",),
        ("PUBLISH", keys.wake, ""),
        ("SUBSCRIBE", keys.wake),
        ("UNSUBSCRIBE", keys.wake),
        ("MEMORY", "USAGE", key),
        *((name, key, *arguments) for arguments, names in _BY_ARGUMENTS.items() for name in names.split()),
        ("XACK", key, group, "0-1"),
        ("XREAD", "STREAMS", key, "0-0"),
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


#: The messages that a process with the default number of threads fetches at once.
FETCHED = 8
#: Seconds between the clocks that are too much.
CLOCKS_APART = 1.0


def _of_risk(id_: str, server: ServerFacts) -> Iterator[Seen]:
    """Report what `runconsumer` logs at its start, too."""
    for risk in server.risks:
        if risk.id == id_:
            yield Seen(risk.seen, level="warning" if id_ == "eviction" and not risk.fatal else None)


def _of_clock(server: ServerFacts) -> Iterator[str]:
    if abs(server.ahead) >= CLOCKS_APART:
        direction = "ahead of" if server.ahead > 0 else "behind"
        yield f"The clock of Redis is {abs(server.ahead):.1f} s {direction} the clock of this machine."


def _of_role(server: ServerFacts) -> Iterator[str]:
    if server.info.get("role") == "slave":
        master = f"{server.info.get('master_host')}:{server.info.get('master_port')}"
        is_writable = server.info.get("slave_read_only") == "0"
        writes = "what is written to it is lost" if is_writable else "it accepts no writes"
        is_down = server.info.get("master_link_status") == "down"
        down = " It has no connection to its master, so its data are old." if is_down else ""
        yield f"This Redis is a replica of {master}, so {writes}.{down}"


def _of_sentinels(server: ServerFacts) -> Iterator[Seen]:
    pool = server.client.connection_pool
    if not isinstance(pool, SentinelConnectionPool):
        return
    masters: dict[str, list[str]] = {}
    problems: list[str] = []
    for sentinel in pool.sentinel_manager.sentinels:
        address = sentinel_address(sentinel.connection_pool.connection_kwargs)
        try:
            # Not by its method: that of redis-py 7.0 returns whether there was an answer.
            host, port = sentinel.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", pool.service_name)
            masters.setdefault(f"{_text(host)}:{port}", []).append(address)
            sentinel.execute_command("SENTINEL CKQUORUM", pool.service_name)
        except ResponseError as error:
            # It may refuse other commands to this user.
            if str(error).startswith("NOQUORUM"):
                problems.append(f"{address} says: {str(error).rstrip('.')}")
        except TypeError:
            problems.append(f"{address} does not know this name")
        except (RedisError, OSError):
            problems.append(f"{address} does not answer")
    if len(masters) > 1:
        shown = named(f"{master} by {', '.join(sentinels)}" for master, sentinels in sorted(masters.items()))
        yield Seen(f"Sentinels name different masters of {pool.service_name}: {shown}.", level="error")
    if problems:
        yield Seen(f"Not all Sentinels can make a failover of {pool.service_name}: {named(problems)}.")


def _text(found: object) -> str:
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)


def _of_cluster(server: ServerFacts) -> Iterator[Seen]:
    if not server.cluster:
        return
    state, elsewhere = server.cluster.get("cluster_state", ""), _on_other_nodes(server)
    if state != "ok":
        advice = "Repair the cluster: redis-cli --cluster check HOST:PORT shows what is wrong."
        yield Seen(f"Redis is a node of a Redis Cluster whose state is {state}.", advice=advice)
    elif elsewhere:
        yield Seen(f"Redis is a node of a Redis Cluster, and other nodes have the keys of {named(elsewhere)}.")


def _on_other_nodes(server: ServerFacts) -> list[str]:
    """Return the queues and topics whose keys are on another node of the cluster."""
    topics = [get_config().topic(name) for name in server.topics]
    keys = {queue.name: queue.keys.ready for queue in server.queues} | {topic.name: topic.keys.log for topic in topics}
    replies = {name: server.transport.pipeline([("EXISTS", key)])[0] for name, key in keys.items()}
    return [
        name
        for name, reply in replies.items()
        if isinstance(reply, Exception) and isinstance(translate(reply), WrongNode)
    ]


def _of_keepalive(server: ServerFacts) -> Iterator[str]:
    if server.settings.get("tcp-keepalive") == "0":
        yield (
            "Redis never checks whether a client that is silent still exists (tcp-keepalive 0): messages may be "
            "handed to a consumer whose machine has gone."
        )


def _of_buffers(server: ServerFacts) -> Iterator[Seen]:
    """Report a limit for replies that a fetch of messages of the largest size exceeds."""
    limit, largest = _reply_limit(server), _largest_message(server)
    if limit and limit < FETCHED * largest:
        is_less_than_one = limit < largest
        what = "one message" if is_less_than_one else f"{FETCHED} messages"
        yield Seen(
            f"Redis closes a connection whose reply is larger than {mib(limit)} (client-output-buffer-limit "
            f"normal), and {what} may have {mib(largest if is_less_than_one else FETCHED * largest)} by MAX_SIZE: "
            "consumers could not fetch them, and would try again and again.",
            level="error" if is_less_than_one else None,
        )


def _reply_limit(server: ServerFacts) -> int:
    """Return the bytes of a reply from which Redis closes a connection; 0 without a limit."""
    words = server.settings.get("client-output-buffer-limit", "").split()
    # Four words for each class of clients: its name, the two limits in bytes, and seconds.
    limits = dict(zip(words[::4], words[1::4], strict=False))
    return whole(limits.get("normal")) or 0


def _largest_message(server: ServerFacts) -> int:
    """Return the maximum size of a message's data on a server, in bytes."""
    topics = [get_config().topic(name).max_size for name in server.topics]
    return max([queue.max_size for queue in server.queues] + topics, default=0)


def _of_refused(server: ServerFacts) -> Iterator[Seen]:
    for command, why in server.refused.items():
        right = "+" + "|".join(command.lower().split())
        yield Seen(
            f"{command} is refused, so what it says could not be looked at: {why.partition(' (docs/')[0]}",
            advice=f"Run this command as a user with the right {right}, or look at the console of the service.",
        )


SERVER_CHECKS: tuple[DoctorCheck[ServerFacts], ...] = (
    DoctorCheck(
        "D101", "error", "version", partial(_of_risk, "version"), "Upgrade to Redis 7.0 or newer, or to Valkey."
    ),
    DoctorCheck(
        *("D102", "error", "eviction", partial(_of_risk, "eviction")),
        "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf.",
    ),
    DoctorCheck(
        *("D103", "warning", "persistence", partial(_of_risk, "persistence")),
        "CONFIG SET appendonly yes, and the same in redis.conf.",
    ),
    DoctorCheck("D104", "warning", "known bugs", partial(_of_risk, "files"), "Upgrade Redis."),
    DoctorCheck(
        *("D109", "warning", "clock", _of_clock),
        "Synchronise both machines, for example with chrony or systemd-timesyncd (timedatectl set-ntp true).",
    ),
    DoctorCheck(
        *("D110", "error", "role", _of_role),
        "Name the master, or an address that follows it, in CONNECTION. To make this server the master: "
        "REPLICAOF NO ONE.",
    ),
    DoctorCheck(
        *("D112", "error", "cluster", _of_cluster),
        "Write redis+cluster:// instead of redis:// in CONNECTION, or rediss+cluster:// instead of rediss://.",
    ),
    DoctorCheck(
        *("D113", "warning", "tcp-keepalive", _of_keepalive),
        "CONFIG SET tcp-keepalive 300, and the same in redis.conf.",
    ),
    DoctorCheck("D115", "error", "rights", missing_rights),
    DoctorCheck(
        *("D118", "warning", "Sentinels", _of_sentinels),
        "Start the Sentinels that are missing, and let all of them monitor the same master: SENTINEL MASTERS, "
        "SENTINEL SENTINELS NAME and SENTINEL CKQUORUM NAME show what each of them knows.",
    ),
    DoctorCheck(
        *("D120", "warning", "limits for replies", _of_buffers),
        'CONFIG SET client-output-buffer-limit "normal 0 0 0", and the same in redis.conf.',
    ),
    DoctorCheck(NOT_CHECKED, "note", "refused commands", _of_refused),
)
