"""The checker of clusters finds each kind of broken promise in a history that was broken by hand."""

from tests.chaos.checker import Terms, check
from tests.chaos.history import event, in_order
from tests.chaos.spread_checker import check_spread, outages, unreplicated
from tests.chaos.test_checker import ending

PRODUCER, CONSUMER = 10, 11


def told(*lines):
    """Return events from (at, pid, what, told)."""
    return in_order(event({"at": at, "pid": pid, "what": what, **words}) for at, pid, what, words in lines)


def published(at, message, *, answer="ok", after=0.1):
    return [(at, PRODUCER, "invoke", {"ids": [message]}), (at + after, PRODUCER, answer, {"ids": [message]})]


def effects(queue, *times):
    return [(at, CONSUMER, "effect", {"id": f"{queue}/.{at}", "attempt": 1}) for at in times]


def outage(began, healed, *queues, loses=False):
    words = {"fault": "away-1", "kind": "away", "began": began, "pids": [], "queues": queues, "loses": loses}
    return [(began + 0.1, PRODUCER, "fault", words), (healed, PRODUCER, "healed", {"fault": "away-1"})]


def sentences(*lines):
    return [(found.invariant, found.sentence) for found in check_spread(told(*lines))]


def test_a_fault_of_a_node_lasts_until_it_is_healed():
    (found,) = outages(told(*outage(10.0, 15.0, "a", "b")))
    assert (found.began, found.healed, found.queues, found.loses) == (10.0, 15.0, {"a", "b"}, False)


def test_a_fault_that_is_no_nodes_is_none():
    assert outages(told((1.0, PRODUCER, "fault", {"fault": "kill-1", "kind": "kill", "began": 1.0, "pids": [1]}))) == []


def test_all_is_well():
    lines = [*published(1.0, "a/.1"), *published(40.0, "a/.2"), *published(1.0, "b/.1"), *published(40.0, "b/.2")]
    lines += [*outage(10.0, 15.0, "a"), *effects("a", 9.0, 17.0), *effects("b", *range(8, 41))]
    assert sentences(*lines) == []


def test_a_queue_on_another_node_that_stands_still_is_found():
    lines = [*published(1.0, "b/.1"), *published(40.0, "b/.2"), *outage(10.0, 16.0, "a"), *effects("b", 10.5, 15.5)]
    assert sentences(*lines) == [
        ("I11", "away away-1: b, which is on another node, stood still for 5.0 s"),
    ]


def test_a_queue_that_does_not_go_on_is_found():
    lines = [*published(1.0, "a/.1"), *published(40.0, "a/.2"), *outage(10.0, 15.0, "a"), *effects("a", 9.0, 27.0)]
    assert sentences(*lines) == [("I11", "away away-1: a went on 12.0 s after its node was there")]
    assert sentences(*lines[:-1]) == [("I11", "away away-1: a went on inf s after its node was there")]


def test_a_queue_into_which_nothing_is_published_any_more_need_not_go_on():
    assert sentences(*published(1.0, "a/.1"), *published(9.0, "a/.2"), *outage(10.0, 15.0, "a", "b")) == []


def test_a_publish_that_takes_long_is_found(subtests):
    for answer in ["ok", "failed", "unknown"]:
        with subtests.test(answer=answer):
            assert sentences(*published(1.0, "a/.1", answer=answer, after=5.5)) == []
            (found,) = check_spread(told(*published(1.0, "a/.1", answer=answer, after=7.5)))
            assert found == ("I12", f"1 publishes took longer than 6 s, one 7.5 s ({answer})", ["a/.1"])


def test_a_publish_that_never_ends_is_found():
    assert sentences(*published(1.0, "a/.1")[:1]) == [("I12", "1 publishes neither returned nor raised")]


class TestWhatAReplicaMayNotKnow:
    def test_is_what_its_master_did_last_and_meanwhile(self):
        lines = [*outage(10.0, 15.0, "a", loses=True), *published(2.0, "a/.1"), *published(9.5, "a/.2")]
        lines += [*published(9.5, "b/.3"), (14.0, CONSUMER, "settled", {"acked": ["a/.4"], "retried": [["a/.5", 300]]})]
        lines += [(15.5, CONSUMER, "started", {"id": "a/.6", "attempt": 1}), *published(17.0, "a/.7")]
        assert unreplicated(told(*lines)) == {"a/.2", "a/.4", "a/.5", "a/.6"}

    def test_is_nothing_without_a_failover(self):
        assert unreplicated(told(*outage(10.0, 15.0, "a"), *published(9.5, "a/.2"))) == set()

    def test_is_counted_in_the_place_of_a_violation(self):
        events = told(*published(9.5, "a/.1"))
        terms = Terms(max_attempts=3, recovery=5.0, excused=frozenset({"a/.1"}))
        verdict = check(events, ending(published=0), terms)
        assert (verdict.lost, verdict.lost_in_window, verdict.violations) == (0, 1, [])

    def test_may_run_again_and_be_settled_again(self):
        again = [(at, CONSUMER, "effect", {"id": "a/.1", "attempt": 1}) for at in (10.0, 12.0)]
        again += [(at, CONSUMER, "settled", {"acked": ["a/.1"]}) for at in (10.5, 12.5)]
        events = told(*published(9.5, "a/.1"), *again)
        strict = check(events, ending(), Terms(max_attempts=3, recovery=5.0))
        assert {violation.invariant for violation in strict.violations} == {"I3", "I6"}
        terms = Terms(max_attempts=3, recovery=5.0, excused=frozenset({"a/.1"}))
        verdict = check(events, ending(), terms)
        assert verdict.violations == []
        assert (verdict.repeated_in_window, verdict.duplicates_without_fault) == (1, 0)
