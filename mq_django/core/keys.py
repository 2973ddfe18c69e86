"""All Redis keys and channels of mq_django. No other module builds one.

All keys of a queue have its name as hash tag: they are in one slot of a cluster, and scripts can use them together.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

# The keys that queues and topics have alike. Most are only of those with partitions, and of their partitions.


class PartitionKeys(ABC):
    """The part of the keys of a queue, a topic or a group that is about partitions and counters."""

    __slots__ = ()

    @property
    def recorded(self) -> str:
        """HASH with the number of partitions in its field `partitions`, of what has some or is one."""
        return self._key("control")

    @property
    @abstractmethod
    def filled(self) -> tuple[str, ...]:
        """Return the keys that are not empty if there were messages before there were partitions."""

    @property
    def asleep(self) -> str:
        """STRING with a TTL, of a partition: there was nothing to fetch, and what comes next is to wake consumers."""
        return self._key("asleep")

    @property
    def shares(self) -> str:
        """HASH, of a queue with partitions: consumer -> its share of the limits of the whole queue, and its end."""
        return self._key("shares")

    @property
    def arrivals(self) -> str:
        """Pub/sub channel, of a partition: consumers had found nothing, and now there is something."""
        return self._key("arrivals")

    @property
    def moving(self) -> str:
        """STREAM, of a partition: what is on its way to another one, while the number of partitions is changed."""
        return self._key("moving")

    @property
    def arrived(self) -> str:
        """HASH, of a partition: tag of another one -> the latest entry of its `moving` that has arrived here."""
        return self._key("arrived")

    @property
    def outbox(self) -> str:
        """HASH: outbox of a database -> its latest claim for this destination, and how much of it is published."""
        return self._key("outbox")

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

    @abstractmethod
    def _key(self, kind: str) -> str:
        """Return the key of a kind."""


class KeysOfTopic(PartitionKeys):
    """The keys about partitions that a group shares with all groups of its topic."""

    __slots__ = ()

    @property
    @abstractmethod
    def topic(self) -> PartitionKeys:
        """The keys of the topic."""

    @property
    def recorded(self) -> str:
        """See PartitionKeys.recorded: a group has as many partitions as its topic."""
        return self.topic.recorded

    @property
    def filled(self) -> tuple[str, ...]:
        """See PartitionKeys.filled: the log."""
        return self.topic.filled

    @property
    def asleep(self) -> str:
        """See PartitionKeys.asleep: one for all groups, because what is published is for all of them."""
        return self.topic.asleep

    @property
    def arrivals(self) -> str:
        """See PartitionKeys.arrivals and `asleep`."""
        return self.topic.arrivals


#: Names of queues and topics. RSMQ has the same rule.
NAME = re.compile(r"[A-Za-z0-9_-]{1,160}", re.ASCII)


def is_name(value: object) -> bool:
    """Return whether a queue, a topic or a group can have this name."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def dashed(name: object) -> str:
    """Return a valid name for one with dots and other characters that names do not have; "" if it leads to none."""
    found = re.sub(r"[.*:/ ]+", "-", name[:161]).strip("-") if isinstance(name, str) else ""
    return found if is_name(found) else ""


def instead_of(name: object) -> str:
    """Return what to write in place of a name with a dot, as the end of an error; "" of any other name."""
    other = dashed(name) if isinstance(name, str) and "." in name else ""
    return f". A dot is for partitions: write {other!r}" if other else ""


#: The consumer group of every stream of a queue.
GROUP = "mq"
#: The streams that deliveries are read from, as in `Delivery.stream`. Only groups of topics have the last.
READY, FRONT, LOG = 0, 1, 2

#: The separator in the full name of a group: `orders:billing`.
GROUP_SEPARATOR = ":"

#: The kinds of keys of every queue, as attributes of `QueueKeys`.
KINDS = (
    "ready",
    "front",
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
    "jobs",
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
    "holds",
    "step_notes",
    "ended",
    "wake",
)

#: The prefixes of members of `due` that are unique keys, and of members of `parked`. No id starts with them.
UNIQUE_PREFIX = "u:"
PARKED_PREFIX = "p:"


def key_name(attribute: str) -> str:
    """Return the last part of a key by the attribute of `QueueKeys` that has it."""
    return attribute.replace("_", "-")


def mutes_key(namespace: str) -> str:
    """Return the HASH, kind of problem and queue -> until when it is muted, by whom, and why."""
    return f"{namespace}:muted"


def stars_key(namespace: str) -> str:
    """Return the HASH, user of the admin -> the queues that are starred."""
    return f"{namespace}:starred"


