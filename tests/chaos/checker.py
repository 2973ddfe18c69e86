"""Decide from a history, and from where everything rests at its end, whether the promise was kept.

Pure and offline: the same history gets the same verdict, on any machine, at any time. The invariants:

I1   a message whose publish returned ends in one place: handled, in the dead-letter queue, or still queued
I2   nothing has an effect that was not published, or whose publish was refused; no publish takes effect twice
I3   an effect happens twice only to what a process was running, or had run and not yet settled, when a fault hit it
I4   nothing counts as handled that had no effect: a sink that takes each id once holds exactly the handled ones
I5   on a queue with ORDERED no two messages of a key run at the same time, and none starts when a later one has started
I6   a delivery is settled once: one ack, or one burial, and never more attempts than allowed
I7   nothing starts before it is due
I8   what Redis counted as published is what was handled, buried, or is left
I9   at rest nobody holds anything, no consumer is known but the living, and no key exists but the schema's
I10  a restart on the data of the disk changes nothing
I11  work goes on soon after each fault is healed, everything is worked off in time, and no supervisor gives up
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.deliveries import Fault, Life, Told, exposed, held
from tests.chaos.history import Event
from tests.chaos.key_order import order_of_keys
from tests.chaos.lost_tails import LostTails
from tests.chaos.places import Rest

#: Redis counts due times in whole milliseconds.
DUE_TOLERANCE = 0.002

#: Seconds from a consumer's death until what it held is settled or ready again; and the fewest deaths by which the
#: handovers of a run are judged.
HANDOVER, FEWEST = 0.5, 10


class Violation(NamedTuple):
    """A promise that was not kept."""

    invariant: str
    sentence: str
    #: Some of the messages that it is about.
    messages: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What was promised in this run."""

    max_attempts: int
    #: Seconds from a fault's end until the last of what it hit goes on.
    recovery: float
    #: Messages about which a replica that became a master may know less than was confirmed: they may be lost, run
    #: again, or be settled again. How many are is counted.
    excused: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended."""

    rest: Rest
    #: The same after Redis was restarted on its data; None: not tried.
    restarted: Rest | None = None
    #: Consumers that live; None: all have been stopped.
    living: Sequence[str] = ()
    drained: bool = True
    #: Sentences about supervisors that ended by themselves.
    given_up: Sequence[str] = ()


@dataclass(kw_only=True)
class Verdict:
    """What the checker found."""

    messages: int = 0
    #: Runs of workflows.
    runs: int = 0
    faults: int = 0
    lost: int = 0
    #: Of messages that a replica may not have got before it became the master: lost ones, and repeated effects.
    lost_in_window: int = 0
    repeated_in_window: int = 0
    #: Of failovers: publishes that returned in the last moment of a master and are lost with it, and repetitions of
    #: what it had answered then.
    lost_with_masters: int = 0
    repeated_by_masters: int = 0
    duplicates: int = 0
    duplicates_per_fault_max: int = 0
    duplicates_without_fault: int = 0
    early: int = 0
    leaked: int = 0
    stale: int = 0
    #: Keys whose messages have an order. Of these: executions beside another one of the key, by processes that had been
    #: taken for dead, or of messages that a lost master may have taken with it; executions beside another one without
    #: such a reason; messages that started after a later one without it.
    keys: int = 0
    overlaps: int = 0
    overlaps_without_fault: int = 0
    inversions: int = 0
    #: Messages that were purged, cancelled or deleted by another program.
    removed: int = 0
    #: Seconds, one for each fault that hit something.
    recoveries: list[float] = field(default_factory=list)
    #: Seconds, one for each consumer that died with something in hand.
    handovers: list[float] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    #: What happened to the messages of the violations, and the faults: see `tests.chaos.history.stories()`.
    stories: list[str] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        """Take in the verdict on another run."""
        most = max(self.duplicates_per_fault_max, other.duplicates_per_fault_max)
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.duplicates_per_fault_max = most


def check(events: Iterable[Event], ending: Ending, terms: Terms) -> Verdict:
    """Return the verdict on one run, from its events in order and its end."""
    told = Told(events)
    verdict = Verdict(
        messages=sum(life.published == "ok" for life in told.lives.values()),
        faults=len(told.faults),
        stale=told.stale,
        removed=sum(life.removed for life in told.lives.values()),
    )
    for judge in (_places, _publishing, _duplicates, _key_order, _settling, _due_times, _balance, _at_rest, _progress):
        verdict.violations += judge(told, ending, terms, verdict)
    return verdict


def _some(ids: Sequence[str]) -> str:
    return ", ".join(sorted(ids)[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def violations_of(invariant: str, ids: Sequence[str], what: str) -> Iterator[Violation]:
    """Yield a violation if there are any of these ids."""
    if ids:
        yield Violation(invariant, f"{len(ids)} {what}: {_some(ids)}", tuple(sorted(ids)[:3]))


def _places(told: Told, ending: Ending, terms: Terms, verdict: Verdict) -> Iterator[Violation]:
    """I1: nothing is lost, and nothing is in two places."""
    dead, queued = set(ending.rest.dead), set(ending.rest.queued)
    lost, twice, tails = [], [], LostTails.of(told)
    for message, life in told.lives.items():
        places = bool(tails.certain(life.acks)) + (message in dead) + (message in queued)
        if life.published == "ok" and not (places or life.effects or life.removed):
            if tails.hit(life.accepted):
                verdict.lost_with_masters += 1
            else:
                lost.append(message)
        elif places > 1:
            twice.append(message)
    verdict.lost_in_window = len(terms.excused.intersection(lost))
    lost, twice = _unless(terms.excused, lost), _unless(terms.excused, twice)
    verdict.lost = len(lost)
    yield from violations_of("I1", lost, "messages are lost")
    yield from violations_of("I1", twice, "messages ended in two places")
    yield from violations_of("I1", _repeated(ending.rest.queued), "messages are queued twice")


def _unless(excused: Collection[str], ids: Iterable[str]) -> list[str]:
    return [message for message in ids if message not in excused]


def _repeated(ids: Iterable[str]) -> list[str]:
    return [message for message, count in Counter(ids).items() if count > 1]


def _publishing(told: Told, ending: Ending, terms: Terms, _: Verdict) -> Iterator[Violation]:
    """I2, I4: effects and publishes belong together."""
    somewhere = {*ending.rest.dead, *ending.rest.queued}
    refused = [
        message
        for message, life in told.lives.items()
        if life.published == "failed" and (life.starts or message in somewhere)
    ]
    unknown = [message for message, life in told.lives.items() if life.effects and life.invoked is None]
    unseen = [message for message, life in told.lives.items() if life.acks and not life.effects]
    yield from violations_of("I2", refused, "messages run though their publish was refused")
    yield from violations_of("I2", unknown, "messages had an effect and were never published")
    yield from violations_of("I4", _unless(terms.excused, unseen), "messages count as handled without an effect")


def _duplicates(told: Told, _: Ending, terms: Terms, verdict: Verdict) -> Iterator[Violation]:
    """I3: each repeated effect has a fault of its own that explains it."""
    repeated = {message: len(life.effects) - 1 for message, life in told.lives.items() if len(life.effects) > 1}
    verdict.duplicates = sum(repeated.values())
    excused: Counter[str] = Counter()
    for fault in told.faults:
        hit = [] if fault.spares or not repeated else [m for m in exposed(told, fault) if repeated.get(m)]
        for message in hit:
            repeated[message] -= 1
            excused[fault.name] += 1
    tails = LostTails.of(told)
    for message in [message for message, count in repeated.items() if count and tails.faults]:
        known = min(repeated[message], tails.repeats(told.lives[message]))
        repeated[message] -= known
        verdict.repeated_by_masters += known
    verdict.duplicates_per_fault_max = max(excused.values(), default=0)
    left = _unless(terms.excused, (message for message, count in repeated.items() if count))
    verdict.repeated_in_window = sum(repeated[message] for message in terms.excused & repeated.keys())
    verdict.duplicates_without_fault = sum(repeated.values()) - verdict.repeated_in_window
    yield from violations_of("I3", left, "messages had an effect again that no fault explains")


def _key_order(told: Told, _: Ending, terms: Terms, verdict: Verdict) -> Iterator[Violation]:
    """I5: one message of a key at a time, in the order of their publishing."""
    order = order_of_keys(told)
    verdict.keys, verdict.overlaps = order.keys, order.overlaps
    together, inversions = (
        [pair for pair in pairs if not terms.excused.intersection(pair)] for pairs in (order.together, order.inversions)
    )
    verdict.overlaps += len(order.together) - len(together)
    verdict.overlaps_without_fault, verdict.inversions = len(together), len(inversions)
    for pairs, what in (
        (together, "messages ran beside another one of their key"),
        (inversions, "messages started when a later one of their key had started"),
    ):
        if pairs:
            some = _some([f"{one} with {other}" for one, other in pairs])
            yield Violation("I5", f"{len(pairs)} {what}: {some}", pairs[0])
    yield from violations_of(
        "I5", _unless(terms.excused, order.believed), "outcomes counted that came from processes taken for dead"
    )


def _settling(told: Told, ending: Ending, terms: Terms, _: Verdict) -> Iterator[Violation]:
    """I6: one end each, and no attempt too many."""
    lives: Mapping[str, Life] = {m: life for m, life in told.lives.items() if m not in terms.excused}
    tails = LostTails.of(told)
    for what, times in (("acked", "acks"), ("buried", "buried")):
        twice = [m for m, life in lives.items() if tails.certain(getattr(life, times)) > 1]
        yield from violations_of("I6", twice, f"messages were {what} twice")
    yield from violations_of("I6", _repeated(ending.rest.dead), "messages are in the dead-letter queue twice")
    beyond = [m for m, life in lives.items() if life.attempts > terms.max_attempts]
    yield from violations_of("I6", beyond, f"messages had more than {terms.max_attempts} attempts")


def _due_times(told: Told, _: Ending, __: Terms, verdict: Verdict) -> Iterator[Violation]:
    """I7: never early, by any clock; what waited while Redis's clock was stepped has no due time to compare."""
    early = []
    last_step, tails = max(told.clock_steps, default=0.0), LostTails.of(told)
    for message, life in told.lives.items():
        waits = [(life.invoked, life.delay)] if life.invoked is not None and life.delay else []
        for since, delay in (*waits, *life.retries):
            # A delivery that was out already may end later: only a wait's own next start is too early.
            follow = [start for start in life.starts if start > since]
            if since > last_step and not tails.hit(since) and follow and follow[0] < since + delay - DUE_TOLERANCE:
                early.append(f"{message} by {(since + delay - follow[0]) * 1000:.1f} ms")
                break
    verdict.early = len(early)
    yield from violations_of("I7", early, "messages started before they were due")


