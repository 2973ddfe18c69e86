"""Every Redis key and channel of mq_django: nothing else ever spells one.

All keys of a queue carry the queue's name as hash tag, so that they share a slot of a Redis Cluster and every script
can take them together.
"""

import re
from dataclasses import dataclass, field

#: Names of queues and topics, the same as RSMQ's.
NAME = re.compile(r"[A-Za-z0-9_-]{1,160}", re.ASCII)

#: The consumer group of every stream of a queue.
GROUP = "mq"

#: The streams that deliveries are read from, as `Delivery.home`. Only a topic's groups have the last.
READY, URGENT, LOG = 0, 1, 2

#: Between a topic and one of its groups, where they are named together: `orders:billing`.
GROUP_SEPARATOR = ":"

#: The kinds of keys that a queue always may have, as attributes of `QueueKeys`.
KINDS = (
    "ready",
    "urgent",
    "priority",
    "due",
    "unhandled",
    "parked",
    "waiting",
    "unique",
    "replaced",
    "claims",
    "dead",
    "dead_ids",
    "dead_groups",
    "dead_job",
    "consumers",
    "control",
    "schedules",
    "limits",
    "rates",
    "permits",
    "next_checks",
    "permit_wakeups",
    "wake",
)

#: The last part of a key, where it is not the kind with "-" for "_".
_KEY_NAMES = {"next_checks": "turns", "permit_wakeups": "freed"}

#: Members of `due` that stand for a unique key, and of `parked` that stand for a place in line. Ids never start so.
UNIQUE_PREFIX = "u:"
PARKED_PREFIX = "p:"


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The keys of one queue."""

    namespace: str
    queue: str
    #: STREAM, group `mq`: deliverable messages. Settled ones are deleted, so XLEN is ready + pending.
    ready: str = field(init=False)
    #: STREAM, group `mq`: what goes first: handed back, reclaimed, or taken from `priority`.
    urgent: str = field(init=False)
    #: ZSET, score by priority and arrival: ids of prioritised messages while others stand before them.
    priority: str = field(init=False)
    #: ZSET, score due time in ms: delayed messages, by id or `u:` + unique key.
    due: str = field(init=False)
    #: ZSET, score the hash of the name: messages that no consumer knows the name of.
    unhandled: str = field(init=False)
    #: ZSET, score the hash of the message's key: messages over the limit of their key, in the order they came.
    parked: str = field(init=False)
    #: HASH: bodies of what is in `priority`, `due`, `unhandled` and `parked`, by member.
    waiting: str = field(init=False)
    #: HASH: `u:` + unique key -> id, and id -> member where these differ.
    unique: str = field(init=False)
    #: ZSET, score when, in ms: ids of waiting messages that another one replaced, for a day.
    replaced: str = field(init=False)
    #: HASH: unique keys that are taken until a message is handled: `k:` + key -> until and id, `i:` + id -> key.
    claims: str = field(init=False)
    #: STREAM: dead letters.
    dead: str = field(init=False)
    #: HASH: message id -> entry of `dead`, so that a dead letter is found at once.
    dead_ids: str = field(init=False)
    #: HASH: error class and name -> how many dead letters there are, and when one was buried last.
    dead_groups: str = field(init=False)
    #: HASH: what is being done to many dead letters in the background, or was done last.
    dead_job: str = field(init=False)
    #: HASH: heartbeats, and what each consumer is.
    consumers: str = field(init=False)
    #: HASH: paused, limits, generation.
    control: str = field(init=False)
    #: Of limits, see `lua/parts/limits.lua`. HASH: logs of grants, by key.
    limits: str = field(init=False)
    #: ZSET, score when they are past: keys with a log.
    rates: str = field(init=False)
    #: ZSET, score the hash of the key: deliveries that hold a permit of their key.
    permits: str = field(init=False)
    #: ZSET, score when to look again, in ms: keys that have parked messages.
    next_checks: str = field(init=False)
    #: STREAM, group `mq`: an entry wakes one consumer that waits for a permit of the queue.
    permit_wakeups: str = field(init=False)
    #: HASH: `last:`, `fired:` and `paused:` + a schedule's name.
    schedules: str = field(init=False)
    #: Pub/sub channel: a new first due time, a pause, a resume.
    wake: str = field(init=False)

    def __post_init__(self) -> None:
        for name in KINDS:
            object.__setattr__(self, name, self._key(_KEY_NAMES.get(name, name.replace("_", "-"))))

    def _key(self, kind: str) -> str:
        return f"{self.namespace}:{{{self.queue}}}:{kind}"

    @property
    def group(self) -> str:
        """The consumer group of its streams."""
        return GROUP

    def homes(self) -> tuple[str, ...]:
        """Return the streams by `Delivery.home`."""
        return (self.ready, self.urgent)

    def minutes(self, hour: int) -> str:
        """Return the HASH of counters a minute of one hour since 1970."""
        return self._key(f"counters:m:{hour}")

    def hours(self, day: int) -> str:
        """Return the HASH of counters an hour of one day since 1970."""
        return self._key(f"counters:h:{day}")

    def result(self, message_id: str) -> str:
        """Return the STRING with a TTL that holds a task's result."""
        return self._key(f"result:{message_id}")


