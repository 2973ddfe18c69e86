"""The checker itself: a history in order has no violations, and each way to break one is found."""

import pytest

from tests.chaos.checker import KNOWN_KEY, check
from tests.chaos.history import History


def line(kind, t, **told):
    return {"kind": kind, "t": t, **told}


def published(*ids, t=0.0, result="ok", **told):
    return line("published", t, ids=list(ids), result=result, began=t, **told)


def start(id_, t, *, pid=1, attempt=1):
    return line("start", t, id=id_, pid=pid, attempt=attempt)


def effect(id_, t, *, pid=1, attempt=1):
    return line("effect", t, id=id_, pid=pid, attempt=attempt)


def settled(id_, t, *, pid=1, outcome="Ack"):
    return line("settled", t, ids=[id_], outcome=outcome, pid=pid)


def fault(t, *, pids=(1,), allows=True, recovers="begin", within=0.5, name="kill"):
    return line("fault", t, fault=f"f{t}", name=name, pids=list(pids), allows=allows, recovers=recovers, within=within)


def handled(id_, t, *, pid=1):
    return [start(id_, t, pid=pid), effect(id_, t + 0.1, pid=pid), settled(id_, t + 0.2, pid=pid)]


def rest(**told):
    return line("rest", 90.0, **{"pending": 0, "consumers": ["c"], "alive": ["c"], "strangers": [], **told})


def left(place, *ids):
    return line("left", 91.0, place=place, ids=list(ids))


#: A run with everything in it, and nothing wrong: a is handled; b is hit by a kill after its effect, and runs again; c
#: waits until it is due; d is buried; the publish of e is refused, and that of f unknown, and both come to nothing.
SOUND = [
    published("a", "b", t=0.0),
    published("c", t=0.0, delay=5.0),
    published("d", t=0.0, expect="dead", attempts=2),
    published("e", t=0.0, result="failed"),
    published("f", t=0.0, result="unknown"),
    *handled("a", 1.0),
    start("b", 2.0),
    effect("b", 2.1),
    fault(2.15),
    settled("b", 2.4, pid=9, outcome="Retry"),
    *handled("b", 3.0, pid=2),
    *handled("c", 5.1, pid=2),
    start("d", 6.0, pid=2),
    settled("d", 6.1, pid=2, outcome="Retry"),
    start("d", 7.0, pid=2, attempt=2),
    settled("d", 7.1, pid=2, outcome="Bury"),
    left("dead", "d"),
    rest(),
    line("counters", 92.0, published=4, handled=3, buried=1),
    line("reload", 93.0, before={"dead": 1}, after={"dead": 1}),
    line("drained", 94.0, seconds=1.0, bound=4.0),
]


def names(lines):
    return sorted({told.split(":")[0] for told in check(History(lines)).violations})


def test_a_history_in_order_has_no_violations_and_its_figures_are_right():
    report = check(History(SOUND))
    assert report.violations == []
    assert (report.messages, report.faults, report.lost, report.early, report.leaked) == (5, 1, 0, 0, 0)
    assert (report.duplicates, report.duplicates_per_fault_max, report.duplicates_without_fault) == (1, 1, 0)
    assert report.recovery_p99 == pytest.approx(0.25)