def _balance(told: Told, ending: Ending, terms: Terms, _: Verdict) -> Iterator[Violation]:
    """I8: Redis's count of publishes is the number of messages that can be shown."""
    elsewhere = {*ending.rest.dead, *ending.rest.queued}
    counted = [(message, life) for message, life in told.lives.items() if life.counted]
    seen = [life for message, life in counted if life.effects or life.removed or message in elsewhere]
    shown = len(seen)
    # What was lost was counted by the master that is gone, or by none.
    low, high = shown - LostTails.of(told).unsure(seen) - len(terms.excused), shown + len(terms.excused)
    if not low <= ending.rest.published <= high:
        yield Violation("I8", f"Redis counted {ending.rest.published} publishes, and {shown} messages can be shown")


def _at_rest(_: Told, ending: Ending, __: Terms, verdict: Verdict) -> Iterator[Violation]:
    """I9, I10: nothing is left over, and the disk has all of it."""
    rest = ending.rest
    strangers = sorted(set(rest.consumers) - set(ending.living))
    verdict.leaked = rest.pending + len(strangers) + len(rest.strange_keys)
    if rest.pending:
        yield Violation("I9", f"{rest.pending} deliveries are still pending at rest")
    yield from violations_of("I9", strangers, "consumers are known that do not live")
    yield from violations_of("I9", rest.strange_keys, "keys are not in the schema")
    if ending.restarted is not None and ending.restarted != rest:
        yield Violation("I10", f"a restart changed what is where: {rest} became {ending.restarted}")


