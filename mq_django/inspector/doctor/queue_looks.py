"""Looks at the queues, the groups of topics, and their consumers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core.numbers import score, whole
from mq_django.core.texts import escape
from mq_django.core.version import PROTOCOL, VERSION
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.doctor.findings import MAX_NAMED, NOT_LOOKED, DoctorFinding, Look, counted, named
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import overview
from mq_django.inspector.topics import TopicView, topics
from mq_django.registry import find, names
from mq_django.stores.partition_wire import disagreement

# What queues, topics and heartbeats say, read once for all looks at them.


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """All queues and groups with their consumers, and all topics."""

    queues: Sequence[QueueView]
    topics: Sequence[TopicView]

    @property
    def readable(self) -> list[QueueView]:
        """Return the queues that could be read."""
        return [queue for queue in self.queues if not queue.error]

    @property
    def supervisors(self) -> Mapping[str, ConsumerView]:
        """Return a live consumer of each live supervisor, or the supervisor itself, which knows its description."""
        members = (one for queue in self.readable for one in (*queue.consumers, *queue.housekeepers))
        return {one.supervisor: one for one in members if one.alive}


def queue_facts() -> QueueFacts:
    """Read all queues and topics.

    Raises:
        StoreError: cannot reach Redis.
    """
    return QueueFacts(queues=overview(minutes=0), topics=topics())


# Looks at the settings with which consumers were started, as far as their supervisors announce these.


def _of_options(facts: QueueFacts) -> Iterator[DoctorFinding]:
    """Report consumers that were started with other settings."""
    different = {}
    for queue in facts.readable:
        config = get_config().queue(queue.name)
        live = [one for one in (*queue.consumers, *queue.housekeepers) if one.alive]
        found = {name for one in live for name in _different(config, one.announced)}
        if found:
            different[queue.name] = sorted(found)
    if different:
        shown = named(f"{name} ({', '.join(options)})" for name, options in different.items())
        yield DoctorFinding(
            code="D304",
            level="warning",
            seen=f"Consumers were started with other settings than those of this process: {shown}.",
            advice="If this is not a rolling deploy, restart runconsumer, or send it SIGHUP.",
        )


def _different(config: QueueConfig, announced: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of a queue that a supervisor has with another value."""
    visibility = announced.get("visibility_ms")
    if visibility is not None and visibility != round(config.visibility_timeout.total_seconds() * 1000):
        yield "VISIBILITY_TIMEOUT"
    digests = announced.get("options")
    # Versions may differ in their defaults. That they differ is a finding of its own.
    if isinstance(digests, dict) and announced.get("version") == VERSION:
        own = get_config().digests_of(config)
        for name in own.keys() | digests.keys():
            if own.get(name) != digests.get(name):
                yield escape(name)[:40]


def _of_grace(facts: QueueFacts) -> Iterator[DoctorFinding]:
    """Report handlers that may run for longer than they get when their process stops."""
    found = []
    for queue in facts.readable:
        longest, grace = _longest(queue.name), _shortest_grace(queue)
        if longest is not None and grace is not None and longest.total_seconds() > grace:
            found.append(f"{queue.name} ({longest.total_seconds():g} s, --grace {grace:g})")
    if found:
        yield DoctorFinding(
            code="D307",
            level="note",
            seen="Handlers may run for longer than runconsumer waits for them when it stops, as at each deploy: "
            f"{named(found)}. Their messages are then handled again from the beginning.",
            advice="Start runconsumer with a --grace of at least the longest timeout, and give it 25 s more to stop: "
            "TimeoutStopSec= of systemd, stop_grace_period of Compose, terminationGracePeriodSeconds of Kubernetes.",
        )


def _longest(queue: str) -> timedelta | None:
    """Return the longest timeout of the handlers of a queue; None if none has one."""
    handlers = [handler for name in names(queue) if (handler := find(queue, name))]
    of_queue = get_config().queue(queue).timeout
    timeouts = [of_queue, *(handler.timeout for handler in handlers)]
    return max((timeout for timeout in timeouts if timeout is not None), default=None)


def _shortest_grace(queue: QueueView) -> float | None:
    found = [score(one.announced.get("grace")) for one in queue.consumers if one.alive]
    return min((seconds for seconds in found if seconds is not None), default=None)


SETTING_LOOKS: tuple[Look[QueueFacts], ...] = (
    Look("settings of consumers", ("D304",), _of_options),
    Look("grace periods", ("D307",), _of_grace),
)

# Looks at the queues, the groups of topics, and their consumers.

#: The share of a topic's retention from which there is a warning. At the whole of it messages are lost.
NEAR_RETENTION = 0.5


def _of_unserved(facts: QueueFacts) -> Iterator[DoctorFinding]:
    unserved = [queue for queue in facts.readable if not queue.is_served]
    waiting = [queue for queue in unserved if queue.depth]
    advice = "Start a consumer: manage.py runconsumer {}".format(
        " ".join(queue.name for queue in (waiting or unserved)[:MAX_NAMED])
    )
    if waiting:
        seen = named(f"{queue.name} ({counted(queue.depth, 'message')})" for queue in waiting)
        yield DoctorFinding(
            code="D301", level="warning", seen=f"Messages wait in queues without a consumer: {seen}.", advice=advice
        )
    elif unserved:
        seen = f"No consumer runs for {named(queue.name for queue in unserved)}. No message waits there."
        yield DoctorFinding(code="D301", level="note", seen=seen, advice=advice)


