"""Decide from a history of a cluster whether its queues disturbed each other, and how long anybody waited.

Pure and offline, like `tests.chaos.checker`, whose invariants it adds to:

I11  a queue whose nodes are well goes on while another node is away, and all go on soon after that is back
I12  a publish returns, or raises, within the time that is promised, whatever the cluster does
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.checker import Violation
from tests.chaos.history import Event
from tests.chaos.spread import queue_of

#: Seconds of a publish: five are promised, one is for a machine that others use.
PUBLISH_WITHIN = 5.0 + 1.0
#: Seconds until a queue goes on when its node is back.
GOES_ON_WITHIN = 10.0
#: Seconds between two effects of a queue to which nothing was done. Who waits for a node that is away, waits longer; a
#: machine of two cores stands still for three seconds at times.
LONGEST_GAP = 4.5
#: Seconds before a master's end in which what it confirmed may not have got to its replica.
WINDOW = 1.0
#: What tells that something was written for messages, beside their publish.
_WRITES = ("ok", "unknown", "taken", "started", "ended", "settled")


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A fault of a node, from its beginning until the node, or who replaces it, is there."""

    name: str
    kind: str
    began: float
    healed: float
    #: The queues that were on the node.
    queues: frozenset[str]
    #: Whether a replica replaces the node: then what it confirmed last may be lost.
    loses: bool


def outages(events: Iterable[Event]) -> list[Outage]:
    """Return the faults of nodes, in order."""
    begun, healed = [], {}
    for event in events:
        if event.what == "fault" and "queues" in event.told:
            begun.append(event)
        elif event.what == "healed":
            healed[event.told["fault"]] = event.at
    return [
        Outage(
            name=event.told["fault"],
            kind=event.told["kind"],
            began=event.told["began"],
            healed=healed.get(event.told["fault"], event.at),
            queues=frozenset(event.told["queues"]),
            loses=bool(event.told.get("loses")),
        )
        for event in begun
    ]


def unreplicated(events: Sequence[Event]) -> frozenset[str]:
    """Return the messages about which a replica that became a master may know less than was confirmed."""
    losing = [outage for outage in outages(events) if outage.loses]
    found = set()
    for event in events if losing else ():
        if event.what not in _WRITES:
            continue
        for outage in losing:
            if outage.began - WINDOW <= event.at <= outage.healed + WINDOW:
                found.update(message for message in _ids(event) if queue_of(message) in outage.queues)
    return frozenset(found)


def check_spread(events: Sequence[Event]) -> list[Violation]:
    """Return what was not kept."""
    effects: Mapping[str, list[float]] = defaultdict(list)
    for event in events:
        if event.what == "effect":
            effects[queue_of(event.id)].append(event.at)
    ended = _last_publishes(events)
    found = list(_publishing(events))
    for outage in outages(events):
        for queue, end in ended.items():
            found += _goes_on(outage, queue, effects[queue], end)
    return found


def _ids(event: Event) -> Iterator[str]:
    told = event.told
    yield from told.get("ids", ())
    if "id" in told:
        yield told["id"]
    for name in ("acked", "buried", "back", "stale"):
        yield from told.get(name, ())
    yield from (message for message, _ in told.get("retried", ()))


def _last_publishes(events: Iterable[Event]) -> dict[str, float]:
    """Return each queue with the time of its last publish: from then on it has no reason to go on."""
    return {queue_of(event.ids[0]): event.at for event in events if event.what == "invoke"}


def _publishing(events: Iterable[Event]) -> Iterator[Violation]:
    """I12: nobody who publishes waits for long."""
    begun: dict[str, float] = {}
    slow = []
    for event in events:
        if event.what == "invoke":
            begun[event.ids[0]] = event.at
        elif event.what in ("ok", "failed", "unknown"):
            seconds = event.at - begun.pop(event.ids[0], event.at)
            if seconds > PUBLISH_WITHIN:
                slow.append((seconds, event))
    if slow:
        seconds, event = max(slow)
        what = f"{len(slow)} publishes took longer than {PUBLISH_WITHIN:g} s, one {seconds:.1f} s ({event.what})"
        yield Violation("I12", what, event.ids[:1])
    if begun:
        yield Violation("I12", f"{len(begun)} publishes neither returned nor raised", list(begun)[:3])


def _goes_on(outage: Outage, queue: str, effects: Sequence[float], end: float) -> Iterator[Violation]:
    """I11: a queue of the node goes on when that is back; another one all the time."""
    if outage.began > end:
        return
    if queue in outage.queues:
        if outage.healed + GOES_ON_WITHIN < end:
            after = bisect_right(effects, outage.healed)
            seconds = effects[after] - outage.healed if after < len(effects) else float("inf")
            if seconds > GOES_ON_WITHIN:
                what = f"{outage.kind} {outage.name}: {queue} went on {seconds:.1f} s after its node was there"
                yield Violation("I11", what)
        return
    until = min(outage.healed, end)
    inside = effects[bisect_left(effects, outage.began) : bisect_right(effects, until)]
    moments = [outage.began, *inside, until]
    gap = max(later - one for one, later in pairwise(moments))
    if gap > LONGEST_GAP:
        what = f"{outage.kind} {outage.name}: {queue}, which is on another node, stood still for {gap:.1f} s"
        yield Violation("I11", what)