def _progress(told: Told, ending: Ending, terms: Terms, verdict: Verdict) -> Iterator[Violation]:
    """I11: work goes on."""
    for fault in told.faults:
        seconds = _recovery(told, fault)
        if seconds is not None:
            verdict.recoveries.append(seconds)
            if seconds > terms.recovery:
                yield Violation(
                    "I11", f"{fault.kind} {fault.name}: the last of what it hit went on after {seconds:.1f} s"
                )
    for fault, seconds in LostTails.of(told).slow(told):
        yield Violation(
            "I11", f"{fault.kind} {fault.name}: work went on {seconds:.1f} s after the new master was known"
        )
    verdict.handovers = list(_handovers(told))
    if not ending.drained:
        yield Violation("I11", f"{len(ending.rest.queued)} messages were not worked off: {_some(ending.rest.queued)}")
    for sentence in ending.given_up:
        yield Violation("I11", sentence)


def _handovers(told: Told) -> Iterator[float]:
    for fault in told.faults:
        if fault.kind in ("kill", "die") or fault.kind.startswith("at-"):
            seconds = told.handover(fault)
            if seconds is not None:
                yield seconds


def late_handovers(verdict: Verdict) -> Iterator[Violation]:
    """I11 of a whole run: what a dead consumer held is settled or ready again at once.

    The slowest tenth aside, as a machine that others use stalls at times; so two or three deaths say nothing.
    """
    slow = sorted(seconds for seconds in verdict.handovers if seconds > HANDOVER)
    if len(verdict.handovers) >= FEWEST and len(slow) > len(verdict.handovers) // 10:
        many = f"{len(slow)} of {len(verdict.handovers)} dead consumers"
        yield Violation("I11", f"{many} were settled for late, one after {slow[-1]:.1f} s")


def _recovery(told: Told, fault: Fault) -> float | None:
    """Return the seconds from a fault's end until the last of what it hit had gone on."""
    waits = []
    for life in held(told, fault):
        later = [at for at in life.moved if at > fault.struck]
        if later:
            waits.append(max(0.0, later[0] - fault.healed))
    return max(waits, default=None)
