"""A queue for display: message counts, consumers, activity and problems. No access to Redis."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

from mq_django.conf import get_config
from mq_django.core.breakers import Hold
from mq_django.core.jsontext import whole
from mq_django.core.keys import HostKeys, QueueKeys, TopicKeys
from mq_django.core.limits import LimitChange, LimitName, Limits
from mq_django.core.partitions import public_name
from mq_django.core.project import OF_PARTS, Problem, Thresholds, exceeds
from mq_django.inspector.consumers import ConsumerView, SlotKind
from mq_django.stores.background_jobs import BackgroundJob
from mq_django.stores.counters import DEPTH, SPENT, TOOK, WAITED
from mq_django.stores.message_scans import ActionableState

# Compute the activity of the last hour, day or week from counters. No access to Redis.

#: Minutes that an `Activity` covers.
WINDOW = 60

#: The kinds that it counts.
HAPPENED = ("published", "handled", "retried", "buried")

#: Where messages of a queue are, as attributes of its view.
STATES = ("ready", "pending", "delayed", "unhandled", "parked", "dead")

#: The upper bound of the first bucket of handling times and of latencies, in seconds.
HANDLING, LATENCY = 1e-4, 1e-3


class Spread(NamedTuple):
    """The percentiles p50 and p95 in seconds; None without data, infinite in the last bucket."""

    p50: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameActivity:
    """The activity of the messages of one name."""

    name: str
    published: int
    handled: int
    retried: int
    buried: int
    #: Handling times, and latencies from ready to the handler's start.
    took: Spread
    waited: Spread
    #: Of hosts and versions: the handling time of all, in seconds.
    spent: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The activity of a queue: counts per minute, or per longer step. The last step is the current one."""

    published: tuple[int, ...]
    handled: tuple[int, ...]
    retried: tuple[int, ...]
    buried: tuple[int, ...]
    #: The elapsed share of the current step.
    elapsed: float
    #: Minutes of a step.
    minutes: int = 1
    #: The start of the first step.
    since_ms: int = 0
    #: Percentiles of the whole period, and of each step.
    took: Spread = Spread()
    waited: Spread = Spread()
    took_each: tuple[Spread, ...] = ()
    waited_each: tuple[Spread, ...] = ()
    #: The busiest first.
    names: tuple[NameActivity, ...] = ()
    #: There were too many to read, and `names` has at most the one that was asked for.
    names_left_out: bool = False
    #: State -> the maximum of messages in it in each step, None where none was noted. Empty if none was noted at all.
    depth: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)

    def per_minute(self, what: str) -> float:
        """Return the count of the last 60 seconds, estimated: the current minute, and a share of the one before.

        `what` is one of the lists of counts, such as "published".
        """
        *_, before, now = getattr(self, what)
        return float(now + before * (1 - self.elapsed))


_NOTHING: Any = dict.fromkeys(HAPPENED, (0,) * WINDOW)
NONE = Activity(**_NOTHING, elapsed=0.0)


