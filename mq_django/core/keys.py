"""All Redis keys and channels of mq_django. No other module builds one.

All keys of a queue have the queue's name as hash tag, so that they are in one slot of a Redis Cluster and scripts can
use them together.
"""

import re
from dataclasses import dataclass, field

from mq_django.core.partition_keys import KeysOfTopic, PartitionKeys

#: Names of queues and topics. RSMQ has the same rule.
NAME = re.compile(r"[A-Za-z0-9_-]{1,160}", re.ASCII)


def is_name(value: object) -> bool:
    """Return whether a queue, a topic or a group can have this name."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


#: The consumer group of every stream of a queue.
GROUP = "mq"

#: The streams that deliveries are read from, as in `Delivery.stream`. Only groups of topics have the last.
READY, URGENT, LOG = 0, 1, 2

#: The separator in the full name of a group: `orders:billing`.
GROUP_SEPARATOR = ":"

#: The kinds of keys of every queue, as attributes of `QueueKeys`.
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
    "expired",
    "claims",
    "moved",
    "cancels",
    "dead",
    "dead_ids",
    "dead_groups",
    "dead_job",
    "message_job",
    "consumers",
    "control",
    "schedules",
    "runtime_schedules",
    "limits",
    "rates",
    "permits",
    "next_checks",
    "permit_wakeups",
    "tags",
    "step_notes",
    "ended",
    "wake",
)

#: The last part of a key, where it is not the kind with "-" for "_".
_KEY_NAMES = {"parked": "lines", "next_checks": "checks", "permit_wakeups": "freed"}

#: The prefixes of members of `due` that are unique keys, and of members of `parked`. No id starts with them.
UNIQUE_PREFIX = "u:"
PARKED_PREFIX = "p:"


def outbox_channel(namespace: str) -> str:
    """Return the pub/sub channel on which relays hear of new rows of outboxes, on each server."""
    return f"{namespace}:outbox"


@dataclass(frozen=True, slots=True)
class QueueKeys(PartitionKeys):
    """The keys of one queue."""

    namespace: str
    queue: str
    #: STREAM, group `mq`: deliverable messages. Settled ones are deleted, so XLEN is ready + pending.
    ready: str = field(init=False)
    #: STREAM, group `mq`: messages that go first: handed back, reclaimed, or taken from `priority`.
    urgent: str = field(init=False)
    #: ZSET, score by priority and arrival: ids of messages with a priority that wait for others.
    priority: str = field(init=False)
    #: ZSET, score due time in ms: delayed messages, by id or `u:` + unique key.
    due: str = field(init=False)
    #: ZSET, score the hash of the name: messages whose name no consumer has a handler for.
    unhandled: str = field(init=False)
    #: ZSET, score the hash of the message's key: the lines of messages that may not run yet, in the order they came.
    parked: str = field(init=False)
    #: HASH: bodies of the members of `priority`, `due`, `unhandled` and `parked`.
    waiting: str = field(init=False)
    #: HASH: `u:` + unique key -> id, and id -> member if these differ.
    unique: str = field(init=False)
    #: ZSET, score the time in ms: ids of waiting messages that another one has replaced, for a day.
    replaced: str = field(init=False)
    #: ZSET, score the time in ms: ids of messages that were discarded because they had expired, for a week.
    expired: str = field(init=False)
    #: HASH: unique keys taken by `unique_for`: `k:` + key -> the time of the end and the id, `i:` + id -> key.
    claims: str = field(init=False)
    #: ZSET, score the time in ms: the origins of messages that were moved here from other queues, for a week.
    moved: str = field(init=False)
    #: ZSET, score the time in ms: ids whose running message is to be cancelled, for a day; .5 ms more: by force.
    cancels: str = field(init=False)
    #: STREAM: dead letters.
    dead: str = field(init=False)
    #: HASH: message id -> entry of `dead`, so that a dead letter is found at once.
    dead_ids: str = field(init=False)
    #: HASH: error class and name -> the number of dead letters, and when the last one was buried.
    dead_groups: str = field(init=False)
    #: HASH: the current or latest background job on dead letters.
    dead_job: str = field(init=False)
    #: HASH: the current or latest background job on ready or waiting messages.
    message_job: str = field(init=False)
    #: HASH: heartbeats and descriptions of supervisors and consumers.
    consumers: str = field(init=False)
    #: HASH: paused, limits, generation.
    control: str = field(init=False)
    #: The next six are for limits, order and turns, see `lua/parts/line_keys.lua`. HASH: logs of grants, by key.
    limits: str = field(init=False)
    #: ZSET, score when the log has expired: keys with a log.
    rates: str = field(init=False)
    #: ZSET, score the hash of the key: tokens of the messages that run, see `lua/parts/tokens.lua`.
    permits: str = field(init=False)
    #: ZSET, score the time of the next look, in ms: hashes of the keys that have parked messages.
    next_checks: str = field(init=False)
    #: STREAM, group `wake`: an entry wakes a consumer that waits for a permit or a line.
    permit_wakeups: str = field(init=False)
    #: ZSET, score the turn: hashes of the keys whose lines may go on, with FAIR.
    tags: str = field(init=False)
    #: HASH: `last:`, `fired:` and `paused:` + a schedule's name.
    schedules: str = field(init=False)
    #: HASH: the same of schedules that were created at run time; `definition:`, `created:` and `changed:` + its name.
    runtime_schedules: str = field(init=False)
    #: HASH: notes about steps of workflows, until their runs have got them: see `lua/parts/step_notes.lua`.
    step_notes: str = field(init=False)
    #: STREAM: ids of messages that have ended, for the outboxes that keep their rows until then.
    ended: str = field(init=False)
    #: Pub/sub channel: a new earliest due time, a pause, a resume.
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

    @property
    def filled(self) -> tuple[str, ...]:
        """Return the keys that have messages, or schedules created at run time, in a queue that has some."""
        return (self.ready, self.urgent, self.waiting, self.dead, self.runtime_schedules)

    def streams(self) -> tuple[str, ...]:
        """Return the streams by `Delivery.stream`."""
        return (self.ready, self.urgent)

    def minutes(self, hour: int) -> str:
        """Return the key of the HASH with the counters of each minute of an hour (hours since 1970)."""
        return self._key(f"counters:m:{hour}")

    def hours(self, day: int) -> str:
        """Return the key of the HASH with the counters of each hour of a day (days since 1970)."""
        return self._key(f"counters:h:{day}")

    @property
    def totals(self) -> str:
        """HASH: the sums of the counters of all hours before `hour` (hours since 1970). For metrics."""
        return self._key("counters:total")

    def noisy(self, hour: int) -> str:
        """Return the key of the HASH with the keys of the most messages fetched in an hour (hours since 1970).

        Only queues with lines have it; see `lua/parts/noisy_keys.lua`. It has a TTL.
        """
        return self._key(f"noisy:{hour}")

    @property
    def handled(self) -> str:
        """STREAM: what became of messages, if the queue has KEEP_HANDLED; up to 100 in an entry. It has a TTL."""
        return self._key("handled")

    @property
    def handled_ids(self) -> str:
        """HASH: `i:` + message id -> the latest entry of `handled` with it; `total`, their number. It has a TTL."""
        return self._key("handled-ids")

    def result(self, message_id: str) -> str:
        """Return the key of the STRING with a task's result. It has a TTL."""
        return self._key(f"result:{message_id}")

    @property
    def waiters(self) -> str:
        """HASH with a TTL: key of a result -> the processes that wait for it, each with the time of its end in ms."""
        return self._key("waiters")

    def results_channel(self, process: str) -> str:
        """Return the pub/sub channel on which a process hears of the results that it waits for."""
        return self._key(f"results:{process}")

    def progress(self, message_id: str) -> str:
        """Return the key of the HASH with what a message's handler reports. It has a TTL."""
        return self._key(f"progress:{message_id}")

    @property
    def stacks(self) -> str:
        """HASH with a TTL: consumer -> when somebody asked last for the stacks of what it runs, in ms since 1970."""
        return self._key("stacks")

    def stacks_of(self, consumer: str) -> str:
        """Return the key of the STRING with a consumer's answer. It has a TTL."""
        return self._key(f"stacks:{consumer}")