@dataclass(frozen=True, slots=True)
class TopicKeys:
    """The keys of one topic."""

    namespace: str
    topic: str

    def _key(self, kind: str) -> str:
        return f"{self.namespace}:{{{self.topic}}}:{kind}"

    @property
    def log(self) -> str:
        """STREAM, a group a subscriber group: every message, for its retention."""
        return self._key("log")

    @property
    def control(self) -> str:
        """HASH: when the log was begun."""
        return self._key("control")

    @property
    def published(self) -> str:
        """ZSET, score the time of publishing in ms: ids that are not to be published again."""
        return self._key("published")

    def minutes(self, hour: int) -> str:
        """Return the HASH of counters a minute of one hour since 1970."""
        return self._key(f"counters:m:{hour}")

    def hours(self, day: int) -> str:
        """Return the HASH of counters an hour of one day since 1970."""
        return self._key(f"counters:h:{day}")

    def group(self, name: str) -> "GroupKeys":
        """Return the keys of one of the topic's groups."""
        return GroupKeys(self.namespace, self.topic, subscriber=name)


@dataclass(frozen=True, slots=True)
class GroupKeys(QueueKeys):
    """The keys of one group of a topic: those of a queue, under the group, and the topic's log.

    All its streams have the group's name, so that one read takes from the log and from what the group keeps itself.
    """

    subscriber: str = ""

    def _key(self, kind: str) -> str:
        return f"{self.namespace}:{{{self.queue}}}:g:{self.subscriber}:{kind}"

    @property
    def topic(self) -> TopicKeys:
        """The keys of the topic."""
        return TopicKeys(self.namespace, self.queue)

    @property
    def group(self) -> str:
        """The consumer group of its streams."""
        return self.subscriber

    def homes(self) -> tuple[str, ...]:
        """Return the streams by `Delivery.home`."""
        return (self.ready, self.urgent, self.topic.log)

    def all(self, now: float) -> list[str]:
        """Return every key that the group can have at a moment (seconds since 1970)."""
        hour = int(now) // 3600
        day = hour // 24
        return [
            *(getattr(self, name) for name in KINDS if name != "wake"),
            # As long as counters live: a day and two hours, and 35 days.
            *(self.minutes(hour - ago) for ago in range(28)),
            *(self.hours(day - ago) for ago in range(37)),
        ]


@dataclass(frozen=True, slots=True)
class RsmqKeys(QueueKeys):
    """The keys of a queue in RSMQ's format, and ours beside them.

    RSMQ puts no braces around a name; on a Redis Cluster the namespace itself carries the tag, as in `{rsmq}`. Its set
    and its hash hold what a waiting room does, ids by when they can be seen and bodies by id, and have its names, too.
    """

    def _key(self, kind: str) -> str:
        if kind == "due":
            return self.zset
        if kind == "waiting":
            return self.hash
        return f"{self.namespace}:{self.queue}:mq:{kind}"

    @property
    def zset(self) -> str:
        """RSMQ's ZSET, score when visible in ms: ids."""
        return f"{self.namespace}:{self.queue}"

    @property
    def hash(self) -> str:
        """RSMQ's HASH: attributes, and of each message its body, receive count and first receive."""
        return f"{self.namespace}:{self.queue}:Q"

    @property
    def names(self) -> str:
        """RSMQ's SET of the names of all queues."""
        return f"{self.namespace}:QUEUES"

    @property
    def realtime(self) -> str:
        """RSMQ's pub/sub channel: the number of messages after a send."""
        return f"{self.namespace}:rt:{self.queue}"

    @property
    def owners(self) -> str:
        """HASH: id -> the consumer of ours that holds it, and the receive count then."""
        return self._key("owners")

    @property
    def notes(self) -> str:
        """HASH: id:free, receives that do not count as attempts; id:alone, id:lost."""
        return self._key("notes")

    @property
    def retried(self) -> str:
        """ZSET, score when visible in ms: ids that wait for another attempt."""
        return self._key("retried")

    def homes(self) -> tuple[str, ...]:
        """Return the streams by `Delivery.home`: there are none."""
        return ()

    def own(self) -> list[str]:
        """Return the keys of ours that go with the queue: all but dead letters and counters."""
        return [self.owners, self.notes, self.retried, self.unhandled, self.control, self.consumers]
