"""Decide from a history alone whether a promise was broken."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.chaos.history import Fault, History

#: Seconds by which two processes may disagree about the order of what they noted.
SLACK = 0.005


@dataclass
class Report:
    """What a history shows."""

    messages: int = 0
    faults: int = 0
    lost: int = 0
    duplicates: int = 0
    duplicates_per_fault_max: int = 0
    duplicates_without_fault: int = 0
    early: int = 0
    leaked: int = 0
    recoveries: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def recovery_p99(self) -> float:
        """Return the seconds within which all but a hundredth of the faults were over."""
        found = sorted(self.recoveries)
        return found[min(len(found) - 1, int(len(found) * 0.99))] if found else 0.0

    def add(self, other: "Report") -> None:
        for name in ("messages", "faults", "lost", "duplicates", "duplicates_without_fault", "early", "leaked"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.duplicates_per_fault_max = max(self.duplicates_per_fault_max, other.duplicates_per_fault_max)
        self.recoveries += other.recoveries
        self.violations += other.violations


def check(history: History) -> Report:
    """Return what a history shows, with a line for each broken promise, which begins with the invariant's name."""
    report = Report(messages=len(history.ids("ok", "unknown")), faults=len(history.faults))
    for name, invariant in INVARIANTS.items():
        report.violations += [f"{name}: {told}" for told in invariant(history, report)]
    return report


def nothing_is_lost(history: History, report: Report) -> Iterator[str]:
    """Every published message had its effect, or is still there, and is in one place only."""
    there = Counter(history.left("ready", "due", "unhandled", "dead"))
    for id_ in sorted(history.ids("ok")):
        if id_ not in history.effects and id_ not in there:
            report.lost += 1
            yield f"{id_} is lost"
    for id_, times in there.items():
        if times > 1:
            yield f"{id_} is in {times} places"
        elif any(outcome == "Ack" for _, _, outcome in history.settled[id_]):
            yield f"{id_} is acked and still there"
    for id_, line in history.published.items():
        if line.get("expect") == "dead" and line["result"] == "ok" and id_ not in history.left("dead"):
            yield f"{id_} should have been buried"


def nothing_is_made_up(history: History, _: Report) -> Iterator[str]:
    """What had an effect was published; what was refused at the publish had none."""
    for id_ in history.effects:
        if id_ not in history.published:
            yield f"{id_} was never published"
        elif history.published[id_]["result"] == "failed":
            yield f"{id_} was refused and ran"


def nothing_runs_twice_without_a_fault(history: History, report: Report) -> Iterator[str]:
    """Each effect beyond the first belongs to a fault that hit the delivery while it was under way."""
    faults = [fault for fault in history.faults if fault.allows]
    blamed: Counter[str] = Counter()
    for id_, runs in history.effects.items():
        guilty = [fault for fault in faults if id_ in fault.under_way]
        extra = len(runs) - 1
        report.duplicates += extra
        for fault in guilty[:extra]:
            blamed[fault.id] += 1
        if extra > len(guilty):
            report.duplicates_without_fault += extra - len(guilty)
            yield f"{id_} had its effect {len(runs)} times, with {len(guilty)} faults to blame"
    report.duplicates_per_fault_max = max(blamed.values(), default=0)


def effects_by_id_are_exact(history: History, _: Report) -> Iterator[str]:
    """Who takes each id once sees exactly what was published and neither buried nor left."""
    expected = history.ids("ok") - set(history.left("ready", "due", "unhandled", "dead"))
    possible = expected | history.ids("unknown")
    seen = set(history.effects) - set(history.left("ready", "due", "unhandled"))
    if missing := expected - seen:
        yield f"{len(missing)} effects are missing"
    if surplus := seen - possible - set(history.left("dead")):
        yield f"{len(surplus)} effects are too many"


def order_is_kept(history: History, _: Report) -> Iterator[str]:
    """Messages of a key have their effects in the order of their places."""
    places = {id_: place for line in history.of("published") for id_, place in line.get("keys", {}).items()}
    latest: dict[str, tuple[int, str]] = {}
    for line in history.of("effect"):
        if line["id"] in places:
            key, place = places[line["id"]]
            before, other = latest.get(key, (-1, ""))
            if place < before:
                yield f"{line['id']} of {key} ran after {other}"
            latest[key] = (place, line["id"])