@dataclass(frozen=True, slots=True)
class TopicKeys(PartitionKeys):
    """The keys of one topic."""

    namespace: str
    topic: str

    def _key(self, kind: str) -> str:
        return f"{self.namespace}:{{{self.topic}}}:{kind}"

    @property
    def log(self) -> str:
        """STREAM with one consumer group per group: all messages, for the retention."""
        return self._key("log")

    @property
    def control(self) -> str:
        """HASH: when the log was created."""
        return self._key("control")

    @property
    def filled(self) -> tuple[str, ...]:
        """Return the keys that have messages."""
        return (self.log,)

    @property
    def published(self) -> str:
        """ZSET, score the time of publication in ms: ids that must not be published again."""
        return self._key("published")

    def minutes(self, hour: int) -> str:
        """Return the key of the HASH with the counters of each minute of an hour (hours since 1970)."""
        return self._key(f"counters:m:{hour}")

    def hours(self, day: int) -> str:
        """Return the key of the HASH with the counters of each hour of a day (days since 1970)."""
        return self._key(f"counters:h:{day}")

    @property
    def totals(self) -> str:
        """HASH: the sums of the counters of all hours before `hour` (hours since 1970). For metrics."""
        return self._key("counters:total")

    def group(self, name: str) -> "GroupKeys":
        """Return the keys of one of the topic's groups."""
        return GroupKeys(self.namespace, self.topic, subscriber=name)


@dataclass(frozen=True, slots=True)
class GroupKeys(KeysOfTopic, QueueKeys):
    """The keys of one group of a topic: those of a queue, with the group in them, and the topic's log.

    The consumer group of all its streams has the group's name, so that one command reads the log and the group's own
    streams.
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

    def streams(self) -> tuple[str, ...]:
        """Return the streams by `Delivery.stream`."""
        return (self.ready, self.urgent, self.topic.log)

    def all(self, now: float) -> list[str]:
        """Return every key that the group can have at a moment (seconds since 1970)."""
        hour = int(now) // 3600
        day = hour // 24
        return [
            *(getattr(self, name) for name in KINDS if name != "wake"),
            # The TTLs of counters are a day and two hours, and 35 days.
            *(self.minutes(hour - ago) for ago in range(28)),
            *(self.hours(day - ago) for ago in range(37)),
            self.totals,
        ]
