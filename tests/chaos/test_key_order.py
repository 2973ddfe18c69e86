"""I5: the checker finds each way to break the order of a key in a history that was broken by hand."""

from tests.chaos.checker import Ending, Terms, check
from tests.chaos.history import event, in_order
from tests.chaos.places import Rest

TERMS = Terms(max_attempts=3, recovery=60.0)
A, B, C, PRODUCER = 11, 12, 13, 10


def at(time, pid, what, **words):
    return event({"at": float(time), "pid": pid, "what": what, **words})


def published(*ids, key="k", first=0, how="ok"):
    return [at(0.1, PRODUCER, "invoke", ids=ids, key=key, first=first), at(0.2, PRODUCER, how, ids=ids)]


def run(message, began, ended, *, by=A, thread=1, how="returned"):
    """A handler that runs; it lives to tell its end unless that is None."""
    events = [
        at(began - 0.02, by, "taken", ids=[message]),
        at(began - 0.01, by, "started", id=message, attempt=1, thread=thread),
        at(began, by, "entered", id=message, thread=thread),
    ]
    if how == "returned":
        events.append(at(began + 0.01, by, "effect", id=message, attempt=1))
    return events if ended is None else [*events, at(ended, by, "left", id=message, thread=thread, how=how)]


def settled(time, *, by=A, began=None, **words):
    return [at(time, by, "settled", began=time - 0.1 if began is None else began, **words)]


def handled(message, began, ended, *, by=A, thread=1):
    return [*run(message, began, ended, by=by, thread=thread), *settled(ended + 0.3, by=by, acked=[message])]


def stopped(pid, began, healed, *, kind="stop-tree"):
    """A process that is stopped for longer than the visibility timeout."""
    return [
        at(began + 0.1, PRODUCER, "fault", fault="f", kind=kind, began=began, pids=[pid]),
        at(healed, PRODUCER, "healed", fault="f"),
    ]


def verdict(*parts, **rest):
    events = in_order(event for part in parts for event in part)
    count = len({found for one in events if one.what == "ok" for found in one.ids})
    return check(events, Ending(rest=Rest(**{"published": count, **rest})), TERMS)


def broken(*parts, **rest):
    return {violation.invariant for violation in verdict(*parts, **rest).violations}


def test_messages_that_run_one_after_another_have_no_violation():
    found = verdict(published("1", "2"), handled("1", 1, 2), handled("2", 3, 4, by=B))

    assert found.violations == []
    assert (found.keys, found.inversions, found.overlaps) == (1, 0, 0)