def settled_is_settled(history: History, _: Report) -> Iterator[str]:
    """A message is acked at most once, begins no more after that, and is buried at most once."""
    for id_, settlings in history.settled.items():
        acks = [t for t, _, outcome in settlings if outcome == "Ack"]
        if len(acks) > 1:
            yield f"{id_} was acked {len(acks)} times"
        if acks and any(run.t > acks[0] + SLACK for run in history.starts[id_]):
            yield f"{id_} began again after it was acked"
    for id_, times in Counter(history.left("dead")).items():
        if times > 1:
            yield f"{id_} was buried {times} times"
    for id_, runs in history.starts.items():
        limit = history.published.get(id_, {}).get("attempts")
        if limit and max(run.attempt for run in runs) > limit:
            yield f"{id_} had more than its {limit} attempts"


def nothing_is_early(history: History, report: Report) -> Iterator[str]:
    """A delayed message begins after its due time by Redis's clock."""
    for id_, runs in history.starts.items():
        line = history.published.get(id_, {})
        if line.get("delay"):
            due = history.server_clock(line["began"]) + line["delay"]
            if history.server_clock(runs[0].t) < due - SLACK:
                report.early += 1
                yield f"{id_} began {due - history.server_clock(runs[0].t):.3f} s early"


def counters_add_up(history: History, _: Report) -> Iterator[str]:
    """What was counted as published was; without a fault, so was what was handled."""
    for line in history.of("counters"):
        sure, most = len(history.ids("ok")), len(history.ids("ok", "unknown"))
        if not sure <= line["published"] <= most:
            yield f"{line['published']} are counted as published, of {sure} to {most}"
        if not history.faults and line["handled"] != len(history.effects):
            yield f"{line['handled']} are counted as handled, of {len(history.effects)}"


def nothing_is_left_behind(history: History, report: Report) -> Iterator[str]:
    """At rest nothing is pending, only the living are known, and no key is there that should not be."""
    for line in history.of("rest"):
        dead = sorted(set(line["consumers"]) - set(line["alive"]))
        report.leaked += len(dead)
        if line["pending"]:
            yield f"{line['pending']} deliveries are pending at rest"
        if dead:
            yield f"consumers are left of the dead: {', '.join(dead[:5])}"
        if line["strangers"]:
            yield f"keys are there that nobody knows: {', '.join(line['strangers'][:5])}"


def files_load(history: History, _: Report) -> Iterator[str]:
    """After a restart with a rewritten file everything is there."""
    for line in history.of("reload"):
        if line["before"] != line["after"]:
            yield f"{line['before']} before, {line['after']} after"


def work_goes_on(history: History, report: Report) -> Iterator[str]:
    """After each fault work goes on in time, and no supervisor ends by itself."""
    for line in history.of("drained"):
        if line["seconds"] > line["bound"]:
            yield f"not drained in {line['bound']:g} s"
    for line in history.of("exited"):
        yield f"supervisor {line['pid']} ended with {line['code']}"
    for fault in history.faults:
        seconds = _recovery(history, fault)
        if seconds is not None:
            report.recoveries.append(seconds)
            if seconds > fault.within:
                yield f"{fault.name}: {seconds:.1f} s until all went on, not {fault.within:g}"


def _recovery(history: History, fault: Fault) -> float | None:
    """Return the seconds until everything that was under way was settled, by whomever."""
    if fault.recovers not in ("begin", "end"):
        return None
    since = fault.begin if fault.recovers == "begin" else fault.end
    # What others of the hit processes settled meanwhile is what they do anyway.
    others = (lambda pid: pid not in fault.pids) if fault.recovers == "begin" else (lambda pid: True)
    moments = []
    for id_ in fault.under_way:
        later = [t for t, pid, _ in history.settled[id_] if t > fault.begin and others(pid)]
        if later:
            moments.append(min(later))
    return max(0.0, max(moments) - since) if moments else None


INVARIANTS: dict[str, Callable[[History, Report], Iterator[str]]] = {
    "I1": nothing_is_lost,
    "I2": nothing_is_made_up,
    "I3": nothing_runs_twice_without_a_fault,
    "I4": effects_by_id_are_exact,
    "I5": order_is_kept,
    "I6": settled_is_settled,
    "I7": nothing_is_early,
    "I8": counters_add_up,
    "I9": nothing_is_left_behind,
    "I10": files_load,
    "I11": work_goes_on,
}

#: What may be in a namespace, after its queue's tag.
KNOWN_KEY = re.compile(
    r":(ready|urgent|priority|due|unhandled|waiting|unique|dead|dead-ids|consumers|control|counters:[mh]:\d+|result:.+)$"
)
