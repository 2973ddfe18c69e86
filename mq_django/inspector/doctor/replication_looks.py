"""Looks at the replication of a Redis server: its role, its replicas, and the Sentinels that name it."""

from collections.abc import Iterator

from redis.exceptions import RedisError, ResponseError
from redis.sentinel import SentinelConnectionPool

from mq_django.core.numbers import whole
from mq_django.inspector.doctor.findings import DoctorFinding, Look, named
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.transport.sentinel_urls import sentinel_address


def _of_role(server: ServerFacts) -> Iterator[DoctorFinding]:
    if server.info.get("role") != "slave":
        return
    master = f"{server.info.get('master_host')}:{server.info.get('master_port')}"
    writes = "it accepts no writes" if server.info.get("slave_read_only") != "0" else "what is written to it is lost"
    is_down = server.info.get("master_link_status") == "down"
    down = " It has no connection to its master, so its data are old." if is_down else ""
    yield DoctorFinding(
        code="D110",
        level="error",
        seen=f"This Redis is a replica of {master}, so {writes}.{down}",
        advice="Name the master, or an address that follows it, in CONNECTION. To make this server the master: "
        "REPLICAOF NO ONE.",
        where=server.where,
    )


def _of_number(server: ServerFacts) -> Iterator[DoctorFinding]:
    needed = whole(server.settings.get("min-replicas-to-write")) or 0
    good = whole(server.info.get("min_slaves_good_slaves"))
    if good is not None and good < needed:
        yield DoctorFinding(
            code="D111",
            level="error",
            seen=f"Redis needs {needed} replicas to accept writes (min-replicas-to-write), and {good} are connected "
            "and up to date: it refuses all writes.",
            advice="Repair the replicas, or CONFIG SET min-replicas-to-write 0.",
            where=server.where,
        )
    elif good is not None and good == needed > 0:
        yield DoctorFinding(
            code="D111",
            level="note",
            seen=f"Redis needs {needed} replicas to accept writes (min-replicas-to-write), and no more than {good} are "
            "connected: if one of them fails, it refuses all writes.",
            advice="Start one more replica, or CONFIG SET min-replicas-to-write to a lower number.",
            where=server.where,
        )


def _of_sentinels(server: ServerFacts) -> Iterator[DoctorFinding]:
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
        yield _sentinel_finding(server, "error", f"Sentinels name different masters of {pool.service_name}: {shown}.")
    if problems:
        seen = f"Not all Sentinels can make a failover of {pool.service_name}: {named(problems)}."
        yield _sentinel_finding(server, "warning", seen)


def _sentinel_finding(server: ServerFacts, level: str, seen: str) -> DoctorFinding:
    return DoctorFinding(
        code="D118",
        level="error" if level == "error" else "warning",
        seen=seen,
        advice="Start the Sentinels that are missing, and let all of them monitor the same master: SENTINEL MASTERS, "
        "SENTINEL SENTINELS NAME and SENTINEL CKQUORUM NAME show what each of them knows.",
        where=server.where,
    )


def _text(host: object) -> str:
    return host.decode(errors="replace") if isinstance(host, bytes) else str(host)


REPLICATION_LOOKS: tuple[Look[ServerFacts], ...] = (
    Look("role", ("D110",), _of_role),
    Look("replicas", ("D111",), _of_number),
    Look("Sentinels", ("D118",), _of_sentinels),
)
