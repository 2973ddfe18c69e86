"""What is called next when a call with several messages has failed."""

import math

from mq_django.core.messages import BatchBisection


def carried_out(items, fails, *, may_be_common=True):
    """Follow a plan in which a call fails if `fails` says so; return its calls, the causes and the common failures."""
    plan = BatchBisection(items, may_be_common=lambda: may_be_common)
    calls, alone = [], []
    while group := plan.next_group():
        calls.append(list(group))
        if fails(group):
            plan.failed(group, "failure")
        else:
            plan.succeeded()
        alone += plan.take_alone()
    alone += plan.take_alone()
    common = plan.take_common()
    assert not plan.take_rest()
    return calls, [item for item, _ in alone], [item for item, _ in common]


def has(*poison):
    return lambda group: not set(poison).isdisjoint(group)


def test_each_message_that_fails_is_alone_in_the_end(subtests):
    for size in [1, 2, 3, 7, 64, 500]:
        with subtests.test(size=size):
            poison = {0, size // 2, size - 1}
            if len(poison) == size > 1:
                poison = {0}
            calls, alone, common = carried_out(range(size), has(*poison))
            assert (set(alone), common) == (poison, [])
            for item in range(size):
                assert sum(item in call for call in calls) <= math.ceil(math.log2(size)) + 1


def test_a_common_failure_that_may_not_be_one_is_everybodys_own():
    calls, alone, common = carried_out(range(6), lambda group: True, may_be_common=False)
    assert (sorted(alone), common) == (list(range(6)), [])
    assert len(calls) == 2 * 6 - 1


def test_a_message_that_fails_beside_one_that_was_left_out_is_the_cause():
    plan = BatchBisection(["a", "b"], may_be_common=lambda: True)
    plan.failed(plan.next_group(), "failure")
    assert plan.next_group() == ["a"]
    # Cancelled meanwhile.
    assert plan.next_group() == ["b"]
    plan.failed(["b"], "failure")
    assert plan.take_alone() == []
    assert plan.next_group() == ()
    assert plan.take_alone() == [("b", "failure")]


def test_what_has_not_ended_can_be_taken_back():
    plan = BatchBisection(range(8), may_be_common=lambda: True)
    plan.failed(plan.next_group(), "failure")
    plan.failed(plan.next_group(), "failure")
    assert sorted(plan.take_rest()) == list(range(8))
    assert plan.next_group() == ()
