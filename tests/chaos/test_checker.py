"""The checker finds each kind of broken promise in a history that was broken by hand."""

from dataclasses import replace
from itertools import count

import pytest

from tests.chaos.checker import Ending, Terms, Verdict, check, late_handovers
from tests.chaos.history import event, in_order, stories
from tests.chaos.places import Rest

TERMS = Terms(max_attempts=3, recovery=5.0)
A, B, PRODUCER = 11, 12, 10


def told(*lines):
    """Events a second apart, from (pid, what, told), or at a time of their own as a fourth part."""
    clock = count(1)
    found = []
    for pid, what, words, *at in lines:
        found.append(event({"at": at[0] if at else float(next(clock)), "pid": pid, "what": what, **words}))
    return in_order(found)


def published(*ids, answer="ok", **words):
    return [(PRODUCER, "invoke", {"ids": ids, **words}), (PRODUCER, answer, {"ids": ids})]


def started(message, *, by=A, attempt=1):
    return (by, "started", {"id": message, "attempt": attempt})


def effect(message, *, by=A):
    return (by, "effect", {"id": message, "attempt": 1})


def settled(*, by=A, **words):
    return (by, "settled", words)


def fault(name, *, pids, began, **words):
    return (PRODUCER, "fault", {"kind": "kill", "fault": name, "began": began, "pids": pids, **words})


def handled(message, *, by=A):
    return [
        (by, "taken", {"ids": [message]}),
        started(message, by=by),
        effect(message, by=by),
        (by, "ended", {"id": message, "outcome": "Ack"}),
        settled(by=by, acked=[message]),
    ]


def ending(**rest):
    return Ending(rest=Rest(**{"published": 1, **rest}))


def twice(*, pids, spares=False, settled_first=False):
    """A message that is handled twice, and a fault between."""
    first = handled("a") if settled_first else handled("a")[:-1]
    began = 8.0 if settled_first else 0.0
    return [*published("a"), *first, fault("f", pids=pids, began=began, spares=spares), *handled("a", by=B)]


def thread_goes_on(starts, *before):
    """What a thread runs that was stopped before its handler, after others had handled its message."""
    return [
        *published("a", *before),
        (A, "taken", {"ids": ["a", *before]}),
        fault("stop", pids=[A], began=4.0, kind="stop-tree"),
        *handled("a", by=B),
        (PRODUCER, "healed", {"fault": "stop"}, 10.0),
        *((*line, 10.1) for other in before for line in handled(other)[1:]),
        (*started("a"), starts),
        (*effect("a"), starts + 0.1),
        (A, "settled", {"stale": ["a"]}, starts + 0.2),
    ]


ONE, ONCE = published("a"), [*published("a"), *handled("a")]
FAILED = [started("a"), (A, "ended", {"id": "a", "outcome": "Retry"})]
#: What happened, how it ended, and what of that breaks a promise.
CASES = {
    "it is queued": (ONE, ending(queued=["a"]), set()),
    "it is buried": (ONE, ending(dead=["a"]), set()),
    "somebody deleted it": ([*ONE, (PRODUCER, "removed", {"ids": ["a"]})], ending(), set()),
    "it is handled and buried": (ONCE, ending(dead=["a"]), {"I1"}),
    "it is queued twice": (ONE, ending(queued=["a", "a"]), {"I1"}),
    "nobody published it": (handled("a"), ending(), {"I2"}),
    "it was refused, and runs": ([*published("a", answer="failed"), *handled("a")], ending(), {"I2"}),
    "it was refused, and is queued": (published("a", answer="failed"), ending(queued=["a"]), {"I2"}),
    "nobody knows, and it is nowhere": (published("a", answer="unknown"), ending(published=0), set()),
    "nobody knows, and it runs": ([*published("a", answer="unknown"), *handled("a")], ending(), set()),
    "a second effect": ([*ONCE, started("a", by=B), effect("a", by=B)], ending(), {"I3"}),
    "a fault hit what was unsent": (twice(pids=[A]), ending(), set()),
    "a fault hit another process": (twice(pids=[B]), ending(), {"I3"}),
    "a fault that must cost nothing": (twice(pids=[A], spares=True), ending(), {"I3"}),
    "a fault after it was settled": (twice(pids=[A], settled_first=True), ending(), {"I3", "I6"}),
    "a third effect": ([*twice(pids=[A]), (B, "effect", {"id": "a", "attempt": 1}, 99.0)], ending(), {"I3"}),
    "a thread that goes on": (thread_goes_on(10.5), ending(), set()),
    "a thread that begins anew": (thread_goes_on(11.5), ending(), {"I3"}),
    "a thread after another": (thread_goes_on(10.5, "b"), ending(published=2), {"I3"}),
    "acked without an effect": ([*ONE, started("a"), settled(acked=["a"])], ending(published=0), {"I4"}),
    "acked twice": ([*ONCE, settled(by=B, acked=["a"])], ending(), {"I6"}),
    "buried twice": (
        [*ONE, started("a"), settled(buried=["a"]), settled(by=B, buried=["a"])],
        ending(dead=["a"]),
        {"I6"},
    ),
    "two dead letters": (ONE, ending(dead=["a", "a"]), {"I6"}),
    "too many attempts": ([*ONE, started("a", attempt=4)], ending(queued=["a"]), {"I6"}),
    "delayed": ([*published("a", delay=2.0), *handled("a")], ending(), set()),
    "early": ([*published("a", delay=9.0), *handled("a")], ending(), {"I7"}),
    "while the clock is stepped": (
        [*published("a", delay=9.0), (PRODUCER, "clock", {"by": 3600}), *handled("a")],
        ending(),
        set(),
    ),
    "an early retry": ([*ONE, *FAILED, settled(retried=[["a", 60_000]]), *handled("a")], ending(), {"I7"}),
    # It waits from its settling, also when its end was noted later.
    "a retry": ([*ONE, *FAILED, settled(retried=[["a", 3_500]], began=3.0), *handled("a")], ending(), set()),
    "more was counted": (ONCE, ending(published=2), {"I8"}),
    "not counted": ([*published("a", uncounted=True), *handled("a")], ending(published=0), set()),
    "pending": (ONCE, ending(pending=1), {"I9"}),
    "a consumer that is gone": (ONCE, ending(consumers=["gone"]), {"I9"}),
    "a strange key": (ONCE, ending(strange_keys=["mq:lock"]), {"I9"}),
    "a consumer that lives": (ONCE, replace(ending(consumers=["c1"]), living=["c1"]), set()),
    "a restart": (ONCE, replace(ending(), restarted=Rest(published=0)), {"I10"}),
    "not worked off": (ONCE, replace(ending(), drained=False), {"I11"}),
    "given up": (ONCE, replace(ending(), given_up=["the supervisor ended with 1"]), {"I11"}),
}
#: What a process did until it was gone is explained by its death.
for kind in ("die", "hold", "at-effect"):
    died = [*ONE, fault("f", pids=[A], began=2.5, kind=kind), *handled("a")[:-2], *handled("a", by=B)]
    CASES[f"gone by {kind}"] = (died, ending(), set())


