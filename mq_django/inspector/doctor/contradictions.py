"""Looks at settings that contradict each other, or the memory of their server."""

from collections.abc import Iterator

from mq_django.conf import QueueConfig, get_config
from mq_django.core.limits import Rate
from mq_django.core.schedules import Every
from mq_django.inspector.doctor.code_looks import ProjectFacts
from mq_django.inspector.doctor.findings import DoctorFinding, Look, mib, named
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.registry import schedules

HOUR = 3600


def _of_limits(project: ProjectFacts) -> Iterator[DoctorFinding]:
    """Report limits of keys that the limit of their queue makes useless."""
    found = [f"{option} of {queue.name}" for queue in project.config.queues.values() for option in _useless(queue)]
    if found:
        yield DoctorFinding(
            code="D206",
            level="note",
            seen=f'The limit "key" is never reached before the limit "queue": {named(found)}.',
            advice='Lower the limit "key", or remove it: a limit of keys costs more than one of the queue alone.',
        )


def _useless(queue: QueueConfig) -> Iterator[str]:
    limits = queue.limits
    if limits.concurrency and limits.key_concurrency and limits.key_concurrency >= limits.concurrency:
        yield "CONCURRENCY"
    rate, of_key = limits.rate, limits.key_rate
    if rate and of_key and of_key.count >= rate.count and of_key.window <= rate.window:
        yield "RATE_LIMIT"


def _of_ticks(project: ProjectFacts) -> Iterator[DoctorFinding]:
    """Report schedules that publish more than the rate limit of their queue lets through."""
    for queue in project.config.queues.values():
        allowed = _an_hour(queue.rate_limit.queue)
        published = _ticks_an_hour(project, queue.name)
        # Nearly the same rate is the same rate, with an error of rounding.
        if allowed is not None and published > allowed * 1.001:
            yield DoctorFinding(
                code="D207",
                level="warning",
                seen=f"Schedules publish {published:,.0f} messages an hour to {queue.name}, and its RATE_LIMIT allows "
                f"{allowed:,.0f}: messages wait longer and longer.",
                advice="Raise RATE_LIMIT, let the schedules fire less often, or give their messages an expiry "
                '("expires").',
            )


def _an_hour(rate: Rate | None) -> float | None:
    return None if rate is None else rate.count * HOUR / rate.window.total_seconds()


def _ticks_an_hour(project: ProjectFacts, queue: str) -> float:
    """Return the messages an hour of schedules with `every` that go on for ever, and wait until they are handled."""
    every = {entry.id: entry for entry in (*project.config.schedules.values(), *schedules().values())}
    periods = [
        entry.when.period
        for entry in every.values()
        if entry.queue == queue and isinstance(entry.when, Every) and entry.expires is None and entry.ends is None
    ]
    return sum(HOUR / period.total_seconds() for period in periods)


def _of_retention(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report logs that may use more memory than there is."""
    limits = {name: get_config().topic(name).retention_bytes for name in server.topics}
    known = {name: limit for name, limit in limits.items() if limit}
    _, memory, name = server.memory
    if memory and sum(known.values()) >= memory:
        yield DoctorFinding(
            code="D208",
            level="warning",
            seen=f"RETENTION_BYTES lets the logs of topics grow to {mib(sum(known.values()))} ({named(known)}), and "
            f"Redis has {mib(memory)} of {name}: it may be full before they are trimmed.",
            advice="Lower RETENTION_BYTES, or give Redis more memory (CONFIG SET maxmemory).",
            where=server.where,
        )


CONTRADICTION_LOOKS: tuple[Look[ProjectFacts], ...] = (
    Look("limits of keys", ("D206",), _of_limits),
    Look("schedules and rate limits", ("D207",), _of_ticks),
)
RETENTION_LOOKS: tuple[Look[ServerFacts], ...] = (Look("retention and memory", ("D208",), _of_retention),)
