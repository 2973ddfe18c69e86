"""Counters to what happened in the last hour, day or week: arithmetic, no Redis."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from mq_django.stores.counters import BUCKETS, WHAT
from mq_django.stores.pages import Look

#: Minutes that an `Activity` covers.
WINDOW = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class NameActivity:
    """What happened to the messages of one name."""

    name: str
    published: int
    handled: int
    retried: int
    buried: int
    #: Handling time in seconds that half, and 95 of 100 messages stayed below; None when none was handled.
    #: Infinite: longer than the counters tell apart, 1.6 s.
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What happened in a queue: a count a minute, or a longer step, the running one last."""

    published: tuple[int, ...]
    handled: tuple[int, ...]
    retried: tuple[int, ...]
    buried: tuple[int, ...]
    #: The share of the running step that is over.
    elapsed: float
    #: Minutes of a step.
    minutes: int = 1
    #: As of a name, of all together.
    p50: float | None = None
    p95: float | None = None
    #: The busiest first.
    names: tuple[NameActivity, ...] = ()

    def per_minute(self, what: str) -> float:
        """Return how many a minute there are: of the running minute, and for its rest of the one before."""
        *_, before, now = getattr(self, what)
        return float(now + before * (1 - self.elapsed))


NONE = Activity(
    published=(0,) * WINDOW, handled=(0,) * WINDOW, retried=(0,) * WINDOW, buried=(0,) * WINDOW, elapsed=0.0
)


def activity_of(look: Look) -> Activity:
    """Return what the counters in a look say about the last hour."""
    hours = ((look.hour * 60, look.this_hour), (look.hour * 60 - 60, look.last_hour))
    return _activity(hours, now=look.now_ms // 60_000, steps=WINDOW, minutes=1, elapsed=look.now_ms % 60_000 / 60_000)


def activity_of_days(days: Mapping[int, Mapping[bytes, bytes]], *, now_ms: int, hours: int) -> Activity:
    """Return what the counters of some days since 1970 say about the last hours."""
    starts = [(day * 24, fields) for day, fields in days.items()]
    elapsed = now_ms % 3_600_000 / 3_600_000
    return _activity(starts, now=now_ms // 3_600_000, steps=hours, minutes=60, elapsed=elapsed)


def _activity(
    found: Iterable[tuple[int, Mapping[bytes, bytes]]], *, now: int, steps: int, minutes: int, elapsed: float
) -> Activity:
    first = now - steps + 1
    totals: dict[str, list[int]] = {what: [0] * steps for what in WHAT}
    names: dict[str, Counter[str]] = defaultdict(Counter)
    for start, fields in found:
        for slot, what, name, count in counts(fields):
            place = start + slot - first
            if not 0 <= place < steps:
                continue
            if name:
                names[name][what] += count
            elif what in totals:
                totals[what][place] += count
    times = _buckets(sum(names.values(), Counter()))
    return Activity(
        published=tuple(totals["published"]),
        handled=tuple(totals["handled"]),
        retried=tuple(totals["retried"]),
        buried=tuple(totals["buried"]),
        elapsed=elapsed,
        minutes=minutes,
        p50=percentile(times, 0.5),
        p95=percentile(times, 0.95),
        names=tuple(sorted(map(_name_activity, names, names.values()), key=_busiest_first)),
    )


def counts(fields: Mapping[bytes, bytes]) -> Iterator[tuple[int, str, str, int]]:
    """Yield (slot, what, name, count) for the fields of a counters hash; what makes no sense is left out.

    The name is empty where all are counted together.
    """
    for field, value in fields.items():
        slot, _, rest = field.partition(b"|")
        what, _, name = rest.partition(b"|")
        if slot.isdigit() and value.isdigit():
            yield int(slot), what.decode(errors="replace"), name.decode(errors="backslashreplace"), int(value)


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """Return the seconds that a share of handling times stayed below, by their log-scale buckets."""
    wanted = sum(buckets) * share
    below = 0.0
    for place, count in enumerate(buckets):
        if count and below + count >= wanted:
            if place == len(buckets) - 1:
                return inf
            start = 0 if place == 0 else 1e-4 * 2 ** (place - 1)
            return float(start + (1e-4 * 2**place - start) * (wanted - below) / count)
        below += count
    return None


def _buckets(found: Counter[str]) -> list[int]:
    return [found[f"t{place}"] for place in range(BUCKETS)]


def _name_activity(name: str, found: Counter[str]) -> NameActivity:
    buckets = _buckets(found)
    return NameActivity(
        name=name,
        published=found["published"],
        handled=found["handled"],
        retried=found["retried"],
        buried=found["buried"],
        p50=percentile(buckets, 0.5),
        p95=percentile(buckets, 0.95),
    )


def _busiest_first(activity: NameActivity) -> tuple[int, str]:
    return -(activity.published + activity.handled + activity.retried + activity.buried), activity.name