TWO, THREE = published("1", "2"), published("1", "2", "3")
OTHERS = published("b", key="other")
DIED = at(5, PRODUCER, "fault", fault="f", kind="kill", began=4.9, pids=[A])
#: Another thread of the process notes something when the next message of the key has started already.
ALIVE = [
    *published("x", key="other"),
    *run("x", 5, None, thread=2),
    at(6, PRODUCER, "fault", fault="f", kind="kill", began=5.9, pids=[A]),
    *handled("x", 7, 8, by=B),
    *published("1"),
    *run("1", 3, None),
]
INTERRUPTED = [*TWO, *run("1", 1, None), *settled(3, began=2, back=["1"]), at(2.9, PRODUCER, "removed", ids=["1"])]
#: A process that was taken for dead, and what it had taken before.
TAKEN = [*TWO, at(1.4, A, "taken", ids=["1"]), *stopped(A, 1.5, 8), *handled("1", 5, 6, by=B)]
TAKEN += handled("2", 6.5, 7, by=B)
BESIDE = [*TWO, *stopped(A, 1.5, 8), *run("1", 1, 9), *handled("1", 5, 6, by=B), *handled("2", 7, 8.5, by=B)]
#: What happened, and what of that breaks a promise.
CASES = {
    "a later one ended first": ([*THREE, *handled("1", 1, 2), *handled("3", 3, 4), *handled("2", 5, 6)], {"I5"}),
    "a later one started before the next attempt": (
        [
            *TWO,
            *run("1", 1, 2, how="Failed"),
            *settled(2.2, retried=[["1", 0]]),
            *handled("2", 3, 4),
            *handled("1", 5, 6),
        ],
        {"I5"},
    ),
    "of different keys": ([*TWO, *OTHERS, *handled("1", 1, 2), *handled("2", 3, 6), *handled("b", 4, 5)], set()),
    "of several publishes": (
        [*TWO, *published("3", first=2), *handled("1", 1, 2), *handled("2", 3, 4), *handled("3", 5, 6)],
        set(),
    ),
    "of several publishes, the last first": (
        [*TWO, *published("3", first=2), *handled("1", 1, 2), *handled("3", 3, 4), *handled("2", 5, 6)],
        {"I5"},
    ),
    # Redis may carry out a publish whose reply was lost after the next one.
    "perhaps published": (
        [*published("1", how="unknown"), *published("2", first=1), *handled("2", 1, 2), *handled("1", 3, 4)],
        {"I8"},
    ),
    "again after its process died": (
        [*TWO, *handled("1", 1, 2), *run("2", 3, None), DIED, *handled("2", 6, 7, by=B)],
        set(),
    ),
    "after the last sign of its process": ([*ALIVE, *handled("1", 6.5, 7, by=B)], set()),
    "before the last sign of its process": ([*ALIVE, *handled("1", 4, 4.5, by=B)], {"I5"}),
    # A handler that could not note its end had ended when its outcome was sent.
    "after an outcome was sent": ([*INTERRUPTED, *handled("2", 2.5, 4, by=B)], set()),
    "before an outcome was sent": ([*INTERRUPTED, *handled("2", 1.5, 4, by=B)], {"I5"}),
    "an outcome of one taken for dead": ([*BESIDE, *settled(9.5, began=9.1, back=["1"])], {"I5"}),
    "begun late by one taken for dead": ([*TAKEN, *run("1", 8.3, 8.6), *settled(8.9, stale=["1"])], set()),
    # Long after it went on it has no such reason, nor has the second that a thread begins.
    "begun too late": ([*TAKEN, *run("1", 12, 13), *settled(14, stale=["1"])], {"I3", "I5"}),
    "begun after another": (
        [
            *TAKEN,
            *published("3", key="other"),
            *handled("3", 8.05, 8.1),
            *run("1", 8.3, 8.6),
            *settled(8.9, stale=["1"]),
        ],
        {"I3", "I5"},
    ),
    "its supervisor lives": (
        [*TWO, *stopped(A, 1.5, 8, kind="stop-long"), *handled("1", 1, 9), *handled("2", 7, 8.5, by=B)],
        {"I5"},
    ),
    "somebody deleted one": (
        [*THREE, at(0.5, PRODUCER, "removed", ids=["2"]), *handled("1", 1, 2), *handled("3", 3, 4)],
        set(),
    ),
}


def test_each_broken_order_is_found_and_nothing_else(subtests):
    for name, (lines, invariants) in CASES.items():
        with subtests.test(name):
            assert broken(lines) == invariants


def test_figures_of_a_history():
    together = verdict(TWO, handled("1", 1, 3), handled("2", 2, 4, by=B))
    assert [violation.invariant for violation in together.violations] == ["I5"]
    assert (together.overlaps_without_fault, together.overlaps) == (1, 0)
    assert set(together.violations[0].messages) == {"1", "2"}
    assert verdict(CASES["a later one ended first"][0]).inversions == 1
    assert verdict(CASES["again after its process died"][0]).duplicates == 1
    found = verdict(BESIDE, settled(9.5, stale=["1"]))
    assert found.violations == []
    assert (found.overlaps, found.overlaps_without_fault, found.stale) == (1, 0, 1)


def test_a_later_message_that_was_buried_first():
    later = [*run("2", 1, 2, how="Failed"), *settled(3, buried=["2"])]

    assert broken(TWO, later, handled("1", 4, 5), dead=["2"]) == {"I5"}
