"""The checker finds each kind of broken promise in a history that was broken by hand."""

from dataclasses import replace
from itertools import count

import pytest

from tests.chaos.checker import Ending, Terms, check
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


def published(*ids, **words):
    return [(PRODUCER, "invoke", {"ids": ids, **words}), (PRODUCER, "ok", {"ids": ids})]


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


def invariants(events, end, terms=TERMS):
    return {violation.invariant for violation in check(events, end, terms).violations}


def test_a_history_in_which_all_is_well_has_no_violation():
    events = told(*published("a"), *handled("a"))

    verdict = check(events, ending(), TERMS)

    assert verdict.violations == []
    assert (verdict.messages, verdict.lost, verdict.duplicates) == (1, 0, 0)


def test_i1_a_message_that_is_nowhere_is_lost():
    verdict = check(told(*published("a")), ending(published=0), TERMS)

    assert verdict.lost == 1
    assert {violation.invariant for violation in verdict.violations} == {"I1"}


def test_i1_a_message_that_is_queued_or_buried_is_not_lost():
    assert invariants(told(*published("a")), ending(queued=["a"])) == set()
    assert invariants(told(*published("a")), ending(dead=["a"])) == set()


def test_i1_a_message_is_not_handled_and_buried():
    assert "I1" in invariants(told(*published("a"), *handled("a")), ending(dead=["a"]))


def test_i1_a_message_is_not_queued_twice():
    assert "I1" in invariants(told(*published("a")), ending(queued=["a", "a"]))


def test_i2_what_nobody_published_has_no_effect():
    assert "I2" in invariants(told(*handled("a")), ending())


def test_i2_what_was_refused_does_not_run():
    refused = [(PRODUCER, "invoke", {"ids": ["a"]}), (PRODUCER, "failed", {"ids": ["a"]})]

    assert "I2" in invariants(told(*refused, *handled("a")), ending())
    assert "I2" in invariants(told(*refused), ending(queued=["a"]))


def test_i2_what_may_have_been_published_may_run_or_not():
    unknown = [(PRODUCER, "invoke", {"ids": ["a"]}), (PRODUCER, "unknown", {"ids": ["a"]})]

    assert invariants(told(*unknown), ending(published=0)) == set()
    assert invariants(told(*unknown, *handled("a")), ending()) == set()


def test_i3_a_second_effect_needs_a_fault():
    events = told(*published("a"), *handled("a"), started("a", by=B), effect("a", by=B))

    verdict = check(events, ending(), TERMS)

    assert (verdict.duplicates, verdict.duplicates_without_fault) == (1, 1)
    assert {violation.invariant for violation in verdict.violations} == {"I3"}


def twice(*, pids, spares=False, settled_first=False):
    first = handled("a") if settled_first else handled("a")[:-1]
    return told(
        *published("a"),
        *first,
        fault("f", pids=pids, began=0.0 if not settled_first else 8.0, spares=spares),
        *handled("a", by=B),
    )


def test_i3_a_fault_explains_what_was_running_or_unsent():
    verdict = check(twice(pids=[A]), ending(), TERMS)

    assert verdict.violations == []
    assert (verdict.duplicates, verdict.duplicates_per_fault_max, verdict.duplicates_without_fault) == (1, 1, 0)


def test_i3_what_a_process_did_until_it_was_gone_is_explained_by_its_death(subtests):
    for kind in ("die", "hold", "at-effect"):
        died = fault("f", pids=[A], began=2.5, kind=kind)
        with subtests.test(kind):
            assert (
                check(told(*published("a"), died, *handled("a")[:-2], *handled("a", by=B)), ending(), TERMS).violations
                == []
            )


def test_a_violation_comes_with_what_happened_to_its_messages():
    events = told(*published("a", "b"), *handled("a"), *handled("b"), started("a", by=B), effect("a", by=B))

    (violation,) = check(events, ending(published=2), TERMS).violations

    assert violation.messages == ("a",)
    assert [line.split()[2] for line in stories(events, violation.messages)] == [
        *("invoke", "ok", "taken", "started", "effect", "ended", "settled", "started", "effect"),
    ]


def test_i3_a_fault_explains_nothing_else(subtests):
    for reason, events in {
        "it hit another process": twice(pids=[B]),
        "it must cost nothing": twice(pids=[A], spares=True),
        "it was settled before": twice(pids=[A], settled_first=True),
    }.items():
        with subtests.test(reason):
            assert "I3" in invariants(events, ending())


def test_i3_a_thread_that_was_stopped_before_its_handler_may_run_it_and_nothing_after(subtests):
    for reason, (starts, before, found) in {
        "going on": (10.5, [], set()),
        "beginning anew": (11.5, [], {"I3"}),
        "its thread went on with another": (10.5, ["b"], {"I3"}),
    }.items():
        events = told(
            *published("a", *before),
            (A, "taken", {"ids": ["a", *before]}),
            fault("stop", pids=[A], began=4.0, kind="stop-tree"),
            *handled("a", by=B),
            (PRODUCER, "healed", {"fault": "stop"}, 10.0),
            *((*line, 10.1) for other in before for line in handled(other)[1:]),
            (*started("a"), starts),
            (*effect("a"), starts + 0.1),
            (A, "settled", {"stale": ["a"]}, starts + 0.2),
        )
        with subtests.test(reason):
            assert invariants(events, ending(published=1 + len(before))) == found