class Period(NamedTuple):
    """A time in equal steps. Counters have slots of a minute, which are kept for a day, and of an hour."""

    #: Minutes of a slot: 1 or 60.
    slot: int
    #: The first slot since 1970, the slots of a step, and the number of steps.
    first: int
    per: int
    steps: int
    #: The elapsed share of the last step.
    elapsed: float = 1.0

    @classmethod
    def up_to(cls, now_ms: int, *, slot: int, steps: int, per: int = 1) -> "Period":
        """Return the steps up to the current one. All begin at a multiple of their length."""
        step_ms = slot * per * 60_000
        return cls(slot, (now_ms // step_ms - steps + 1) * per, per, steps, now_ms % step_ms / step_ms)

    @property
    def minutes(self) -> int:
        """Return the minutes of a step."""
        return self.slot * self.per

    @property
    def since_ms(self) -> int:
        """Return the start, in ms since 1970."""
        return self.first * self.slot * 60_000

    @property
    def until_ms(self) -> int:
        """Return the end, in ms since 1970: that of the last step, although it may not be over."""
        return self.since_ms + self.steps * self.minutes * 60_000

    @property
    def size(self) -> int:
        """Return the slots of a hash: the minutes of an hour, or the hours of a day."""
        return 60 if self.slot == 1 else 24

    @property
    def _hashes(self) -> range:
        return range(self.first // self.size, (self.first + self.steps * self.per - 1) // self.size + 1)

    def keys(self, keys: QueueKeys | TopicKeys | HostKeys) -> list[str]:
        """Return the keys of the hashes with its counters."""
        return [keys.minutes(number) if self.slot == 1 else keys.hours(number) for number in self._hashes]

    def by_start(self, hashes: Sequence[Mapping[bytes, bytes]]) -> Mapping[int, Mapping[bytes, bytes]]:
        """Return these hashes by their first slots since 1970."""
        return dict(zip((number * self.size for number in self._hashes), hashes, strict=True))

    def slots(self) -> list[list[int]]:
        """Return for each of these hashes its slots that are in the period."""
        last = self.first + self.steps * self.per
        starts = [number * self.size for number in self._hashes]
        return [[slot for slot in range(self.size) if self.first <= start + slot < last] for start in starts]

    def before(self, days: int) -> "Period":
        """Return the same time some days before."""
        return self._replace(first=self.first - days * 1440 // self.slot, elapsed=1.0)


def activity_of_hour(
    this_hour: Mapping[bytes, bytes], last_hour: Mapping[bytes, bytes], *, now_ms: int, of: str = ""
) -> Activity:
    """Return the activity of the last hour from the counters of the hour of `now_ms` and of the one before.

    `now_ms` is by the clock of this machine: programs count by the clocks of theirs, not by that of Redis.
    """
    hour = now_ms // 3_600_000
    hours = {hour * 60: this_hour, hour * 60 - 60: last_hour}
    return activity_of(hours, Period.up_to(now_ms, slot=1, steps=WINDOW), of=of)


def activity_of(hashes: Mapping[int, Mapping[bytes, bytes]], period: Period, *, of: str = "") -> Activity:
    """Return the activity of a period, in total or of one name.

    Args:
        hashes: hashes of counters by their first slots since 1970.
        period: its steps.
        of: a name.
    """
    steps = period.steps
    at: Any = {"elapsed": period.elapsed, "minutes": period.minutes, "since_ms": period.since_ms}
    if steps == WINDOW and not any(hashes.values()):
        return replace(NONE, **at)
    each: list[Counter[str]] = [Counter() for _ in range(steps)]
    names: dict[str, Counter[str]] = defaultdict(Counter)
    depth: dict[str, dict[int, int]] = defaultdict(dict)
    for start, fields in hashes.items():
        for slot, what, name, count in counts(fields):
            step = (start + slot - period.first) // period.per
            if not 0 <= step < steps:
                continue
            if what.startswith(DEPTH):
                known = depth[what.removeprefix(DEPTH)]
                known[step] = max(count, known.get(step, 0))
                continue
            if name:
                names[name][what] += count
            if name == of:
                each[step][what] += count
    in_all = sum(each, Counter())
    took, waited = _took(in_all), _waited(in_all)
    nothing, by_name = (Spread(),) * steps, map(_name_activity, names, names.values())
    happened: Any = {what: tuple(step[what] for step in each) for what in HAPPENED}
    return Activity(
        **happened,
        **at,
        took=took,
        waited=waited,
        took_each=tuple(map(_took, each)) if took != Spread() else nothing,
        waited_each=tuple(map(_waited, each)) if waited != Spread() else nothing,
        names=tuple(sorted(by_name, key=lambda one: (-sum(getattr(one, what) for what in HAPPENED), one.name))),
        depth={state: tuple(map(depth[state].get, range(steps))) for state in STATES if state in depth},
    )


def counts(fields: Mapping[bytes, bytes]) -> Iterator[tuple[int, str, str, int]]:
    """Yield (slot, what, name, count) for the fields of a counters hash. Invalid fields are left out.

    The name is empty for totals.
    """
    for key, value in fields.items():
        slot, _, rest = key.partition(b"|")
        what, _, name = rest.partition(b"|")
        number, count = whole(slot), whole(value)
        if number is not None and count is not None:
            yield number, what.decode(errors="replace"), name.decode(errors="backslashreplace"), count


def percentile(buckets: Sequence[int], share: float, *, first: float = HANDLING) -> float | None:
    """Return a percentile in seconds from log-scale buckets. `first` is the upper bound of the first bucket."""
    threshold = sum(buckets) * share
    below = 0.0
    for index, count in enumerate(buckets):
        if count and below + count >= threshold:
            if index == len(buckets) - 1:
                return inf
            start = 0 if index == 0 else first * 2 ** (index - 1)
            return float(start + (first * 2**index - start) * (threshold - below) / count)
        below += count
    return None


def _took(found: Counter[str]) -> Spread:
    return _spread([found[what] for what in TOOK], HANDLING)


def _waited(found: Counter[str]) -> Spread:
    return _spread([found[what] for what in WAITED], LATENCY)


def _spread(buckets: Sequence[int], first: float) -> Spread:
    if not any(buckets):
        return Spread()
    return Spread(percentile(buckets, 0.5, first=first), percentile(buckets, 0.95, first=first))


def _name_activity(name: str, found: Counter[str]) -> NameActivity:
    happened: Any = {what: found[what] for what in HAPPENED}
    return NameActivity(name=name, **happened, took=_took(found), waited=_waited(found), spent=found[SPENT] / 1000)


#: For how long messages wait while other queues hold all slots until this is a problem, in ms.
STARVED_MS = 2000

#: For how long nothing of a queue has run, in minutes, although it waits and slots are free, until this is a problem.
STALLED = 2

#: Minutes in which dead letters count as recent.
RECENT = 30

#: Share of failed attempts from which it is highlighted.
MANY_ERRORS = 0.05

#: Minutes over which growth is measured, and the minimum growth in messages.
GROWING, MIN_GROWTH = 10, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """What holds all slots of one kind of a queue's consumers: the handler that has run longest."""

    kind: SlotKind
    #: How many threads these consumers have; 0 for coroutines.
    threads: int
    consumers: tuple[str, ...]
    #: The queue and the name of the message, and for how long its handler has run, in ms.
    queue: str
    name: str
    ms: int
    #: For how long no slot has become free, in ms.
    held_ms: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a queue, why, and since when. All unknown if another program paused it."""

    who: str = ""
    reason: str = ""
    since_ms: int | None = None
    #: Of the action that paused several queues; empty for a queue that was paused by itself.
    name: str = ""


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """The keys of which a dead letter holds up the parked messages. A lower bound if thousands of keys are busy."""

    keys: int = 0
    #: Their parked messages.
    messages: int = 0
    #: Since when the first of them waits, in ms since 1970.
    since_ms: int | None = None


def limits_of(view: "QueueView") -> Limits:
    """Return the limits of a queue as they are now."""
    return get_config().queue(view.name).limits.changed(view.limit_changes)


def _since(hold: Hold) -> int:
    return hold.since_ms or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue: its messages by place, its consumers, the activity of the last hour.

    Of a queue with partitions these are sums: see `mq_django.inspector.statistics`.
    """

    name: str
    now_ms: int = 0
    ready: int = 0
    #: Those of them that are in the log of its topic, which other groups read, too.
    lag: int = 0
    pending: int = 0
    delayed: int = 0
    unhandled: int = 0
    #: Over the limit of their key, or held.
    parked: int = 0
    dead: int = 0
    #: Pending messages that their consumers have fetched and not started, as of the last heartbeats.
    fetched: int = 0
    #: For how long the oldest ready message has been ready, in ms; None without ready messages.
    oldest_ms: int | None = None
    #: The same for the oldest fetched message that has not started; None if there is none, or it is unknown.
    fetched_ms: int | None = None
    #: The same for the oldest parked message, of keys that no dead letter holds up: of many keys, of some.
    parked_ms: int | None = None
    held: HeldKeys = HeldKeys()
    #: Of a group of a topic: its share of the retention if it is near its end, and messages that it lost to that.
    retention: float | None = None
    lost: int = 0
    #: Milliseconds until the first delayed message is due; None without delayed messages.
    next_due_ms: int | None = None
    #: None while it is not paused.
    pause: Pause | None = None
    #: The background jobs that are running.
    jobs: tuple[BackgroundJob, ...] = ()
    #: Live ones first.
    consumers: Sequence[ConsumerView] = ()
    #: Set while messages wait and all slots of its consumers are busy.
    blocker: Blocker | None = None
    has_runtime_schedules: bool = False
    #: What is held of it, by people or by breakers.
    holds: tuple[Hold, ...] = ()
    #: The limits that have another value than in the settings.
    limit_changes: Mapping[LimitName, LimitChange] = field(default_factory=dict)
    #: Other programs handle it: their consumers may not be known.
    external: bool = False
    #: The live supervisors that do its housekeeping and have no consumers in it.
    housekeepers: tuple[ConsumerView, ...] = ()
    activity: Activity = NONE
    #: Why it cannot be read; empty when it can. With partitions it is set if none of them can be read.
    error: str = ""
    #: Its partitions, in the order of their numbers.
    parts: "tuple[QueueView, ...]" = ()

    @property
    def each_part(self) -> "Sequence[QueueView]":
        """Return the partitions, or this queue itself if it has none."""
        return self.parts or (self,)

    @property
    def paused_parts(self) -> int:
        """Return how many of its partitions are paused."""
        return sum(part.paused for part in self.parts)

    @property
    def errors(self) -> dict[str, str]:
        """Return why it, or some of its partitions, cannot be read, by their names."""
        return {part.name: part.error for part in self.each_part if part.error}

    @property
    def paused(self) -> bool:
        """Return whether it is paused; with partitions, whether all of them are."""
        return self.pause is not None

    @property
    def open_breakers(self) -> list[Hold]:
        """Return what a breaker holds, the first one first."""
        return sorted((hold for hold in self.holds if hold.by_breaker), key=_since)

    @property
    def held_by_people(self) -> list[Hold]:
        """Return what people hold, the first one first."""
        return sorted((hold for hold in self.holds if hold.state == "held" and hold.holds(self.now_ms)), key=_since)

    @property
    def depth(self) -> int:
        """Return ready + waiting + pending."""
        return self.ready + self.pending + self.delayed + self.unhandled + self.parked

    def own(self, state: ActionableState) -> int:
        """Return the number of its messages in a state, without those in the log of its topic."""
        found: int = getattr(self, state)
        return found - self.lag if state == "ready" else found

    @property
    def alive(self) -> int:
        """Return the number of live consumers."""
        # Asked many times for a page of all queues.
        return len([consumer for consumer in self.consumers if consumer.alive and consumer.is_process])

    @property
    def running(self) -> int:
        """Return how many of its messages run, as far as heartbeats list them."""
        return sum(len(consumer.running) for consumer in self.consumers if consumer.alive)

    @property
    def is_idle(self) -> bool:
        """Return whether it has no messages, no activity in the last half hour and no problems."""
        happened = any(any(getattr(self.activity, what)[-RECENT:]) for what in HAPPENED)
        return not (self.depth or happened or self.problems())

    @property
    def not_started(self) -> int:
        """Return how many messages wait for a handler: ready ones, and those that were fetched and have not started."""
        return self.ready + self.fetched

    @property
    def waited_ms(self) -> int | None:
        """Return for how long the oldest of them, or of the parked ones, has waited, in ms; None without any."""
        waited = (self.oldest_ms, self.fetched_ms, self.parked_ms)
        return max((ms for ms in waited if ms is not None), default=None)

    @property
    def awaits_slots(self) -> bool:
        """Return whether messages are ready, were fetched and have not started, or are parked and may go on."""
        return self.ready > 0 or self.parked_ms is not None or 0 < self.pending > self.running

    @property
    def threads(self) -> tuple[int, int] | None:
        """Return how many threads of its consumers run a handler, of any queue, and how many there are.

        None if one of them does not announce that.
        """
        live = [consumer for consumer in self.consumers if consumer.is_fetching]
        busy = [consumer.busy for consumer in live if consumer.busy is not None]
        return (sum(busy), sum(consumer.threads or 0 for consumer in live)) if len(busy) == len(live) else None

    @property
    def is_starved(self) -> bool:
        """Return whether its messages wait because other queues hold all slots of its consumers."""
        if self.blocker is None or self.running or public_name(self.blocker.queue) == public_name(self.name):
            return False
        return max(self.blocker.held_ms, self.waited_ms or 0) >= STARVED_MS

    @property
    def is_stalled(self) -> bool:
        """Return whether nothing of it has run for minutes although messages wait and its consumers have free slots.

        What a limit holds up is not: a rate may allow one message an hour.
        """
        limits, free = limits_of(self), self.threads
        if self.blocker is not None or self.running or not self.alive or free is None or free[0] >= free[1]:
            return False
        if limits.rate is not None or limits.key_rate is not None or self.pending >= (limits.concurrency or inf):
            return False
        ended = (self.activity.handled, self.activity.retried, self.activity.buried)
        if self.activity is NONE or (self.waited_ms or 0) < STALLED * 60_000:
            return False
        return not any(any(each[-STALLED - 1 :]) for each in ended)

    @property
    def is_served(self) -> bool:
        """Return whether a live consumer is known, or other programs handle the queue."""
        return self.external or any(consumer.alive and consumer.is_process for consumer in self.consumers)

    @property
    def recently_buried(self) -> int:
        """Return how many messages became dead letters in the last half hour, if they still are."""
        return min(self.dead, sum(self.activity.buried[-RECENT:]))

    @property
    def error_share(self) -> float | None:
        """Return the share of failed attempts in the last half hour, 0 to 1; None without attempts."""
        failed = sum(self.activity.retried[-RECENT:]) + sum(self.activity.buried[-RECENT:])
        ran = failed + sum(self.activity.handled[-RECENT:])
        return failed / ran if ran else None

    @property
    def fails_often(self) -> bool:
        """Return whether the share of failed attempts is high."""
        return (self.error_share or 0.0) >= MANY_ERRORS

    @property
    def growth(self) -> int:
        """Return the growth of the queue in the last full minutes, 0 if it does not grow steadily.

        It must grow in both halves of the time, so that bursts do not count. Half of the growth must be ready,
        fetched or parked, so that delayed messages do not count.
        """
        halves = [self._surplus(-GROWING - 1, -GROWING // 2 - 1), self._surplus(-GROWING // 2 - 1, -1)]
        total = sum(halves)
        enough = max(MIN_GROWTH, sum(self.activity.published[-GROWING - 1 : -1]) // 10)
        return total if min(halves) > 0 and total >= enough and self.not_started + self.parked >= total // 2 else 0

    def _surplus(self, first: int, last: int) -> int:
        gone = sum(self.activity.handled[first:last]) + sum(self.activity.buried[first:last])
        return sum(self.activity.published[first:last]) - gone

    def figures(self, thresholds: Thresholds) -> dict[Problem, tuple[float, float | None]]:
        """Return the figures of problems that have one, in messages or seconds, each with that of the `thresholds`."""
        waited_ms, held_ms = self.waited_ms or 0, 0 if self.blocker is None else self.blocker.held_ms
        return {
            "unconsumed": (self.depth, 0),
            "unattended": (self.depth, 0),
            "stalled": (waited_ms / 1000, STALLED * 60),
            "held": (self.held.messages, 0),
            "lost": (self.lost, 0),
            "starved": (max(held_ms, waited_ms) / 1000, STARVED_MS / 1000),
            "unhandled": (self.unhandled, thresholds.max_unhandled),
            "growing": (self.growth, thresholds.max_growth),
            "buried": (self.recently_buried, thresholds.max_buried),
            "late": (waited_ms / 1000, thresholds.max_age),
            "ready": (self.not_started, thresholds.max_ready),
            "dead": (self.dead, thresholds.max_dead),
        }

    def since_ms(self, kind: Problem) -> int | None:
        """Return since when it has a problem, in ms since 1970; None if that is not known.

        Args:
            kind: one of its problems.
        """
        match kind:
            case "paused":
                return None if self.pause is None else self.pause.since_ms
            case "held":
                return self.held.since_ms
            case "breaker":
                return next((hold.since_ms for hold in self.open_breakers), None)
            case "hold":
                return next((hold.since_ms for hold in self.held_by_people), None)
            case "late" | "stalled" | "unconsumed":
                return None if self.waited_ms is None else self.now_ms - self.waited_ms
            case "starved":
                return None if self.blocker is None else self.now_ms - self.blocker.held_ms
        return None

    def problems(self, thresholds: Thresholds | None = None) -> list[Problem]:
        """Return the problems of the queue, the worst first. None: by the thresholds of the settings."""
        thresholds = thresholds or get_config().thresholds
        flows = self.is_served and not self.paused
        # Thresholds may be wider, and say when a wait is one.
        is_late = flows and exceeds((self.waited_ms or 0) / 1000, thresholds.max_age) and not self.is_starved
        is_stalled = is_late and self.is_stalled
        above = {what: exceeds(*figure) for what, figure in self.figures(thresholds).items()}
        wrong: dict[Problem, bool] = {
            "unreadable": bool(self.error),
            "unconsumed": not self.is_served and above["unconsumed"],
            "unattended": self.external and not self.housekeepers and above["unattended"],
            "stalled": is_stalled,
            "lost": above["lost"],
            "retention": self.retention is not None,
            "held": above["held"],
            "breaker": bool(self.open_breakers),
            "starved": self.is_starved,
            "unhandled": above["unhandled"],
            "growing": flows and above["growing"],
            "buried": above["buried"],
            "late": is_late and not is_stalled,
            "paused": self.paused,
            "hold": bool(self.held_by_people),
            "ready": above["ready"],
            "dead": above["dead"],
        }
        if self.parts:
            found = {problem for part in self.parts for problem in part.problems(thresholds)}
            wrong |= {problem: problem in found for problem in OF_PARTS}
            # Its partitions are late because other queues hold the slots.
            wrong["late"] = wrong["late"] and not self.is_starved
        return [problem for problem, exists in wrong.items() if exists]
