"""Looks at the keys with the prefix of a project: queues that nobody configures, and keys of no schema."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.keys import HOMES, KINDS, QueueKeys, TopicKeys, is_name
from mq_django.core.texts import escape, line
from mq_django.inspector.doctor.findings import NOT_LOOKED, DoctorFinding, Look, counted
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import reply_or_raise

#: Keys of each SCAN, and the most of these commands: two million keys.
BATCH, MAX_SCANS = 1000, 2000
#: Seconds after which a scan ends early, and between two reports of its progress.
SECONDS, PROGRESS = 20.0, 1.0
#: Names that a finding lists.
MAX_NAMED = 10

_OWN = QueueKeys("", "").ready.removesuffix("ready")
#: The last parts of keys of a queue, and of a topic.
_KINDS = {
    str(getattr(QueueKeys("", ""), kind)).removeprefix(_OWN)
    for kind in (
        *(*KINDS, "waiters", "handled", "handled_ids", "stacks"),
        *("asleep", "moving", "arrived", "shares", "outbox"),
    )
    if kind != "wake"
}
_TOPIC = TopicKeys("", "")
_TOPIC_KINDS = {key.removeprefix(_OWN) for key in (_TOPIC.log, _TOPIC.control, _TOPIC.published)}
#: The last parts of those whose number is not bounded.
_COUNTERS = re.compile(r"counters:(?:[mh]:\d+|total)")
_OF_MESSAGE = re.compile(r"(?:result|progress|stacks):.+", re.DOTALL)
#: Those of the runs of workflows, with what stands in braces: no queue can have this name.
_OF_RUNS = re.compile(
    rf"\{{workflows\.[{HOMES}]\}}:(?:(?:starts|alive|index|unique|busy|checked)"
    r"|(?:run|steps|bodies|after|values|work|held):[0-9a-z]{9,41})"
)
_GROUP = re.compile(r"g:[A-Za-z0-9_-]{1,160}:(.+)", re.DOTALL)

#: Called with the number of keys that were scanned, each second.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """The keys of a server that begin with the prefix."""

    server: ServerFacts
    #: Queue or topic -> the number of its keys, and whether it is a topic.
    names: Mapping[str, int]
    topics: frozenset[str]
    #: Keys of no schema: some of them, and their number.
    strange: Sequence[bytes]
    strange_count: int
    #: Keys of the server that were scanned, and whether these are all.
    scanned: int
    whole: bool


def key_facts(server: ServerFacts, progress: Progress) -> KeyFacts:
    """Scan the keys of a server, a bounded number of them.

    Raises:
        StoreError: the server refuses SCAN, or cannot be reached.
    """
    namespace = get_config().namespace
    form = re.compile(rf"{re.escape(namespace)}:\{{([^{{}}]*)\}}:(.*)", re.DOTALL)
    names: Counter[str] = Counter()
    topics, strange, strange_count = set[str](), list[bytes](), 0
    cursor, scans, began = b"0", 0, time.monotonic()
    reported = began
    pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", namespace)
    while (scans == 0 or cursor != b"0") and scans < MAX_SCANS and time.monotonic() < began + SECONDS:
        command: Command = ("SCAN", cursor, "MATCH", f"{pattern}:*", "COUNT", BATCH)
        cursor, keys = reply_or_raise(server.wire.trip([command])[0])
        scans += 1
        for key in keys:
            text = key.decode(errors="surrogateescape")
            if _OF_RUNS.fullmatch(text, len(namespace) + 1):
                continue
            found = form.fullmatch(text)
            if found is None or not _is_known(found[2]):
                strange_count += not _is_rsmq(key, namespace)
                strange += [key] * (not _is_rsmq(key, namespace) and len(strange) < MAX_NAMED)
                continue
            names[found[1]] += 1
            if found[2] in _TOPIC_KINDS - _KINDS:
                topics.add(found[1])
        if time.monotonic() > reported + PROGRESS:
            reported = time.monotonic()
            progress(scans * BATCH)
    return KeyFacts(
        server=server,
        names=names,
        topics=frozenset(topics),
        strange=strange,
        strange_count=strange_count,
        scanned=scans * BATCH,
        whole=cursor == b"0",
    )


def _is_known(last: str) -> bool:
    """Return whether a queue or a topic has a key with this last part."""
    group = _GROUP.fullmatch(last)
    kind = group[1] if group else last
    return kind in _KINDS | (set() if group else _TOPIC_KINDS) or any(
        form.fullmatch(kind) for form in (_COUNTERS, _OF_MESSAGE)
    )


def _is_rsmq(key: bytes, namespace: str) -> bool:
    """Return whether a key is one of an RSMQ queue: these may use the prefix, too."""
    of_rsmq = [queue for queue in get_config().queues.values() if queue.store == "rsmq"]
    return any(queue.namespace == namespace for queue in of_rsmq) and b"{" not in key


def _of_names(keys: KeyFacts) -> Iterator[DoctorFinding]:
    # The keys of a partition have a tag of their own. That of the queue as a whole may be on another node than they.
    config = get_config()
    wholes = {name for name, whole in (*config.queues.items(), *config.topics.items()) if whole.parts}
    topics = {config.topic(name).keys.topic for name in keys.server.topics}
    known = {*(queue.keys.queue for queue in keys.server.queues), *topics, *wholes}
    unknown = sorted(set(keys.names) - known)
    if not unknown:
        return
    counts = {name: _messages(keys, name) for name in unknown[:MAX_NAMED]}
    shown = [f"{escape(name)} ({counted(count, 'message')})" for name, count in counts.items()]
    more = f" and {len(unknown) - MAX_NAMED} more" if unknown[MAX_NAMED:] else ""
    # No other name may get into a command for a shell: any program may have written it.
    name = next(filter(is_name, unknown), "NAME")
    pattern = f"{get_config().namespace}:{{{name}}}:*"
    yield DoctorFinding(
        code="D201",
        level="warning" if any(counts.values()) else "note",
        seen=f"Redis has queues or topics that are not configured: {', '.join(shown)}{more}. Nobody handles them.",
        advice="Add them to MQ_DJANGO['QUEUES'] or ['TOPICS'] and run a consumer until they are empty. If no "
        "other project uses them, this deletes one with its messages: "
        f"redis-cli --scan --pattern '{pattern}' | xargs redis-cli unlink",
        where=keys.server.where,
    )


def _messages(keys: KeyFacts, name: str) -> int:
    """Return about how many messages a queue or the log of a topic has."""
    own = QueueKeys(get_config().namespace, name)
    commands: list[Command] = [("XLEN", own.ready), ("XLEN", own.urgent), ("HLEN", own.waiting), ("XLEN", own.dead)]
    if name in keys.topics:
        commands.append(("XLEN", TopicKeys(get_config().namespace, name).log))
    # A key of another type counts as none.
    return sum(reply for reply in keys.server.wire.trip(commands) if isinstance(reply, int))


def _of_strange(keys: KeyFacts) -> Iterator[DoctorFinding]:
    if keys.strange:
        more = " and others" if keys.strange_count > len(keys.strange) else ""
        yield DoctorFinding(
            code="D202",
            level="note",
            seen=f"{counted(keys.strange_count, 'key')} with the prefix of the queues, in no form that mq_django uses: "
            f"{', '.join(map(line, keys.strange))}{more}.",
            advice="Another program, or a newer version of mq_django, may use them. If nobody does, delete them with "
            "UNLINK. If another program does, set MQ_DJANGO['NAMESPACE'].",
            where=keys.server.where,
        )


def _of_scan(keys: KeyFacts) -> Iterator[DoctorFinding]:
    if not keys.whole:
        yield DoctorFinding(
            code=NOT_LOOKED,
            level="note",
            seen=f"Redis has too many keys: about {keys.scanned:,} were scanned, and the others not looked at.",
            advice="Give queues a database, or a server, without the keys of other programs.",
            where=keys.server.where,
        )


KEY_LOOKS: tuple[Look[KeyFacts], ...] = (
    Look("queues in Redis", ("D201",), _of_names),
    Look("keys of no schema", ("D202",), _of_strange),
    Look("number of keys", (NOT_LOOKED,), _of_scan),
)
