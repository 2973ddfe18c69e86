"""The checks of the settings and the code, of outboxes, of the keys in Redis, and of queues and their consumers."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.core import checks
from django.utils.translation import override

from mq_django import __version__
from mq_django.conf import Config, QueueConfig, get_config, read
from mq_django.core.jsontext import score
from mq_django.core.keys import QueueKeys, TopicKeys, is_name
from mq_django.core.message_format import PROTOCOL
from mq_django.core.project import Problem
from mq_django.core.schedules import Every
from mq_django.core.texts import escape
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.doctor.findings import MAX_NAMED, NOT_CHECKED, DoctorCheck, Level, Seen, counted, named
from mq_django.inspector.doctor.server_checks import ServerFacts
from mq_django.inspector.outbox_views import OutboxProblem, outbox_databases, outboxes, publish_database, uses_outbox
from mq_django.inspector.problem_sentences import outbox_sentence, sentence
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import overview
from mq_django.inspector.topics import TopicView, topics
from mq_django.registry import find, names, schedules
from mq_django.stores.partition_transport import disagreement, record_command
from mq_django.transport.scripts import Command

# Check the settings, the code and the outboxes of the project, as this process has them.

#: The tag of our system checks.
TAG = "mq_django"

#: System checks of what is right in development.
_NOTES = {"mq_django.W002"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFacts:
    """The settings, and what the system checks say about them and the code."""

    config: Config
    #: Whether the settings can be read.
    is_readable: bool
    checked: Sequence[checks.CheckMessage]


def project_facts() -> ProjectFacts:
    """Run the system checks of mq_django, also those for deployments."""
    config, problems = read(getattr(settings, "MQ_DJANGO", {}))
    checked = checks.run_checks(tags=[TAG], include_deployment_checks=True)
    return ProjectFacts(config=config, is_readable=not problems, checked=checked)


def _of_checks(project: ProjectFacts) -> Iterator[Seen]:
    for message in (message for message in project.checked if not message.is_silenced()):
        level: Level | None = "error" if message.is_serious() else "note" if message.id in _NOTES else None
        yield Seen(f"{message.msg} ({message.id})", level, message.hint or "docs/settings.md lists all settings.")


def _of_unused(project: ProjectFacts) -> Iterator[str]:
    queues = project.config.queues.values()
    found = [queue.name for queue in queues if not queue.external and not any(names(queue.name))]
    if found:
        yield f"Nothing in this project handles messages of {named(found)}: there is no handler and no task."


HOUR = 3600


def _of_ticks(project: ProjectFacts) -> Iterator[str]:
    """Report schedules that publish more than the rate limit of their queue lets through."""
    for queue in project.config.queues.values():
        rate = queue.rate_limit.queue
        allowed = None if rate is None else rate.count * HOUR / rate.window.total_seconds()
        published = _ticks_an_hour(project, queue.name)
        # Nearly the same rate is the same rate, with an error of rounding.
        if allowed is not None and published > allowed * 1.001:
            yield (
                f"Schedules publish {published:,.0f} messages an hour to {queue.name}, and its RATE_LIMIT allows "
                f"{allowed:,.0f}: messages wait longer and longer."
            )


def _ticks_an_hour(project: ProjectFacts, queue: str) -> float:
    """Return the messages an hour of schedules with `every` that go on for ever, and wait until they are handled."""
    every = {entry.id: entry for entry in (*project.config.schedules.values(), *schedules().values())}
    periods = [
        entry.when.period
        for entry in every.values()
        if entry.queue == queue and isinstance(entry.when, Every) and entry.expires is None and entry.ends is None
    ]
    return sum(HOUR / period.total_seconds() for period in periods)


def _of_tables(project: ProjectFacts) -> Iterator[Seen]:
    """Report a database without the tables of the outbox, where messages are published. Others may have them."""
    if not project.is_readable or not uses_outbox():
        return
    alias = publish_database()
    if alias not in outbox_databases():
        yield Seen(
            f"A queue or topic has OUTBOX, and database {alias} has no table of it: publishing raises NoOutbox.",
            advice=f"Run manage.py migrate mq_django --database {alias}, and let DATABASE_ROUTERS allow that.",
            where=f"database {alias}",
        )


def _of_outbox(what: OutboxProblem, project: ProjectFacts) -> Iterator[Seen]:
    """Report the outboxes with a problem."""
    for view in outboxes() if project.is_readable and uses_outbox() else ():
        if what in view.problems(project.config.thresholds):
            name = view.destination or view.database
            with override("en"):
                said = outbox_sentence(view, what)
            yield Seen(f"{name} {said}", where=f"database {view.database}")


PROJECT_CHECKS: tuple[DoctorCheck[ProjectFacts], ...] = (
    DoctorCheck("D203", "warning", "system checks", _of_checks),
    DoctorCheck(
        *("D207", "warning", "schedules and rate limits", _of_ticks),
        'Raise RATE_LIMIT, let the schedules fire less often, or give their messages an expiry ("expires").',
    ),
    DoctorCheck(
        *("D404", "warning", "queues without handlers", _of_unused),
        "Write a handler in an installed app, or name its module in MQ_DJANGO['MODULES']. If other programs "
        "handle the queue, set its EXTERNAL to True.",
    ),
    DoctorCheck("D601", "error", "tables of the outbox", _of_tables),
    DoctorCheck(
        *("D602", "error", "outbox: unreadable", partial(_of_outbox, "unreadable")),
        "Start the database, or correct DATABASES.",
    ),
    DoctorCheck(
        *("D603", "error", "outbox: stopped", partial(_of_outbox, "stopped")),
        "Messages stay in the database until this is decided: see docs/transactions.md.",
    ),
    DoctorCheck(
        *("D604", "warning", "outbox: late", partial(_of_outbox, "late")),
        "A relay runs in each runconsumer without --no-relay, and as mq outbox --relay. Its log says what fails.",
    ),
    DoctorCheck(
        *("D605", "warning", "outbox: set aside", partial(_of_outbox, "set aside")),
        "Look at them with manage.py mq outbox --set-aside or in the admin, then retry or discard them.",
    ),
)


# A look at the keys with the prefix of a project: queues that nobody configures.

#: Keys of each SCAN, and the most of these commands: two million keys.
BATCH, MAX_SCANS = 1000, 2000
#: Seconds after which a scan ends early, and between two reports of its progress.
SECONDS, PROGRESS = 20.0, 1.0

#: The part after the prefix of keys that hold messages: of a queue, a topic, or a group.
_HOLDS_MESSAGES = r":\{([^{}]*)\}:(?:g:[A-Za-z0-9_-]+:)?(ready|front|waiting|dead|log)"

#: Called with the number of keys that were scanned, each second.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """The keys of a server that begin with the prefix."""

    server: ServerFacts
    #: The queues and topics that hold messages, or have held some.
    names: frozenset[str]
    topics: frozenset[str]
    #: Keys of the server that were scanned, and whether these are all.
    scanned: int
    whole: bool


def key_facts(server: ServerFacts, progress: Progress) -> KeyFacts:
    """Scan the keys of a server, a bounded number of them.

    Raises:
        StoreError: the server refuses SCAN, or cannot be reached.
    """
    namespace = get_config().namespace
    form = re.compile(re.escape(namespace) + _HOLDS_MESSAGES)
    names, topics = set[str](), set[str]()
    cursor, scans, began = b"0", 0, time.monotonic()
    reported = began
    pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", namespace)
    while (scans == 0 or cursor != b"0") and scans < MAX_SCANS and time.monotonic() < began + SECONDS:
        command: Command = ("SCAN", cursor, "MATCH", f"{pattern}:*", "COUNT", BATCH)
        cursor, keys = server.transport.ask(command)
        scans += 1
        for found in filter(None, (form.fullmatch(key.decode(errors="surrogateescape")) for key in keys)):
            names.add(found[1])
            if found[2] == "log":
                topics.add(found[1])
        if time.monotonic() > reported + PROGRESS:
            reported = time.monotonic()
            progress(scans * BATCH)
    return KeyFacts(
        server=server,
        names=frozenset(names),
        topics=frozenset(topics),
        scanned=scans * BATCH,
        whole=cursor == b"0",
    )


def _of_names(keys: KeyFacts) -> Iterator[Seen]:
    # The keys of a partition have a tag of their own. That of the queue as a whole may be on another node than they.
    config = get_config()
    wholes = {name for name, whole in (*config.queues.items(), *config.topics.items()) if whole.parts}
    topics = {config.topic(name).keys.topic for name in keys.server.topics}
    unknown = sorted(keys.names - {*(queue.keys.queue for queue in keys.server.queues), *topics, *wholes})
    if not unknown:
        return
    counts = {name: _messages(keys, name) for name in unknown[:MAX_NAMED]}
    shown = [f"{escape(name)} ({counted(count, 'message')})" for name, count in counts.items()]
    more = f" and {len(unknown) - MAX_NAMED} more" if unknown[MAX_NAMED:] else ""
    # No other name may get into a command for a shell: any program may have written it.
    name = next(filter(is_name, unknown), "NAME")
    pattern = f"{config.namespace}:{{{name}}}:*"
    yield Seen(
        f"Redis has queues or topics that are not configured: {', '.join(shown)}{more}. Nobody handles them.",
        level=None if any(counts.values()) else "note",
        advice="Add them to MQ_DJANGO['QUEUES'] or ['TOPICS'] and run a consumer until they are empty. If no "
        "other project uses them, this deletes one with its messages: "
        f"redis-cli --scan --pattern '{pattern}' | xargs redis-cli unlink",
    )


def _messages(keys: KeyFacts, name: str) -> int:
    """Return about how many messages a queue or the log of a topic has."""
    own = QueueKeys(get_config().namespace, name)
    commands: list[Command] = [("XLEN", own.ready), ("XLEN", own.front), ("HLEN", own.waiting), ("XLEN", own.dead)]
    if name in keys.topics:
        commands.append(("XLEN", TopicKeys(get_config().namespace, name).log))
    # A key of another type counts as none.
    return sum(reply for reply in keys.server.transport.pipeline(commands) if isinstance(reply, int))


def _of_scan(keys: KeyFacts) -> Iterator[str]:
    if not keys.whole:
        yield f"Redis has too many keys: about {keys.scanned:,} were scanned, and the others not looked at."


KEY_CHECKS: tuple[DoctorCheck[KeyFacts], ...] = (
    DoctorCheck("D201", "warning", "queues in Redis", _of_names),
    DoctorCheck(
        *(NOT_CHECKED, "note", "number of keys", _of_scan),
        "Give queues a database, or a server, without the keys of other programs.",
    ),
)


# Looks at the queues, the groups of topics, and their consumers.

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
            with override("en"):
                said = sentence(queue, what)
            yield Seen(f"{queue.name} {said}", advice=advice)


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
    if not same_protocol or not {version for version, _ in found} <= {__version__}:
        shown = named(f"{escape(version)} on {host}" for version, host in sorted(found))
        yield f"Consumers have other versions of mq_django than this process, which has {__version__}: {shown}."


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
    if isinstance(digests, dict) and announced.get("version") == __version__:
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
    for queue in wholes.values():
        reply = server.transport.pipeline([record_command(queue, records=False)])[0]
        # On a cluster it may be on another node, which is looked at, too.
        if isinstance(reply, bytes) and reply != str(queue.partitions).encode():
            yield f"{disagreement(queue, reply.decode(errors='replace'))}."


PARTITION_CHECKS: tuple[DoctorCheck[ServerFacts], ...] = (
    DoctorCheck(
        *("D209", "error", "numbers of partitions", _of_partitions),
        "Until then publishing raises QueueClosed, and runconsumer leaves the queue out.",
    ),
)
