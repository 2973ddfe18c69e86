"""Compute the activity of the last hour, day or week from counters. No access to Redis."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from mq_django.core.numbers import whole
from mq_django.stores.counters import TOOK, WAITED

#: Minutes that an `Activity` covers.
WINDOW = 60

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

    def per_minute(self, what: str) -> float:
        """Return the count of the last 60 seconds, estimated: the current minute, and a share of the one before.

        `what` is one of the lists of counts, such as "published".
        """
        *_, before, now = getattr(self, what)
        return float(now + before * (1 - self.elapsed))


NONE = Activity(
    published=(0,) * WINDOW, handled=(0,) * WINDOW, retried=(0,) * WINDOW, buried=(0,) * WINDOW, elapsed=0.0
)


def activity_of_hour(
    this_hour: Mapping[bytes, bytes], last_hour: Mapping[bytes, bytes], *, now_ms: int, of: str = ""
) -> Activity:
    """Return the activity of the last hour from the counters of the hour of `now_ms` and of the one before.

    `now_ms` is by the clock of this machine: programs count by the clocks of theirs, not by that of Redis.
    """
    hour = now_ms // 3_600_000
    hours = ((hour * 60, this_hour), (hour * 60 - 60, last_hour))
    elapsed = now_ms % 60_000 / 60_000
    return _activity(hours, now=now_ms // 60_000, steps=WINDOW, minutes=1, elapsed=elapsed, of=of)


def activity_of_days(days: Mapping[int, Mapping[bytes, bytes]], *, now_ms: int, hours: int, of: str = "") -> Activity:
    """Return the activity of the last hours from the counters of days since 1970, in total or of one name."""
    starts = [(day * 24, fields) for day, fields in days.items()]
    elapsed = now_ms % 3_600_000 / 3_600_000
    return _activity(starts, now=now_ms // 3_600_000, steps=hours, minutes=60, elapsed=elapsed, of=of)


def _activity(
    found: Iterable[tuple[int, Mapping[bytes, bytes]]], *, now: int, steps: int, minutes: int, elapsed: float, of: str
) -> Activity:
    found = [(start, fields) for start, fields in found if fields]
    first = now - steps + 1
    since_ms = first * minutes * 60_000
    if not found and steps == WINDOW:
        return replace(NONE, elapsed=elapsed, minutes=minutes, since_ms=since_ms)
    each: list[Counter[str]] = [Counter() for _ in range(steps)]
    names: dict[str, Counter[str]] = defaultdict(Counter)
    for start, fields in found:
        for slot, what, name, count in counts(fields):
            step = start + slot - first
            if not 0 <= step < steps:
                continue
            if name:
                names[name][what] += count
            if name == of:
                each[step][what] += count
    in_all = sum(each, Counter())
    took, waited = _took(in_all), _waited(in_all)
    nothing = (Spread(),) * steps
    return Activity(
        published=tuple(step["published"] for step in each),
        handled=tuple(step["handled"] for step in each),
        retried=tuple(step["retried"] for step in each),
        buried=tuple(step["buried"] for step in each),
        elapsed=elapsed,
        minutes=minutes,
        since_ms=since_ms,
        took=took,
        waited=waited,
        took_each=tuple(map(_took, each)) if took != Spread() else nothing,
        waited_each=tuple(map(_waited, each)) if waited != Spread() else nothing,
        names=tuple(sorted(map(_name_activity, names, names.values()), key=_busiest_first)),
    )


def counts(fields: Mapping[bytes, bytes]) -> Iterator[tuple[int, str, str, int]]:
    """Yield (slot, what, name, count) for the fields of a counters hash. Invalid fields are left out.

    The name is empty for totals.
    """
    for field, value in fields.items():
        slot, _, rest = field.partition(b"|")
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
    return NameActivity(
        name=name,
        published=found["published"],
        handled=found["handled"],
        retried=found["retried"],
        buried=found["buried"],
        took=_took(found),
        waited=_waited(found),
    )


def _busiest_first(activity: NameActivity) -> tuple[int, str]:
    return -(activity.published + activity.handled + activity.retried + activity.buried), activity.name
