"""The checker tells what a failover may lose from what nothing explains."""

from tests.chaos.checker import check
from tests.chaos.test_checker import TERMS, B, effect, ending, fault, handled, published, settled, started, told

#: A master dies at 100, and its replica need not have what it answered from 99 on.
DEATH = fault("failover", pids=[], began=100.0, loses_from=99.0)
FAILOVER = [(*DEATH, 100.0), (10, "healed", {"fault": "failover"}, 101.0)]
LATER = [*((*one, 102.0) for one in published("later")), *((*one, 102.5) for one in handled("later"))]


def at(time, *lines):
    return [(*line, time) for line in lines]


def verdict_of(*lines, **rest):
    return check(told(*lines, *FAILOVER, *LATER), ending(**{"published": 1, **rest}), TERMS)


def test_a_publish_of_a_masters_last_second_may_be_lost():
    verdict = verdict_of(*at(99.5, *published("a")))
    assert verdict.violations == []
    assert (verdict.lost, verdict.lost_with_masters) == (0, 1)


def test_any_other_publish_may_not(subtests):
    for time in [98.5, 101.5]:
        with subtests.test(time=time):
            verdict = verdict_of(*at(time, *published("a")))
            assert {violation.invariant for violation in verdict.violations} == {"I1"}
            assert (verdict.lost, verdict.lost_with_masters) == (1, 0)


def again(time):
    """Handled, and handled again after the failover."""
    return [*at(90.0, *published("a")), *at(time, *handled("a")), *at(103.0, *handled("a", by=B))]


def test_an_ack_of_a_masters_last_second_may_be_repeated():
    verdict = verdict_of(*again(99.5), published=2)
    assert verdict.violations == []
    assert (verdict.duplicates, verdict.repeated_by_masters, verdict.duplicates_without_fault) == (1, 1, 0)


def test_an_earlier_ack_may_not():
    verdict = verdict_of(*again(95.0), published=2)
    assert {violation.invariant for violation in verdict.violations} == {"I3", "I6"}


def test_one_failover_explains_one_repetition():
    verdict = verdict_of(*again(99.5), *at(104.0, started("a"), effect("a")), published=2)
    assert {violation.invariant for violation in verdict.violations} == {"I3"}
    assert (verdict.duplicates, verdict.duplicates_without_fault) == (2, 1)


def test_a_retry_of_a_masters_last_second_may_start_at_once():
    lines = [*at(90.0, *published("a"), started("a")), *at(99.5, settled(retried=[["a", 60_000]], began=99.5))]
    verdict = verdict_of(*lines, *at(103.0, *handled("a")), published=2)
    assert verdict.violations == []
    assert verdict.early == 0


def test_after_a_failover_publishes_and_messages_go_on_within_ten_seconds():
    late = [(*one[:3], one[3] + 20.0) for one in LATER]
    verdict = check(told(*FAILOVER, *late), ending(published=1), TERMS)
    assert [violation.invariant for violation in verdict.violations] == ["I11", "I11"]