def _of_unattended(facts: QueueFacts) -> Iterator[DoctorFinding]:
    found = [queue.name for queue in facts.readable if "unattended" in queue.problems()]
    if found:
        yield DoctorFinding(
            code="D302",
            level="warning",
            seen=f"Other programs handle {named(found)} (CONSUME is False), and no supervisor does the housekeeping: "
            "delayed messages do not become ready, and those of dead consumers stay with them.",
            advice=f"Start a consumer: manage.py runconsumer --housekeeping {' '.join(found[:MAX_NAMED])}",
        )


def _of_versions(facts: QueueFacts) -> Iterator[DoctorFinding]:
    found = Counter((one.version, escape(one.host)) for one in facts.supervisors.values() if one.version)
    same_protocol = all(one.announced.get("protocol", PROTOCOL) == PROTOCOL for one in facts.supervisors.values())
    if same_protocol and {version for version, _ in found} <= {VERSION}:
        return
    shown = [f"{escape(version)} on {host}" for version, host in sorted(found)]
    yield DoctorFinding(
        code="D303",
        level="warning",
        seen=f"Consumers have other versions of mq_django than this process, which has {VERSION}: {named(shown)}.",
        advice="If this is not a rolling deploy, install the same version everywhere and restart runconsumer there.",
    )


def _of_groups(facts: QueueFacts) -> Iterator[DoctorFinding]:
    for topic in facts.topics:
        for group in topic.groups:
            if (group.share or 0.0) < NEAR_RETENTION:
                continue
            retention = topic.config.retention
            left = 0.0 if retention is None else retention.total_seconds() - group.behind_ms / 1000
            until = f" The oldest of them is removed in {_duration(left)}." if left > 0 else ""
            yield DoctorFinding(
                code="D305",
                level="error" if (group.share or 0.0) >= 1 else "warning",
                seen=f"The group {escape(group.queue)} is {counted(group.behind, 'message')} behind, {group.share:.0%} "
                f"of what its topic keeps.{until}",
                advice=f"Start more consumers (manage.py runconsumer {group.queue}), or raise RETENTION of the topic. "
                f"If nobody needs the group: manage.py mq topics unsubscribe {group.queue}",
            )


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _of_unhandled(facts: QueueFacts) -> Iterator[DoctorFinding]:
    found = [queue for queue in facts.readable if queue.unhandled]
    if found:
        counts = named(f"{queue.name} ({queue.unhandled})" for queue in found)
        yield DoctorFinding(
            code="D306",
            level="warning",
            seen=f"Messages have names that no consumer has a handler for: {counts}.",
            advice="See their names with: manage.py mq find QUEUE --state unhandled. Deploy the handlers, or delete "
            "the messages: manage.py mq purge QUEUE --state unhandled --yes",
        )


def _of_errors(facts: QueueFacts) -> Iterator[DoctorFinding]:
    views: list[QueueView | TopicView] = [*facts.queues, *facts.topics]
    errors = {view.name: view.error for view in views if view.error}
    for error in dict.fromkeys(errors.values()):
        names = named(name for name in errors if errors[name] == error)
        yield DoctorFinding(
            code=NOT_LOOKED,
            level="note",
            seen=f"{names} could not be looked at: {error.rstrip('.')}.",
            advice="See the findings about the server; a key of a wrong type is shown by the admin.",
        )


QUEUE_LOOKS: tuple[Look[QueueFacts], ...] = (
    Look("queues without consumers", ("D301",), _of_unserved),
    Look("housekeeping", ("D302",), _of_unattended),
    Look("versions", ("D303",), _of_versions),
    *SETTING_LOOKS,
    Look("groups and retention", ("D305",), _of_groups),
    Look("unhandled messages", ("D306",), _of_unhandled),
    Look("queues that cannot be read", (NOT_LOOKED,), _of_errors),
)

# Looks at queues with partitions: their number in Redis, and whether all nodes have some.


def _wholes(server: ServerFacts) -> Iterator[QueueConfig]:
    """Yield the queues and groups, without those in RSMQ's format, of which something is on a server."""
    names = dict.fromkeys(queue.public_name for queue in server.queues if queue.store != "rsmq")
    # The groups of a topic have its number.
    wholes = {found.keys.recorded: found for found in map(get_config().queue, names)}
    yield from wholes.values()


def _of_numbers(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report queues that have another number of partitions in Redis than in the settings."""
    for queue in _wholes(server):
        reply = server.wire.trip([("HGET", queue.keys.recorded, "partitions")])[0]
        # On a cluster it may be on another node, which is looked at, too.
        if isinstance(reply, bytes) and reply != str(queue.partitions).encode():
            yield DoctorFinding(
                code="D209",
                level="error",
                seen=f"{disagreement(queue, reply.decode(errors='replace'))}.",
                advice="Until then publishing raises QueueClosed, and runconsumer does not start.",
                where=server.where,
            )


def _of_nodes(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report queues that have fewer partitions than the cluster has nodes, on the node of their first one."""
    nodes, own = whole(server.cluster.get("cluster_size")) or 0, {part.name for part in server.queues}
    for queue in _wholes(server):
        if 0 < len(queue.parts) < nodes and queue.parts[0].name in own:
            yield DoctorFinding(
                code="D210",
                level="note",
                seen=f"{queue.counted_as.format(config=queue)} has {len(queue.parts)} partitions, and the "
                f"cluster {nodes} nodes.",
                advice="Some nodes do nothing for it. Give it at least eight partitions for each node.",
                where=server.where,
            )


PARTITION_LOOKS: tuple[Look[ServerFacts], ...] = (
    Look("numbers of partitions", ("D209",), _of_numbers),
    Look("partitions and nodes", ("D210",), _of_nodes),
)
