"""Looks at a Redis server: settings and states that endanger messages, or slow their handling down."""

from collections.abc import Iterator
from functools import partial

from mq_django.conf import get_config
from mq_django.core.numbers import whole
from mq_django.errors import WrongNode
from mq_django.inspector.doctor.findings import NOT_LOOKED, DoctorFinding, Level, Look, mib, named
from mq_django.inspector.doctor.replication_looks import REPLICATION_LOOKS
from mq_django.inspector.doctor.rights import missing_rights
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.transport.failures import translate

# Looks at the settings of a Redis server that end connections of its clients.

#: Seconds after which no connection of a consumer may be closed for being idle: it sends heartbeats every 3 s at most.
SHORTEST_TIMEOUT = 5
#: The messages that a process with the default number of threads fetches at once.
FETCHED = 8


def _of_keepalive(server: ServerFacts) -> Iterator[DoctorFinding]:
    if server.settings.get("tcp-keepalive") == "0":
        yield DoctorFinding(
            code="D113",
            level="warning",
            seen="Redis never checks whether a client that is silent still exists (tcp-keepalive 0): messages may be "
            "handed to a consumer whose machine has gone.",
            advice="CONFIG SET tcp-keepalive 300, and the same in redis.conf.",
            where=server.where,
        )


def _of_timeout(server: ServerFacts) -> Iterator[DoctorFinding]:
    seconds = whole(server.settings.get("timeout")) or 0
    if 0 < seconds < SHORTEST_TIMEOUT:
        yield DoctorFinding(
            code="D119",
            level="warning",
            seen=f"Redis closes connections that have been idle for {seconds} s (timeout), so consumers connect again "
            "all the time, and a command that is sent at that moment fails.",
            advice="CONFIG SET timeout 0, or to 60 or more, and the same in redis.conf. tcp-keepalive finds clients "
            "that have gone.",
            where=server.where,
        )


