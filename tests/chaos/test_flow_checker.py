"""The checker of workflows finds each kind of broken promise in a history or a rest that was broken by hand."""

import random
from dataclasses import replace
from itertools import count

from tests.chaos.flow_checker import CALLBACK_NAMES, STEP_NAMES, FlowEnding, check_flows
from tests.chaos.flow_places import EndedRun, FlowRest
from tests.chaos.flows import FATES, SHAPES, Plan, PlannedStep, plan_of, plans, value_of
from tests.chaos.history import event, in_order

A, B, OPERATOR = 11, 12, 10
RUN = "0runrunrun"
PLAN = Plan(
    key="run0",
    shape="chain",
    policy="stop",
    fate="succeed",
    redrives=True,
    steps=[PlannedStep(label="one"), PlannedStep(label="two", inputs=["one"])],
)
ONE, TWO, FINISH, SUCCESS = f"w:{RUN}.1.1", f"w:{RUN}.2.1", f"w-{RUN}.finish.1", f"w-{RUN}.success.1"
VALUE = value_of("one", [])


def told(*lines):
    """Events a second apart, from (pid, what, told)."""
    clock = count(1)
    return in_order(event({"at": float(next(clock)), "pid": pid, "what": what, **words}) for pid, what, words in lines)


def planned(plan=PLAN):
    return [(OPERATOR, "plan", {"plan": plan.as_dict()}), (OPERATOR, "run", {"key": plan.key, "run_id": RUN})]


def ran(message, label, *values, by=A, how="returned"):
    words = {"id": message, "run": "run0", "label": label, "began": 0}
    return [(by, "step", {**words, "values": list(values)}), (by, "step-ended", {**words, "how": how})]


def called(message, kind):
    return [(B, "callback", {"id": message, "kind": kind, "run_id": RUN})]


CALLBACKS = [*called(SUCCESS, "success"), *called(FINISH, "finish")]
WELL = [*planned(), *ran(ONE, "one"), *ran(TWO, "two", VALUE, by=B), *CALLBACKS]
ENDED = EndedRun(
    id=RUN,
    name="run0",
    state="succeeded",
    policy="stop",
    round=1,
    total=2,
    done=2,
    failed=0,
    skipped=0,
    flying=0,
    records={"D": 2},
)
PUBLISHED = {STEP_NAMES[0]: 2, CALLBACK_NAMES["success"]: 1, CALLBACK_NAMES["finish"]: 1}
REST = FlowRest(runs=[ENDED], published=PUBLISHED, claimed=[ONE, TWO, FINISH, SUCCESS])


def invariants(lines=WELL, rest=REST, **ending):
    found = check_flows(told(*lines), FlowEnding(rest=rest, **ending)).violations
    return {violation.invariant for violation in found}


def rest_of(**words):
    return replace(REST, runs=[replace(ENDED, **words)])


def fault(*pids, kind="kill", began=1.0, **words):
    return [(OPERATOR, "fault", {"kind": kind, "fault": f"{kind}-1", "began": began, "pids": pids, **words})]


def test_a_run_that_went_well_has_no_violation():
    verdict = check_flows(told(*WELL), FlowEnding(rest=REST))

    assert verdict.violations == []
    assert (verdict.runs, verdict.messages, verdict.duplicates) == (1, 2, 0)


def test_w1_a_run_hangs_ends_otherwise_or_counts_wrongly(subtests):
    for words in [
        {"state": "running"},
        {"flying": 1},
        {"state": "failed"},
        {"state": "cancelled"},
        {"done": 1},
        {"total": 3, "done": 3},
        {"failed": 1},
    ]:
        with subtests.test(words=words):
            assert "W1" in invariants(rest=rest_of(**words))


def test_w1_a_run_is_gone():
    assert "W1" in invariants(rest=replace(REST, runs=[]))


def test_w1_a_run_whose_start_was_not_answered_may_not_exist():
    lines = [planned()[0], (OPERATOR, "run-unknown", {"key": "run0"})]
    assert invariants(lines, FlowRest()) == set()


def test_w1_runs_take_too_long():
    assert invariants(is_ended=False) == {"W1"}


def test_w1_a_step_that_does_not_wait_for_a_failed_one_has_not_run():
    fails = [
        PlannedStep(label="bad", fails=True),
        PlannedStep(label="after", inputs=["bad"]),
        PlannedStep(label="free"),
    ]
    plan = replace(PLAN, fate="fail", policy="continue", steps=fails)
    words = {"state": "failed", "policy": "continue", "total": 3, "failed": 1, "skipped": 1}
    failure = FlowRest(published={CALLBACK_NAMES["failure"]: 1, CALLBACK_NAMES["finish"]: 1})
    lines = [*planned(plan), *called(f"w-{RUN}.failure.1", "failure"), *called(FINISH, "finish")]

    well = replace(failure, runs=[replace(ENDED, **words, done=1, records={"F": 1, "K": 1, "D": 1})])
    missing = replace(failure, runs=[replace(ENDED, **words, done=0, records={"F": 1, "K": 1, "W": 1})])
    uncounted = replace(failure, runs=[replace(ENDED, **words, done=1, records={"F": 2, "D": 1})])

    assert invariants(lines, well) == set()
    assert invariants(lines, missing) == {"W1"}
    assert invariants(lines, uncounted) == {"W1"}


def test_w2_a_step_runs_again_without_a_reason():
    assert invariants([*planned(), *ran(ONE, "one"), *WELL[2:]]) == {"W2"}
    # With another message, too.
    assert "W2" in invariants([*planned(), *ran(f"w:{RUN}.1.2", "one"), *WELL[2:]])