@dataclass(frozen=True, slots=True)
class HostKeys:
    """The keys of the counters of consumers by host and version, for all queues."""

    namespace: str

    def minutes(self, hour: int) -> str:
        """Return the key of the HASH with the counters of each minute of an hour (hours since 1970)."""
        return f"{self.namespace}:{{hosts.}}:m:{hour}"

    def hours(self, day: int) -> str:
        """Return the key of the HASH with the counters of each hour of a day (days since 1970)."""
        return f"{self.namespace}:{{hosts.}}:h:{day}"

    def of(self, kind: Literal["counted", "versions", "sampled"]) -> str:
        """Return another key.

        `counted` is a HASH, consumer -> its counts that are in these counters, as `handled failed`; `versions` a ZSET
        of the latest versions, each since when a consumer has it; `sampled` a STRING while there is a latest sample.
        """
        return f"{self.namespace}:{{hosts.}}:{kind}"


def activity_key(namespace: str) -> str:
    """Return the STREAM with the latest of what people and code have done to queues."""
    return f"{namespace}:activity"


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
    front: str = field(init=False)
    #: ZSET, score by priority and arrival: ids of messages with a priority that wait for others.
    priority: str = field(init=False)
    #: ZSET, score due time in ms: delayed messages, by id or `u:` + unique key.
    due: str = field(init=False)
    #: ZSET, score the hash of the name: messages whose name no consumer has a handler for.
    unhandled: str = field(init=False)
    #: ZSET, score the hash of the message's key: the lines of messages that may not run yet; below 0 what is held.
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
    #: HASH: for each place of messages the current or latest background job, see `lua/parts/jobs.lua`.
    jobs: str = field(init=False)
    #: HASH: heartbeats and descriptions of supervisors and consumers.
    consumers: str = field(init=False)
    #: HASH: paused, limits, generation.
    control: str = field(init=False)
    #: The next six are for limits and order, see `lua/parts/line_keys.lua`. HASH: logs of grants, by key.
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
    #: HASH: what is held, see `lua/parts/holds.lua`.
    holds: str = field(init=False)
    #: HASH: `last:`, `fired:` and `paused:` + a schedule's name.
    schedules: str = field(init=False)
    #: HASH: the same of schedules created at run time; `definition:`, `created:` and `changed:` + its name.
    runtime_schedules: str = field(init=False)
    #: HASH: notes about steps of workflows, until their runs have got them: see `lua/parts/step_notes.lua`.
    step_notes: str = field(init=False)
    #: STREAM: ids of messages that have ended, for the outboxes that keep their rows until then.
    ended: str = field(init=False)
    #: Pub/sub channel: a new earliest due time, a pause, a resume.
    wake: str = field(init=False)

    def __post_init__(self) -> None:
        for name in KINDS:
            object.__setattr__(self, name, self._key(key_name(name)))

    def _key(self, kind: str) -> str:
        return f"{self.namespace}:{{{self.queue}}}:{kind}"

    @property
    def group(self) -> str:
        """The consumer group of its streams."""
        return GROUP

    @property
    def filled(self) -> tuple[str, ...]:
        """Return the keys that have messages, or schedules created at run time, in a queue that has some."""
        return (self.ready, self.front, self.waiting, self.dead, self.runtime_schedules)

    def streams(self) -> tuple[str, ...]:
        """Return the streams by `Delivery.stream`."""
        return (self.ready, self.front)

    @property
    def handled(self) -> str:
        """STREAM: what became of messages, if the queue has HISTORY; up to 100 in an entry. It has a TTL."""
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

    def message_stream(self, message_id: str) -> str:
        """Return the key of the STREAM with what a message's handler streams, and of its channel. It has a TTL."""
        return self._key(f"stream:{message_id}")

    @property
    def stacks(self) -> str:
        """HASH with a TTL: consumer -> when somebody asked last for the stacks of what it runs, in ms since 1970."""
        return self._key("stacks")

    def breaker(self, subject: str) -> str:
        """Return the key of the HASH with the latest failures that a breaker counts. It has a TTL."""
        return self._key(f"breaker:{subject}")

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

    def group(self, name: str) -> "GroupKeys":
        """Return the keys of one of the topic's groups."""
        return GroupKeys(self.namespace, self.topic, subscriber=name)


