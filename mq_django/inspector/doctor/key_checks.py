"""A look at the keys with the prefix of a project: queues that nobody configures."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.keys import QueueKeys, TopicKeys, is_name
from mq_django.core.texts import escape
from mq_django.inspector.doctor.findings import MAX_NAMED, NOT_CHECKED, DoctorCheck, Seen, counted
from mq_django.inspector.doctor.server_checks import ServerFacts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import reply_or_raise

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
        cursor, keys = reply_or_raise(server.transport.pipeline([command])[0])
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
