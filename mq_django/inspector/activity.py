"""Counters to what happened in the last hour: arithmetic, no Redis."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from mq_django.stores.counters import BUCKETS, WHAT
from mq_django.stores.pages import Look

#: Minutes that an `Activity` covers.
WINDOW = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class NameActivity:
    """What happened to the messages of one name in the last hour."""

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
    """What happened in a queue in the last hour: a count a minute, the running minute last."""

    published: tuple[int, ...]
    handled: tuple[int, ...]
    retried: tuple[int, ...]
    buried: tuple[int, ...]
    #: The share of the running minute that is over.
    elapsed: float
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
    first = look.now_ms // 60_000 - WINDOW + 1
    minutes: dict[str, list[int]] = {what: [0] * WINDOW for what in WHAT}
    names: dict[str, Counter[str]] = defaultdict(Counter)
    for hour, fields in ((look.hour, look.this_hour), (look.hour - 1, look.last_hour)):
        for minute, what, name, count in counts(fields):
            place = hour * 60 + minute - first
            if not 0 <= place < WINDOW:
                continue
            if name:
                names[name][what] += count
            elif what in minutes:
                minutes[what][place] += count
    return Activity(
        published=tuple(minutes["published"]),
        handled=tuple(minutes["handled"]),
        retried=tuple(minutes["retried"]),
        buried=tuple(minutes["buried"]),
        elapsed=look.now_ms % 60_000 / 60_000,
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


def _name_activity(name: str, found: Counter[str]) -> NameActivity:
    buckets = [found[f"t{place}"] for place in range(BUCKETS)]
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
