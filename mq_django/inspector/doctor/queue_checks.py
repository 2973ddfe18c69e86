"""Looks at the queues, the groups of topics, and their consumers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core.numbers import score
from mq_django.core.texts import escape
from mq_django.core.version import PROTOCOL, VERSION
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.doctor.findings import MAX_NAMED, NOT_CHECKED, DoctorCheck, Seen, counted, named
from mq_django.inspector.doctor.server_checks import ServerFacts
from mq_django.inspector.problem_sentences import sentence
from mq_django.inspector.queue_view import Problem, QueueView
from mq_django.inspector.queues import overview
from mq_django.inspector.topics import TopicView, topics
from mq_django.registry import find, names
from mq_django.stores.partition_transport import disagreement

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


#: The share of a topic's retention from which there is a warning. At the whole of it messages are lost.
NEAR_RETENTION = 0.5


def _of_problem(what: Problem, facts: QueueFacts) -> Iterator[Seen]:
    """Report the queues with a problem as the admin and `mq status --check` show it."""
    for queue in facts.readable:
        if what in queue.problems():
            advice = ADVICE[what].format(queue=queue.name)
            yield Seen(f"{queue.name} {sentence(queue, what)}", advice=advice)


def _of_unserved(facts: QueueFacts) -> Iterator[Seen]:
    yield from _of_problem("unconsumed", facts)
    if idle := [queue.name for queue in facts.readable if not (queue.is_served or queue.depth)]:
        seen = f"No consumer runs for {named(idle)}. No message waits there."
        yield Seen(seen, level="note", advice=ADVICE["unconsumed"].format(queue=" ".join(idle[:MAX_NAMED])))


ADVICE: dict[Problem, str] = {
    "unconsumed": "Start a consumer: manage.py runconsumer {queue}",
    "unattended": "Start a consumer: manage.py runconsumer --housekeeping {queue}",
    "unhandled": "See their names with: manage.py mq find {queue} --state unhandled. Deploy the handlers, or delete "
    "the messages: manage.py mq purge {queue} --state unhandled --yes",
}


def _of_versions(facts: QueueFacts) -> Iterator[str]:
    found = Counter((one.version, escape(one.host)) for one in facts.supervisors.values() if one.version)
    same_protocol = all(one.announced.get("protocol", PROTOCOL) == PROTOCOL for one in facts.supervisors.values())
    if not same_protocol or not {version for version, _ in found} <= {VERSION}:
        shown = named(f"{escape(version)} on {host}" for version, host in sorted(found))
        yield f"Consumers have other versions of mq_django than this process, which has {VERSION}: {shown}."


def _of_options(facts: QueueFacts) -> Iterator[str]:
    """Report consumers that were started with other settings, as far as their supervisors announce these."""
    different = {}
    for queue in facts.readable:
        config = get_config().queue(queue.name)
        live = [one for one in (*queue.consumers, *queue.housekeepers) if one.alive]
        found = {name for one in live for name in _different(config, one.announced)}
        if found:
            different[queue.name] = sorted(found)
    if different:
        shown = named(f"{name} ({', '.join(options)})" for name, options in different.items())
        yield f"Consumers were started with other settings than this process: {shown}."


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


def _of_groups(facts: QueueFacts) -> Iterator[Seen]:
    for topic in facts.topics:
        for group in topic.groups:
            if (group.share or 0.0) < NEAR_RETENTION:
                continue
            retention = topic.config.retention
            left = 0.0 if retention is None else retention.total_seconds() - group.behind_ms / 1000
            until = f" The oldest of them is removed in {_duration(left)}." if left > 0 else ""
            yield Seen(
                f"The group {escape(group.queue)} is {counted(group.behind, 'message')} behind, {group.share:.0%} "
                f"of what its topic keeps.{until}",
                level="error" if (group.share or 0.0) >= 1 else None,
                advice=f"Start more consumers (manage.py runconsumer {group.queue}), or raise RETENTION of the topic. "
                f"If nobody needs the group: manage.py mq topics unsubscribe {group.queue}",
            )


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _of_grace(facts: QueueFacts) -> Iterator[str]:
    """Report handlers that may run for longer than they get when their process stops."""
    found = []
    for queue in facts.readable:
        longest, grace = _longest(queue.name), _shortest_grace(queue)
        if longest is not None and grace is not None and longest.total_seconds() > grace:
            found.append(f"{queue.name} ({longest.total_seconds():g} s, --grace {grace:g})")
    if found:
        yield (
            "Handlers may run for longer than runconsumer waits for them when it stops, as at each deploy: "
            f"{named(found)}. Their messages are then handled again from the beginning."
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


def _of_errors(facts: QueueFacts) -> Iterator[str]:
    views: list[QueueView | TopicView] = [*facts.queues, *facts.topics]
    errors = {view.name: view.error for view in views if view.error}
    for error in dict.fromkeys(errors.values()):
        names = named(name for name in errors if errors[name] == error)
        yield f"{names} could not be looked at: {error.rstrip('.')}."


QUEUE_CHECKS: tuple[DoctorCheck[QueueFacts], ...] = (
    DoctorCheck("D301", "warning", "queues without consumers", _of_unserved),
    DoctorCheck("D302", "warning", "housekeeping", partial(_of_problem, "unattended")),
    DoctorCheck(
        *("D303", "warning", "versions", _of_versions),
        "If this is not a rolling deploy, install the same version everywhere and restart runconsumer there.",
    ),
    DoctorCheck(
        *("D304", "warning", "settings of consumers", _of_options),
        "If this is not a rolling deploy, restart runconsumer, or send it SIGHUP.",
    ),
    DoctorCheck("D305", "warning", "groups and retention", _of_groups),
    DoctorCheck("D306", "warning", "unhandled messages", partial(_of_problem, "unhandled")),
    DoctorCheck(
        *("D307", "note", "grace periods", _of_grace),
        "Start runconsumer with a --grace of at least the longest timeout, and give it 25 s more to stop: "
        "TimeoutStopSec= of systemd, stop_grace_period of Compose, terminationGracePeriodSeconds of Kubernetes.",
    ),
    DoctorCheck(
        *(NOT_CHECKED, "note", "queues that cannot be read", _of_errors),
        "See the findings about the server; a key of a wrong type is shown by the admin.",
    ),
)


def _of_partitions(server: ServerFacts) -> Iterator[str]:
    """Report queues that have another number of partitions in Redis than in the settings."""
    names = dict.fromkeys(queue.public_name for queue in server.queues if queue.store != "rsmq")
    # The groups of a topic have its number.
    wholes = {found.keys.recorded: found for found in map(get_config().queue, names)}
    for key, queue in wholes.items():
        reply = server.transport.pipeline([("HGET", key, "partitions")])[0]
        # On a cluster it may be on another node, which is looked at, too.
        if isinstance(reply, bytes) and reply != str(queue.partitions).encode():
            yield f"{disagreement(queue, reply.decode(errors='replace'))}."


PARTITION_CHECKS: tuple[DoctorCheck[ServerFacts], ...] = (
    DoctorCheck(
        *("D209", "error", "numbers of partitions", _of_partitions),
        "Until then publishing raises QueueClosed, and runconsumer does not start.",
    ),
)
