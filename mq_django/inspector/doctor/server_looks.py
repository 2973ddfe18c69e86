"""Looks at a Redis server: settings and states that endanger messages, or slow their handling down."""

from collections.abc import Iterator
from functools import partial

from redis.exceptions import RedisError, ResponseError
from redis.sentinel import SentinelConnectionPool

from mq_django.conf import get_config
from mq_django.core.numbers import whole
from mq_django.errors import WrongNode
from mq_django.inspector.doctor.findings import NOT_LOOKED, Look, Seen, mib, named
from mq_django.inspector.doctor.rights import missing_rights
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.transport.failures import translate
from mq_django.transport.sentinel_urls import sentinel_address

#: The messages that a process with the default number of threads fetches at once.
FETCHED = 8
#: The shares of the memory from which there is a warning, and an error.
NEARLY_FULL, FULL = 0.8, 0.95
#: Seconds between the clocks that are too much.
CLOCKS_APART = 1.0

#: Fields of INFO that say "ok" while data can be written to disk, and the command or file they are about.
_SAVES = {
    "rdb_last_bgsave_status": "the last snapshot (BGSAVE)",
    "aof_last_bgrewrite_status": "the last rewrite of the append-only file (BGREWRITEAOF)",
    "aof_last_write_status": "the last write to the append-only file",
}


def _of_risk(id_: str, server: ServerFacts) -> Iterator[Seen]:
    """Report what `runconsumer` logs at its start, too."""
    for risk in server.risks:
        if risk.id == id_:
            yield Seen(risk.seen, level="warning" if id_ == "eviction" and not risk.fatal else None)


def _of_saves(server: ServerFacts) -> Iterator[str]:
    failed = [what for field, what in _SAVES.items() if server.info.get(field, "ok") != "ok"]
    if failed:
        yield f"Redis could not write to its disk: {' and '.join(failed)} failed. It may refuse all writes."


def _of_memory(server: ServerFacts) -> Iterator[Seen]:
    used, limit, name = server.memory
    share = used / limit if limit else 0.0
    if share >= NEARLY_FULL:
        yield Seen(
            f"Redis uses {mib(used)} of {mib(limit)}, {share:.0%} of {name}. When it is full, publishes fail.",
            level="error" if share >= FULL else None,
        )


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


def _text(host: object) -> str:
    return host.decode(errors="replace") if isinstance(host, bytes) else str(host)


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
    """Return the most bytes of the data of a message on a server."""
    topics = [get_config().topic(name).max_size for name in server.topics]
    return max([queue.max_size for queue in server.queues] + topics, default=0)


def _of_refused(server: ServerFacts) -> Iterator[Seen]:
    for command, why in server.refused.items():
        right = "+" + "|".join(command.lower().split())
        yield Seen(
            f"{command} is refused, so what it says could not be looked at: {why.partition(' (docs/')[0]}",
            advice=f"Run this command as a user with the right {right}, or look at the console of the service.",
        )


SERVER_LOOKS: tuple[Look[ServerFacts], ...] = (
    Look("D101", "error", "version", partial(_of_risk, "version"), "Upgrade to Redis 7.0 or newer, or to Valkey."),
    Look(
        *("D102", "error", "eviction", partial(_of_risk, "eviction")),
        "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf.",
    ),
    Look(
        *("D103", "warning", "persistence", partial(_of_risk, "persistence")),
        "CONFIG SET appendonly yes, and the same in redis.conf.",
    ),
    Look("D104", "warning", "known bugs", partial(_of_risk, "files"), "Upgrade Redis."),
    Look(
        *("D105", "error", "writes to disk", _of_saves),
        "Free space, or correct the permissions, in the folder that CONFIG GET dir names; the log of Redis "
        "has the reason. Then run BGSAVE and BGREWRITEAOF.",
    ),
    Look(
        *("D106", "warning", "memory", _of_memory),
        "Give Redis more memory (CONFIG SET maxmemory), start more consumers, or delete dead letters and old "
        "messages of topics.",
    ),
    Look(
        *("D109", "warning", "clock", _of_clock),
        "Synchronise both machines, for example with chrony or systemd-timesyncd (timedatectl set-ntp true).",
    ),
    Look(
        *("D110", "error", "role", _of_role),
        "Name the master, or an address that follows it, in CONNECTION. To make this server the master: "
        "REPLICAOF NO ONE.",
    ),
    Look(
        *("D112", "error", "cluster", _of_cluster),
        "Write redis+cluster:// instead of redis:// in CONNECTION, or rediss+cluster:// instead of rediss://.",
    ),
    Look(
        *("D113", "warning", "tcp-keepalive", _of_keepalive),
        "CONFIG SET tcp-keepalive 300, and the same in redis.conf.",
    ),
    Look("D115", "error", "rights", missing_rights),
    Look(
        *("D118", "warning", "Sentinels", _of_sentinels),
        "Start the Sentinels that are missing, and let all of them monitor the same master: SENTINEL MASTERS, "
        "SENTINEL SENTINELS NAME and SENTINEL CKQUORUM NAME show what each of them knows.",
    ),
    Look(
        *("D120", "warning", "limits for replies", _of_buffers),
        'CONFIG SET client-output-buffer-limit "normal 0 0 0", and the same in redis.conf.',
    ),
    Look(NOT_LOOKED, "note", "refused commands", _of_refused),
)