def test_each_broken_promise_is_found_and_nothing_else(subtests):
    for name, (lines, end, broken) in CASES.items():
        with subtests.test(name):
            assert {violation.invariant for violation in check(told(*lines), end, TERMS).violations} == broken


def test_figures_of_a_history(subtests):
    for name, lines, end, figures in [
        ("well", ONCE, ending(), {"messages": 1, "lost": 0, "duplicates": 0}),
        ("lost", ONE, ending(published=0), {"lost": 1}),
        ("twice", CASES["a second effect"][0], ending(), {"duplicates": 1, "duplicates_without_fault": 1}),
        (
            "explained",
            twice(pids=[A]),
            ending(),
            {"duplicates": 1, "duplicates_per_fault_max": 1, "duplicates_without_fault": 0},
        ),
        ("left", ONCE, ending(pending=1), {"leaked": 1}),
    ]:
        with subtests.test(name):
            verdict = check(told(*lines), end, TERMS)
            assert {figure: getattr(verdict, figure) for figure in figures} == figures


def test_a_violation_comes_with_what_happened_to_its_messages():
    events = told(*published("a", "b"), *handled("a"), *handled("b"), started("a", by=B), effect("a", by=B))

    (violation,) = check(events, ending(published=2), TERMS).violations

    assert violation.messages == ("a",)
    assert [line.split()[2] for line in stories(events, violation.messages)] == [
        *("invoke", "ok", "taken", "started", "effect", "ended", "settled", "started", "effect"),
    ]


def test_i11_what_a_fault_hit_goes_on_soon():
    events = [
        *told(*published("a"), (A, "taken", {"ids": ["a"]}), fault("f", pids=[A], began=3.5)),
        *told(*[(*line, 20.0 + n) for n, line in enumerate(handled("a", by=B))]),
    ]

    verdict = check(events, ending(), TERMS)

    assert verdict.recoveries == [17.0]
    assert {violation.invariant for violation in verdict.violations} == {"I11"}


def test_i11_for_a_dead_consumer_is_settled_at_once(subtests):
    for slow, found in [(1, set()), (2, {"I11"})]:
        with subtests.test(slow=slow, found=found):
            supervisor, events = 99, []
            for number in range(12):
                message, died = f"m{number}", 100.0 * number
                later = died + (0.8 if number < slow else 0.1)
                events += [
                    *((*line, died - 3) for line in published(message)),
                    (number, "taken", {"ids": [message]}, died - 2),
                    (*fault(f"f{number}", pids=[number], began=died), died),
                    (supervisor, "settled", {"acked": [message]}, later),
                ]

            verdict = check(told(*events), ending(published=12, dead=[f"m{n}" for n in range(12)]), TERMS)

            assert [round(seconds, 1) for seconds in verdict.handovers] == [0.8] * slow + [0.1] * (12 - slow)
            assert {violation.invariant for violation in late_handovers(verdict)} == found


def test_i11_a_few_deaths_do_not_say_whether_handovers_are_late():
    assert list(late_handovers(Verdict(handovers=[0.8, 0.8, 0.1]))) == []


def test_i11_what_others_had_been_given_before_is_not_what_a_fault_hit():
    events = [
        *told(*published("a"), (A, "taken", {"ids": ["a"]}), settled(by=99, back=["a"]), (B, "taken", {"ids": ["a"]})),
        *told((*settled(by=99, back=["a"]), 6.0), (*fault("f", pids=[A], began=7.0), 7.1)),
        *told(*[(*line, 30.0 + n) for n, line in enumerate(handled("a", by=B))]),
    ]

    assert check(events, ending(), TERMS).recoveries == []


def test_what_another_fault_interrupted_says_nothing_about_handing_over():
    taken, faults = (A, "taken", {"ids": ["a"]}), [fault("f", pids=[A], began=3.5), fault("g", pids=[B], began=4.5)]
    events = told(*published("a"), taken, *faults, settled(by=99, acked=["a"]))

    assert check(events, ending(), TERMS).handovers == []


def test_an_event_that_nobody_defined_is_refused():
    with pytest.raises(ValueError, match="no such event"):
        check(told((A, "guessed", {})), ending(), TERMS)