@dataclass(frozen=True, slots=True)
class GroupKeys(KeysOfTopic, QueueKeys):
    """The keys of a topic's group: like a queue's, with the group in them, and the topic's log.

    The consumer group of all its streams has the group's name, so that a single command reads the log and the group's
    own streams.
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
        return (self.ready, self.front, self.topic.log)

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


# The keys of queues in RSMQ's format. No other module builds one.


@dataclass(frozen=True, slots=True)
class RsmqKeys(QueueKeys):
    """The keys of a queue in RSMQ's format, and our additional keys.

    RSMQ puts no braces around a name. On a Redis Cluster the namespace has the hash tag, as in `{rsmq}`. RSMQ's ZSET of
    ids by visibility and HASH of bodies by id correspond to `due` and `waiting`, and are available under these names,
    too.
    """

    def _key(self, kind: str) -> str:
        if kind == "due":
            return self.zset
        if kind == "waiting":
            return self.hash
        return f"{self.namespace}:{self.queue}:mq:{kind}"

    @property
    def zset(self) -> str:
        """RSMQ's ZSET, score the time in ms from which it is visible: ids."""
        return f"{self.namespace}:{self.queue}"

    @property
    def hash(self) -> str:
        """RSMQ's HASH: the queue's attributes, and each message's body, receive count and first receive."""
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
        """HASH: id -> our consumer that holds it, and the receive count at that time."""
        return self._key("owners")

    @property
    def notes(self) -> str:
        """HASH: id:free, the number of receives that do not count as attempts; id:alone; id:lost."""
        return self._key("notes")

    @property
    def retried(self) -> str:
        """ZSET, score the time in ms from which it is visible: ids that wait for another attempt."""
        return self._key("retried")

    def streams(self) -> tuple[str, ...]:
        """Return the streams by `Delivery.stream`: there are none."""
        return ()

    def own(self) -> list[str]:
        """Return our keys that are deleted with the queue: all but dead letters, jobs, counters and `moved`."""
        waiting = [self.notes, self.retried, self.unhandled, self.expired]
        return [self.owners, *waiting, self.control, self.consumers]


# The keys of workflows. No other module builds one.

#: Prefix of the ids of messages that are steps of workflows: `w:<run>.<step>.<round>`. No other id starts with it.
STEP_PREFIX = "w:"
#: Prefix of the ids of messages that are callbacks of runs: `w-<run>.<kind>.<round>`.
CALLBACK_PREFIX = "w-"
#: The first character of a run's id names its home: the keys of all runs of a home are in one hash slot. On one server
#: one home is enough.
HOMES = "0"


@dataclass(frozen=True, slots=True)
class WorkflowKeys:
    """The keys of one home of workflows."""

    namespace: str
    #: One of HOMES.
    home: str

    def _key(self, kind: str) -> str:
        return f"{self.namespace}:{{workflows.{self.home}}}:{kind}"

    @property
    def starts(self) -> str:
        """STREAM: steps and callbacks that are to be published."""
        return self._key("starts")

    @property
    def alive(self) -> str:
        """ZSET, score when it expires in ms: runs that have not ended."""
        return self._key("alive")

    @property
    def index(self) -> str:
        """ZSET, score when it was started in ms: all runs."""
        return self._key("index")

    @property
    def unique(self) -> str:
        """HASH: unique key -> the run that has it, until that has ended."""
        return self._key("unique")

    @property
    def busy(self) -> str:
        """ZSET, score when it was left in ms: runs of which only a part of the changes is made."""
        return self._key("busy")

    @property
    def checked(self) -> str:
        """STRING with a TTL: while it exists, no other supervisor checks the runs."""
        return self._key("checked")

    @property
    def stuck(self) -> str:
        """STRING with a TTL: how many runs did not go on at the last check, why the first of them, and its id."""
        return self._key("stuck")

    def run(self, run_id: str) -> str:
        """HASH: the state of a run, its counts, times and callbacks."""
        return self._key(f"run:{run_id}")

    def steps(self, run_id: str) -> str:
        """HASH: number of a step -> its record, see `lua/workflows_advance.lua`."""
        return self._key(f"steps:{run_id}")

    def bodies(self, run_id: str) -> str:
        """HASH: number of a step -> what is published to start it."""
        return self._key(f"bodies:{run_id}")

    def after(self, run_id: str) -> str:
        """HASH: number of a step -> ranges of the steps that wait for it."""
        return self._key(f"after:{run_id}")

    def values(self, run_id: str) -> str:
        """HASH: number of a step -> the JSON text of the value that it has returned."""
        return self._key(f"values:{run_id}")

    def work(self, run_id: str) -> str:
        """LIST: changes that are still to be made."""
        return self._key(f"work:{run_id}")

    def held(self, run_id: str) -> str:
        """LIST: steps that start when the run continues."""
        return self._key(f"held:{run_id}")

    def of_run(self, run_id: str) -> tuple[str, ...]:
        """Return the keys that only one run has."""
        kinds = (self.run, self.steps, self.bodies, self.after, self.values, self.work, self.held)
        return tuple(kind(run_id) for kind in kinds)

    def all(self, run_id: str) -> tuple[str, ...]:
        """Return the keys that a change of a run needs, in the order of the script."""
        return (*self.of_run(run_id), self.starts, self.alive, self.index, self.unique, self.busy)