def test_i3_a_fault_explains_one_more_effect_and_not_two():
    events = [*twice(pids=[A]), *told((B, "effect", {"id": "a", "attempt": 1}, 99.0))]

    assert "I3" in invariants(events, ending())


def test_i4_nothing_counts_as_handled_without_an_effect():
    events = told(*published("a"), started("a"), settled(acked=["a"]))

    assert "I4" in invariants(events, ending(published=0))


def test_i6_an_ack_counts_once():
    assert "I6" in invariants(told(*published("a"), *handled("a"), settled(by=B, acked=["a"])), ending())


def test_i6_a_message_is_buried_once():
    events = told(*published("a"), started("a"), settled(buried=["a"]), settled(by=B, buried=["a"]))

    assert "I6" in invariants(events, ending(dead=["a"]))
    assert "I6" in invariants(told(*published("a")), ending(dead=["a", "a"]))


def test_i6_attempts_have_a_limit():
    events = told(*published("a"), started("a", attempt=4))

    assert "I6" in invariants(events, ending(queued=["a"]))


def test_i7_a_delayed_message_does_not_start_early():
    late, early = published("a", delay=2.0), published("a", delay=9.0)

    assert invariants(told(*late, *handled("a")), ending()) == set()
    assert invariants(told(*early, *handled("a")), ending()) == {"I7"}


def test_i7_a_retry_does_not_start_early():
    failed = [started("a"), (A, "ended", {"id": "a", "outcome": "Retry"}), settled(retried=[["a", 60_000]])]

    assert invariants(told(*published("a"), *failed, *handled("a")), ending()) == {"I7"}


def test_i7_a_retry_waits_from_its_settling_also_when_its_end_was_noted_later():
    failed = [started("a"), (A, "ended", {"id": "a", "outcome": "Retry"})]
    begun = told(*published("a"), *failed)[-1].at - 1.0
    events = told(*published("a"), *failed, settled(retried=[["a", 3_500]], began=begun), *handled("a"))

    assert invariants(events, ending()) == set()


def test_i7_says_nothing_about_what_waited_while_the_clock_was_stepped():
    events = told(*published("a", delay=9.0), (PRODUCER, "clock", {"by": 3600}), *handled("a"))

    assert invariants(events, ending()) == set()


def test_i8_what_was_counted_can_be_shown():
    events = told(*published("a"), *handled("a"))

    assert invariants(events, ending(published=2)) == {"I8"}
    assert invariants(told(*published("a", uncounted=True), *handled("a")), ending(published=0)) == set()


def test_i9_nothing_is_left_over(subtests):
    for left in [{"pending": 1}, {"consumers": ["gone"]}, {"strange_keys": ["mq:lock"]}]:
        with subtests.test(left=left):
            verdict = check(told(*published("a"), *handled("a")), ending(**left), TERMS)

            assert verdict.leaked == 1
            assert {violation.invariant for violation in verdict.violations} == {"I9"}


def test_i9_living_consumers_may_be_known():
    end = replace(ending(consumers=["c1"]), living=["c1"])

    assert invariants(told(*published("a"), *handled("a")), end) == set()


def test_i10_a_restart_changes_nothing():
    end = replace(ending(), restarted=Rest(published=0))

    assert invariants(told(*published("a"), *handled("a")), end) == {"I10"}


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
            assert {violation.invariant for violation in verdict.violations} - {"I1", "I4"} == found


def test_i11_what_others_had_been_given_before_is_not_what_a_fault_hit():
    events = [
        *told(*published("a"), (A, "taken", {"ids": ["a"]}), settled(by=99, back=["a"]), (B, "taken", {"ids": ["a"]})),
        *told((*settled(by=99, back=["a"]), 6.0), (*fault("f", pids=[A], began=7.0), 7.1)),
        *told(*[(*line, 30.0 + n) for n, line in enumerate(handled("a", by=B))]),
    ]

    assert check(events, ending(), TERMS).recoveries == []


def test_what_another_fault_interrupted_says_nothing_about_handing_over():
    events = told(
        *published("a"),
        (A, "taken", {"ids": ["a"]}),
        fault("f", pids=[A], began=3.5),
        fault("g", pids=[B], began=4.5),
        settled(by=99, acked=["a"]),
    )

    assert check(events, ending(), TERMS).handovers == []


def test_i11_everything_is_worked_off_and_nobody_gives_up():
    events = told(*published("a"), *handled("a"))

    assert "I11" in invariants(events, replace(ending(), drained=False))
    assert "I11" in invariants(events, replace(ending(), given_up=["the supervisor ended with 1"]))


def test_an_event_that_nobody_defined_is_refused():
    with pytest.raises(ValueError, match="no such event"):
        check(told((A, "guessed", {})), ending(), TERMS)


def test_i1_a_message_that_somebody_deleted_is_not_lost():
    removed = (PRODUCER, "removed", {"ids": ["a"]})

    assert invariants(told(*published("a"), removed), ending()) == set()