BROKEN = {
    "a message vanishes": (["I1", "I4"], lambda h: [*h, published("x", t=0.0)]),
    "a message is in two places": (["I1"], lambda h: [*h, published("x"), left("ready", "x"), left("due", "x")]),
    "a message is acked and still there": (["I1"], lambda h: [*h, left("ready", "a")]),
    "a message that should be dead is not": (
        ["I1"],
        lambda h: [*h, published("x", expect="dead"), *handled("x", 8.0)],
    ),
    "an effect without a publish": (["I2", "I4"], lambda h: [*h, *handled("x", 8.0)]),
    "an effect after a refused publish": (["I2", "I4"], lambda h: [*h, *handled("e", 8.0)]),
    "a second effect without a fault": (["I3"], lambda h: [*h, effect("a", 1.15)]),
    "a second effect after a fault that hit others": (["I3"], lambda h: [*h, fault(1.15, pids=[7]), effect("a", 1.18)]),
    "a second effect after a fault that allows none": (
        ["I3"],
        lambda h: [*h, fault(1.15, allows=False, recovers="none"), effect("a", 1.18)],
    ),
    "a third effect after one fault": (["I3"], lambda h: [*h, effect("b", 3.15, pid=2)]),
    "an effect is missing though acked": (["I1", "I4"], lambda h: [*h, published("x"), settled("x", 8.0)]),
    "a key out of order": (
        ["I5"],
        lambda h: [
            *h,
            published("x", "y", keys={"x": ["k", 1], "y": ["k", 2]}),
            *handled("y", 8.0),
            *handled("x", 9.0),
        ],
    ),
    "acked twice": (["I6"], lambda h: [*h, settled("a", 1.21)]),
    "begun again after the ack": (["I6"], lambda h: [*h, start("a", 1.5)]),
    "buried twice": (["I1", "I6"], lambda h: [*h, left("dead", "d")]),
    "more attempts than allowed": (["I6"], lambda h: [*h, start("d", 8.0, pid=2, attempt=3)]),
    "early": (["I7"], lambda h: [*h, published("x", delay=20.0), *handled("x", 19.9)]),
    "early although the clock was set back": (
        ["I7"],
        lambda h: [*h, published("x", delay=20.0), line("clock", 5.0, shift=-3600.0), *handled("x", 25.0)],
    ),
    "counted too often": (
        ["I8"],
        lambda h: [*h, line("counters", 95.0, published=6, handled=3, buried=1)],
    ),
    "handled and not counted": (
        ["I8"],
        lambda _: [published("a"), *handled("a", 1.0), line("counters", 95.0, published=1, handled=0, buried=0)],
    ),
    "pending at rest": (["I9"], lambda h: [*h, rest(pending=1)]),
    "a dead consumer stays": (["I9"], lambda h: [*h, rest(consumers=["c", "gone"])]),
    "a key that nobody knows": (["I9"], lambda h: [*h, rest(strangers=["mq:{q}:what"])]),
    "a restart loses something": (["I10"], lambda h: [*h, line("reload", 95.0, before={"dead": 1}, after={"dead": 0})]),
    "not drained": (["I11"], lambda h: [*h, line("drained", 95.0, seconds=9.0, bound=4.0)]),
    "a supervisor ends": (["I11"], lambda h: [*h, line("exited", 95.0, pid=3, code=1)]),
    "too slow to recover": (
        ["I11"],
        lambda h: [line | {"within": 0.2} if line["kind"] == "fault" else line for line in h],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_promise_is_found(name):
    expected, break_it = BROKEN[name]
    # Where a message is added, the counters would speak up as well.
    lines = [told for told in break_it(SOUND) if told["kind"] != "counters" or "I8" in expected]
    assert names(lines) == expected


def test_every_invariant_has_a_history_that_breaks_it():
    found = {name for expected, _ in BROKEN.values() for name in expected}
    assert found == {f"I{number}" for number in range(1, 12)}


def test_a_clock_set_forward_makes_nothing_early():
    lines = [*SOUND, published("x", delay=20.0), line("clock", 5.0, shift=3600.0), *handled("x", 6.0)]
    assert names([told for told in lines if told["kind"] != "counters"]) == []


def test_an_unknown_publish_may_have_been_carried_out():
    lines = [told for told in SOUND if told["kind"] != "counters"]
    assert names([*lines, *handled("f", 8.0)]) == []


def test_reports_add_up():
    one, two = check(History(SOUND)), check(History(BROKEN["a message vanishes"][1](SOUND)))
    one.add(two)
    assert (one.messages, one.faults, one.lost, one.duplicates, one.duplicates_per_fault_max) == (11, 2, 1, 2, 1)
    assert len(one.violations) == len(two.violations)


@pytest.mark.parametrize(
    ("key", "known"),
    [("mq:{q}:ready", True), ("mq:{q}:counters:m:12", True), ("mq:{q}:result:x", True), ("mq:{q}:lock", False)],
)
def test_keys_outside_the_schema_are_noticed(key, known):
    assert bool(KNOWN_KEY.search(key)) == known
