"""The checker of orders finds each kind of broken promise in an end that was broken by hand."""

from dataclasses import replace

from tests.chaos.history import event
from tests.chaos.settings import LEDGER, ORDERS
from tests.chaos.transaction_checker import TransactionEnding, check_transactions

ALL = ["a1", "b1", "a2"]
GOOD = TransactionEnding(
    orders={"a1": ("a", 1), "a2": ("a", 2), "b1": ("b", 1)},
    log=ALL,
    published={ORDERS: 3, LEDGER: 3},
    booked=ALL,
    entered=["a2", "b1", "a1"],
)
FAULT = event({"at": 1.0, "pid": 9, "what": "fault", "fault": "kill-1", "kind": "kill", "began": 1.0, "pids": [9]})
ROLLED_BACK = event({"at": 1.0, "pid": 8, "what": "rolled-back", "ids": ["c1"]})
REFUSED = event({"at": 1.0, "pid": 8, "what": "refused", "ids": ["c1"], "error": "ConnectionLost()"})


def found(*events, **changes):
    """Return the violated invariants, and the verdict."""
    verdict = check_transactions(events, replace(GOOD, **changes))
    return sorted({violation.invariant for violation in verdict.violations}), verdict


def test_a_run_that_kept_its_promises():
    """Entries of a batch have no order, and what was rolled back has no effects."""
    broken, verdict = found(FAULT, ROLLED_BACK)
    assert not broken
    assert (verdict.messages, verdict.faults, verdict.keys) == (9, 1, 2)
    assert (verdict.lost, verdict.duplicates, verdict.inversions) == (0, 0, 0)


def test_what_is_lost_doubled_or_foreign(subtests):
    for invariants, changes, lost, doubled in [
        (["T1"], {"log": ["a1", "a2"]}, 1, 0),
        (["T1"], {"log": [*ALL, "b1"]}, 0, 1),
        (["T1"], {"published": {ORDERS: 4, LEDGER: 3}}, 0, 1),
        (["T1"], {"published": {ORDERS: 3, LEDGER: 4}}, 0, 1),
        (["T1"], {"published": {ORDERS: 2, LEDGER: 3}}, 0, 0),
        (["T2"], {"log": [*ALL, "c1"]}, 0, 0),
        (["T2"], {"entered": [*ALL, "c1"]}, 0, 0),
        (["T1", "T3"], {"booked": ["a1", "a2"]}, 1, 1),
        (["T1", "T3"], {"booked": [*ALL, "b1"]}, 0, 1),
        (["T3"], {"entered": ["a1", "b1"]}, 1, 0),
        (["T3"], {"entered": [*ALL, "a1"]}, 0, 1),
    ]:
        with subtests.test(invariants=invariants, changes=changes, lost=lost, doubled=doubled):
            broken, verdict = found(**changes)
            assert (broken, verdict.lost, verdict.duplicates) == (invariants, lost, doubled)


def test_the_order_of_a_key():
    broken, verdict = found(booked=["a2", "b1", "a1"])
    assert (broken, verdict.inversions) == (["T4"], 1)


def test_a_topic_has_no_order():
    assert not found(log=["a2", "b1", "a1"])[0]


def test_a_writer_that_failed():
    assert found(REFUSED)[0] == ["T5"]


def test_what_is_left(subtests):
    left = {"rows": 1, "claims": 1, "queued": 1, "dead": [ORDERS], "is_drained": False, "given_up": ["it ended"]}
    for name, value in left.items():
        with subtests.test(name):
            assert found(**{name: value})[0] == ["T6"]