def test_w2_a_callback_runs_again_without_a_reason():
    assert invariants([*WELL, *called(FINISH, "finish")]) == {"W2"}


def test_w2_a_step_runs_again_for_a_reason(subtests):
    for lines in [
        ran(ONE, "one", how="NotMended"),
        [*ran(ONE, "one"), *fault(A, began=3.0)],
        [*ran(ONE, "one")[:1], *fault(A, began=3.5)],
        [(OPERATOR, "cancel-step", {"ids": [ONE]}), *ran(ONE, "one")],
        [(OPERATOR, "purged", {"ids": [ONE]}), *ran(ONE, "one")],
    ]:
        with subtests.test(lines=lines):
            assert invariants([*planned(), *lines, *WELL[2:]]) == set()


def test_w2_a_fault_elsewhere_or_later_is_no_reason(subtests):
    once, again = [*planned(), *ran(ONE, "one")], WELL[2:]
    for reason, lines in {
        "another process": [*once, *fault(B, began=3.0), *again],
        "it must cost nothing": [*once, *fault(A, kind="stop", began=3.0, spares=True), *again],
        "later": [*once, *again, *fault(A, began=9.0)],
    }.items():
        with subtests.test(reason):
            assert invariants(lines) == {"W2"}


def test_w2_a_process_that_goes_on_after_a_stop_may_run_what_it_had_taken():
    again = [*WELL, *fault(A, kind="stop-tree", began=1.0), *ran(ONE, "one")]
    assert invariants(again) == set()


def test_w3_a_step_starts_too_early():
    assert invariants([*planned(), *ran(TWO, "two", VALUE), *ran(ONE, "one"), *CALLBACKS]) == {"W3"}
    assert invariants([*planned(), *ran(ONE, "one", how=""), *ran(TWO, "two", VALUE), *CALLBACKS]) == {"W3"}


def test_w3_a_step_gets_a_wrong_value_or_none():
    for values in ([VALUE + 1], []):
        assert invariants([*planned(), *ran(ONE, "one"), *ran(TWO, "two", *values), *CALLBACKS]) == {"W3"}


def test_w3_a_step_was_in_no_plan():
    assert "W3" in invariants([*WELL, *ran(f"w:{RUN}.3.1", "three")])


def test_w4_a_message_is_published_twice(subtests):
    for name in PUBLISHED:
        with subtests.test(name=name):
            twice = replace(REST, published={**PUBLISHED, name: PUBLISHED[name] + 1})
            assert invariants(rest=twice) == {"W4"}


def test_w4_each_round_has_callbacks_of_its_own():
    ids = [f"w-{RUN}.{kind}.2" for kind in ("success", "finish")]
    again = {CALLBACK_NAMES["success"]: 1, CALLBACK_NAMES["finish"]: 2, CALLBACK_NAMES["failure"]: 1}
    lines = [*WELL[:-2], *called(f"w-{RUN}.failure.1", "failure"), *called(FINISH, "finish")]
    lines += [*called(ids[0], "success"), *called(ids[1], "finish")]
    rest = replace(rest_of(round=2), published={**PUBLISHED, **again}, claimed=[])

    assert invariants(lines, rest) == set()


def test_w5_an_ended_run_has_not_called_back():
    rest = replace(REST, published={STEP_NAMES[0]: 2}, claimed=[ONE, TWO])
    assert invariants(WELL[:-2], rest) == {"W5"}


def test_w5_a_round_has_both_kinds_of_callbacks():
    both = {**PUBLISHED, CALLBACK_NAMES["failure"]: 1}
    lines = [*WELL, *called(f"w-{RUN}.failure.1", "failure")]
    assert invariants(lines, replace(REST, published=both)) == {"W5"}


def test_w5_a_callback_is_of_a_round_that_has_not_been():
    later = {**PUBLISHED, CALLBACK_NAMES["finish"]: 2}
    assert invariants([*WELL, *called(f"w-{RUN}.finish.2", "finish")], replace(REST, published=later)) == {"W5"}


def test_w5_a_callback_never_ran():
    assert invariants(WELL[:-1]) == {"W5"}
    assert invariants([*WELL[:-1], (OPERATOR, "purged", {"ids": [FINISH]})]) == set()


def test_w6_something_is_left(subtests):
    for words in [
        {"starts": 1},
        {"busy": 1},
        {"alive": 1},
        {"queued": 1},
        {"notes": [ONE]},
        {"problems": ["message"]},
    ]:
        with subtests.test(words=words):
            assert invariants(rest=replace(REST, **words)) == {"W6"}


def test_w6_a_run_never_expires_or_a_supervisor_gives_up():
    assert invariants(rest=rest_of(stays=True)) == {"W6"}
    assert invariants(given_up=["a supervisor ended with 1"]) == {"W6"}


def test_plans_are_of_all_shapes_and_fates_and_survive_json():
    made = list(plans(random.Random("plans"), 300))

    assert {plan.shape for plan in made} == set(SHAPES)
    assert {plan.fate for plan in made} == set(FATES)
    assert {plan.policy for plan in made} == {"stop", "continue"}
    assert any(plan.fate == "succeed" and plan.doomed() for plan in made)
    for plan in made:
        assert plan_of(plan.as_dict()).as_dict() == plan.as_dict()
        assert set(plan.values()) == set(plan.waits())
        assert (plan.fate == "fail") <= bool(plan.doomed())