def _of_buffers(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report a limit for replies that a fetch of messages of the largest size exceeds."""
    limit, largest = _reply_limit(server), _largest_message(server)
    if limit and limit < FETCHED * largest:
        is_less_than_one = limit < largest
        what = "one message" if is_less_than_one else f"{FETCHED} messages"
        yield DoctorFinding(
            code="D120",
            level="error" if is_less_than_one else "warning",
            seen=f"Redis closes a connection whose reply is larger than {mib(limit)} (client-output-buffer-limit "
            f"normal), and {what} may have {mib(largest if is_less_than_one else FETCHED * largest)} by MAX_SIZE: "
            "consumers could not fetch them, and would try again and again.",
            advice='CONFIG SET client-output-buffer-limit "normal 0 0 0", and the same in redis.conf.',
            where=server.where,
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


CONNECTION_LOOKS: tuple[Look[ServerFacts], ...] = (
    Look("tcp-keepalive", ("D113",), _of_keepalive),
    Look("timeout", ("D119",), _of_timeout),
    Look("limits for replies", ("D120",), _of_buffers),
)

# Looks at a Redis server: settings and states that endanger messages, or slow their handling down.

#: The shares of the memory from which there is a warning, and an error.
NEARLY_FULL, FULL = 0.8, 0.95
#: Seconds between the clocks that are too much.
CLOCKS_APART = 1.0

#: The findings that `runconsumer` logs at its start, too: by their ids the code, the level, and what to do.
_RISKS: dict[str, tuple[str, Level, str]] = {
    "version": ("D101", "error", "Upgrade to Redis 7.0 or newer, or to Valkey."),
    "eviction": ("D102", "error", "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf."),
    "persistence": ("D103", "warning", "CONFIG SET appendonly yes, and the same in redis.conf."),
    "files": ("D104", "warning", "Upgrade Redis."),
}
#: Fields of INFO that say "ok" while data can be written to disk, and the command or file they are about.
_SAVES = {
    "rdb_last_bgsave_status": "the last snapshot (BGSAVE)",
    "aof_last_bgrewrite_status": "the last rewrite of the append-only file (BGREWRITEAOF)",
    "aof_last_write_status": "the last write to the append-only file",
}

Findings = Iterator[DoctorFinding]


def _of_risk(id_: str, server: ServerFacts) -> Findings:
    code, level, advice = _RISKS[id_]
    for risk in server.risks:
        if risk.id == id_:
            level = "warning" if id_ == "eviction" and not risk.fatal else level
            yield DoctorFinding(code=code, level=level, seen=risk.seen, advice=advice, where=server.where)


def _of_saves(server: ServerFacts) -> Findings:
    failed = [what for field, what in _SAVES.items() if server.info.get(field, "ok") != "ok"]
    if failed:
        yield DoctorFinding(
            code="D105",
            level="error",
            seen=f"Redis could not write to its disk: {' and '.join(failed)} failed. It may refuse all writes.",
            advice="Free space, or correct the permissions, in the folder that CONFIG GET dir names; the log of Redis "
            "has the reason. Then run BGSAVE and BGREWRITEAOF.",
            where=server.where,
        )


def _of_memory(server: ServerFacts) -> Findings:
    used, limit, name = server.memory
    share = used / limit if limit else 0.0
    if share < NEARLY_FULL:
        return
    yield DoctorFinding(
        code="D106",
        level="error" if share >= FULL else "warning",
        seen=f"Redis uses {mib(used)} of {mib(limit)}, {share:.0%} of {name}. When it is full, publishes fail.",
        advice="Give Redis more memory (CONFIG SET maxmemory), start more consumers, or delete dead letters and old "
        "messages of topics.",
        where=server.where,
    )


def _of_clock(server: ServerFacts) -> Findings:
    if abs(server.ahead) >= CLOCKS_APART:
        direction = "ahead of" if server.ahead > 0 else "behind"
        yield DoctorFinding(
            code="D109",
            level="warning",
            seen=f"The clock of Redis is {abs(server.ahead):.1f} s {direction} the clock of this machine.",
            advice="Synchronise both machines, for example with chrony or systemd-timesyncd (timedatectl set-ntp "
            "true).",
            where=server.where,
        )


def _of_cluster(server: ServerFacts) -> Findings:
    if not server.cluster:
        return
    state, elsewhere = server.cluster.get("cluster_state", ""), _on_other_nodes(server)
    if state != "ok":
        seen = f"Redis is a node of a Redis Cluster whose state is {state}."
        advice = "Repair the cluster: redis-cli --cluster check HOST:PORT shows what is wrong."
    elif elsewhere:
        seen = f"Redis is a node of a Redis Cluster, and other nodes have the keys of {named(elsewhere)}."
        advice = "Write redis+cluster:// instead of redis:// in CONNECTION, or rediss+cluster:// instead of rediss://."
    else:
        return
    yield DoctorFinding(code="D112", level="error", seen=seen, advice=advice, where=server.where)


def _on_other_nodes(server: ServerFacts) -> list[str]:
    """Return the queues and topics whose keys are on another node of the cluster."""
    topics = [get_config().topic(name) for name in server.topics]
    keys = {queue.name: queue.keys.ready for queue in server.queues} | {topic.name: topic.keys.log for topic in topics}
    replies = {name: server.wire.trip([("EXISTS", key)])[0] for name, key in keys.items()}
    return [
        name
        for name, reply in replies.items()
        if isinstance(reply, Exception) and isinstance(translate(reply), WrongNode)
    ]


def _of_refused(server: ServerFacts) -> Findings:
    for command, why in server.refused.items():
        right = "+" + "|".join(command.lower().split())
        yield DoctorFinding(
            code=NOT_LOOKED,
            level="note",
            seen=f"{command} is refused, so what it says could not be looked at: {why.partition(' (docs/')[0]}",
            advice=f"Run this command as a user with the right {right}, or look at the console of the service.",
            where=server.where,
        )


SERVER_LOOKS: tuple[Look[ServerFacts], ...] = (
    Look("version", ("D101",), partial(_of_risk, "version")),
    Look("eviction", ("D102",), partial(_of_risk, "eviction")),
    Look("persistence", ("D103",), partial(_of_risk, "persistence")),
    Look("known bugs", ("D104",), partial(_of_risk, "files")),
    Look("writes to disk", ("D105",), _of_saves),
    Look("memory", ("D106",), _of_memory),
    Look("clock", ("D109",), _of_clock),
    *REPLICATION_LOOKS,
    Look("cluster", ("D112",), _of_cluster),
    *CONNECTION_LOOKS,
    Look("rights", ("D115", NOT_LOOKED), missing_rights),
    Look("refused commands", (NOT_LOOKED,), _of_refused),
)
