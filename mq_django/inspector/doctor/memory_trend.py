"""Look at when the memory of a server will be full, at the growth that the counters of the last hour show.

Redis itself records no history, and two samples of one run of the doctor are too close to each other: most growth
between them is noise.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.core import clock
from mq_django.core.numbers import whole
from mq_django.core.offsets import parse
from mq_django.errors import StoreError
from mq_django.inspector.doctor.findings import DoctorFinding, counted, mib, named
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import overview
from mq_django.stores.counters import minute_fields
from mq_django.stores.topic_stats import TopicStats, topic_stats
from mq_django.transport.sessions import Wire, reply_or_raise

#: Minutes over which growth is measured, and of each part of them, in which it must have lasted.
SPAN, PART = 60, 15
#: The least growth in messages that is more than noise.
MIN_GROWTH = 100
#: Hours until the memory is full from which this is a warning, and an error.
SOON, VERY_SOON = 24.0, 1.0

#: Where the messages of a queue are in Redis.
_KINDS = ("ready", "urgent", "priority", "due", "unhandled", "parked", "waiting", "dead", "dead_ids")


class Growth(NamedTuple):
    """What grows: its name, messages and bytes an hour, and the hours until a limit ends the growth."""

    name: str
    messages: float
    size: float
    hours: float = inf


def memory_trend(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report that the memory will soon be full."""
    memory = server.memory
    if not memory.limit:
        return
    growths = sorted((*_of_queues(server), *_of_topics(server)), key=lambda growth: -growth.size)
    hours = full_in(memory.limit - memory.used, growths)
    if hours > SOON:
        return
    shown = named(f"{one.name} by {counted(round(one.messages), 'message')} ({mib(one.size)})" for one in growths)
    yield DoctorFinding(
        code="D116",
        level="error" if hours <= VERY_SOON else "warning",
        seen=f"The memory of Redis is full in {_about(hours)} if messages keep growing as in the last hour. It uses "
        f"{mib(memory.used)} of {mib(memory.limit)} of {memory.name}. Growth an hour: {shown}.",
        advice="Start more consumers, see why messages fail, or limit queues by MAX_DEPTH and topics by "
        "RETENTION_BYTES. To gain time: CONFIG SET maxmemory to more.",
        where=server.where,
    )


def full_in(free: float, growths: Sequence[Growth]) -> float:
    """Return the hours until so many bytes are used; infinite if the growth ends before."""
    passed = 0.0
    for hours in sorted({growth.hours for growth in growths}):
        rate = sum(growth.size for growth in growths if growth.hours >= hours)
        if rate * (hours - passed) >= free:
            return passed + max(0.0, free) / rate
        free -= rate * (hours - passed)
        passed = hours
    return inf


def _about(hours: float) -> str:
    if hours < VERY_SOON:
        return f"about {counted(max(1, round(hours * 60)), 'minute')}"
    return f"about {counted(round(hours), 'hour')}"


def _of_queues(server: ServerFacts) -> Iterator[Growth]:
    """Yield the queues that grow, without those of other programs: what these handle is not counted."""
    queues = {queue.name: queue for queue in server.queues if queue.store == "stream" and queue.consume}
    for view in overview(queues, minutes=0) if queues else ():
        if view.error or view.depth + view.dead < MIN_GROWTH:
            continue
        config = queues[view.name]
        net = _lasting([a - b - c for a, b, c in _by_minute(config, server.wire, ("published", "handled", "expired"))])
        # Messages that were cancelled, deleted or moved are not counted.
        messages = min(net - _replaced(config, server), view.depth + view.dead)
        if messages >= MIN_GROWTH:
            yield Growth(view.name, messages, messages * _size(config, view, server.wire))


def _replaced(config: QueueConfig, server: ServerFacts) -> int:
    """Return how many waiting messages were replaced in the last hour, by the server's clock: these are gone."""
    since = round((clock.now() + server.ahead - SPAN * 60) * 1000)
    (reply,) = server.wire.trip([("ZCOUNT", config.keys.replaced, since, "+inf")])
    return whole(reply_or_raise(reply)) or 0


def _size(config: QueueConfig, view: QueueView, wire: Wire) -> float:
    """Return the bytes of a message of a queue, on average."""
    replies = wire.trip([("MEMORY", "USAGE", getattr(config.keys, kind)) for kind in _KINDS])
    return sum(reply_or_raise(reply) or 0 for reply in replies) / (view.depth + view.dead)


def _of_topics(server: ServerFacts) -> Iterator[Growth]:
    configs = [get_config().topic(name) for name in server.topics]
    found = topic_stats(configs, [server.wire] * len(configs), minutes=0, at_most=1) if configs else ()
    for config, stats in zip(configs, found, strict=True):
        if isinstance(stats, StoreError) or stats.length < MIN_GROWTH:
            continue
        messages = _lasting([count for (count,) in _by_minute(config, server.wire, ("published",))])
        size = messages * stats.size / stats.length
        hours = _until_trimmed(config, stats, messages, size) if messages >= MIN_GROWTH else 0.0
        if hours > 0:
            yield Growth(config.name, messages, size, hours)


def _until_trimmed(config: TopicConfig, stats: TopicStats, messages: float, size: float) -> float:
    """Return the hours until the retention of a topic ends its growth."""
    limits = [inf]
    if config.retention is not None:
        limits.append((config.retention.total_seconds() - (stats.now_ms - parse(stats.first)[0]) / 1000) / 3600)
    if config.retention_count is not None:
        limits.append((config.retention_count - stats.length) / messages)
    if config.retention_bytes is not None:
        limits.append((config.retention_bytes - stats.size) / size)
    return min(limits)


def _lasting(by_minute: Sequence[int]) -> float:
    """Return the growth of an hour, by the part of the last hour in which it was least.

    A burst that is over, or has just begun, is no trend.
    """
    parts = [sum(by_minute[first : first + PART]) for first in range(0, SPAN, PART)]
    return min(parts) * SPAN / PART


def _by_minute(config: QueueConfig | TopicConfig, wire: Wire, what: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Yield counters of each minute of the last hour, the latest first."""
    now = int(clock.now()) // 60
    fields = minute_fields(now, SPAN, what=what)
    keys = [config.keys.minutes(now // 60), config.keys.minutes(now // 60 - 1)]
    replies = wire.trip([("HMGET", key, *asked) for key, asked in zip(keys, fields, strict=True) if asked])
    values = [whole(value) or 0 for reply in replies for value in reply_or_raise(reply)]
    for place in range(0, len(values), len(what)):
        yield tuple(values[place : place + len(what)])
