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


def lines_of_failure():
    return called(f"w-{RUN}.failure.1", "failure")


def published(**more):
    return replace(REST, published={**PUBLISHED, **{CALLBACK_NAMES[kind]: count for kind, count in more.items()}})


AGAIN = [*ran(ONE, "one"), *CALLBACKS]
#: What happened, what is left in the end, and what of that breaks a promise.
CASES = {
    # W1: a run ends as its plan says, and its counts are those of its steps.
    "it hangs": (WELL, rest_of(state="running"), {"W1"}),
    "something flies": (WELL, rest_of(flying=1), {"W1"}),
    "it fails": (WELL, rest_of(state="failed"), {"W1", "W5"}),
    "it is cancelled": (WELL, rest_of(state="cancelled"), {"W1", "W5"}),
    "fewer are done": (WELL, rest_of(done=1), {"W1"}),
    "there are more steps": (WELL, rest_of(total=3, done=3), {"W1"}),
    "one has failed": (WELL, rest_of(failed=1), {"W1"}),
    "it is gone": (WELL, replace(REST, runs=[]), {"W1", "W5"}),
    "its start was not answered": ([planned()[0], (OPERATOR, "run-unknown", {"key": "run0"})], FlowRest(), set()),
    # W2: a step or a callback runs again for a reason.
    "a step again": ([*planned(), *ran(ONE, "one"), *WELL[2:]], REST, {"W2"}),
    "a step again as another message": ([*planned(), *ran(f"w:{RUN}.1.2", "one"), *WELL[2:]], REST, {"W2", "W4"}),
    "a callback again": ([*WELL, *called(FINISH, "finish")], REST, {"W2"}),
    "after it failed": ([*planned(), *ran(ONE, "one", how="NotMended"), *WELL[2:]], REST, set()),
    "after a kill": ([*planned(), *ran(ONE, "one"), *fault(A, began=3.0), *WELL[2:]], REST, set()),
    "after a kill while it ran": ([*planned(), *ran(ONE, "one")[:1], *fault(A, began=3.5), *WELL[2:]], REST, set()),
    "after it was cancelled": (
        [*planned(), (OPERATOR, "cancel-step", {"ids": [ONE]}), *ran(ONE, "one"), *WELL[2:]],
        REST,
        set(),
    ),
    "after a purge": ([*planned(), (OPERATOR, "purged", {"ids": [ONE]}), *ran(ONE, "one"), *WELL[2:]], REST, set()),
    "a kill of another process": ([*planned(), *ran(ONE, "one"), *fault(B, began=3.0), *WELL[2:]], REST, {"W2"}),
    "a stop that must cost nothing": (
        [*planned(), *ran(ONE, "one"), *fault(A, kind="stop", began=3.0, spares=True), *WELL[2:]],
        REST,
        {"W2"},
    ),
    "a kill later": ([*planned(), *ran(ONE, "one"), *WELL[2:], *fault(A, began=9.0)], REST, {"W2"}),
    # A process that goes on after a stop may run what it had taken.
    "a stop of its tree": ([*WELL, *fault(A, kind="stop-tree", began=1.0), *ran(ONE, "one")], REST, set()),
    # W3: a step starts after those that it waits for, and gets their values.
    "too early": ([*planned(), *ran(TWO, "two", VALUE), *AGAIN], REST, {"W3"}),
    "before the end": ([*planned(), *ran(ONE, "one", how=""), *ran(TWO, "two", VALUE), *CALLBACKS], REST, {"W3"}),
    "a wrong value": ([*planned(), *ran(ONE, "one"), *ran(TWO, "two", VALUE + 1), *CALLBACKS], REST, {"W3"}),
    "no value": ([*planned(), *ran(ONE, "one"), *ran(TWO, "two"), *CALLBACKS], REST, {"W3"}),
    "of no plan": ([*WELL, *ran(f"w:{RUN}.3.1", "three")], REST, {"W3", "W4"}),
    # W4: each message is published once.
    "a step twice": (WELL, replace(REST, published={**PUBLISHED, STEP_NAMES[0]: 3}), {"W4"}),
    "success twice": (WELL, published(success=2), {"W4"}),
    "finish twice": (WELL, published(finish=2), {"W4"}),
    # W5: an ended run has published the callbacks of its last round, of one kind.
    "not called back": (WELL[:-2], replace(REST, published={STEP_NAMES[0]: 2}, claimed=[ONE, TWO]), {"W5"}),
    "both kinds": ([*WELL, *lines_of_failure()], published(failure=1), {"W5"}),
    "of a later round": ([*WELL, *called(f"w-{RUN}.finish.2", "finish")], published(finish=2), {"W5"}),
    "a callback that never ran": (WELL[:-1], REST, {"W5"}),
    "a callback that was purged": ([*WELL[:-1], (OPERATOR, "purged", {"ids": [FINISH]})], REST, set()),
    # W6: nothing is left.
    "a start": (WELL, replace(REST, starts=1), {"W6"}),
    "busy": (WELL, replace(REST, busy=1), {"W6"}),
    "alive": (WELL, replace(REST, alive=1), {"W6"}),
    "queued": (WELL, replace(REST, queued=1), {"W6"}),
    "a note": (WELL, replace(REST, notes=[ONE]), {"W6"}),
    "a problem": (WELL, replace(REST, problems=["message"]), {"W6"}),
    "it never expires": (WELL, rest_of(stays=True), {"W6"}),
}


def test_each_broken_promise_is_found_and_nothing_else(subtests):
    for name, (lines, rest, broken) in CASES.items():
        with subtests.test(name):
            assert invariants(lines, rest) == broken


def test_runs_take_too_long_or_a_supervisor_gives_up():
    assert invariants(is_ended=False) == {"W1"}
    assert invariants(given_up=["a supervisor ended with 1"]) == {"W6"}


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


def test_w4_each_round_has_callbacks_of_its_own():
    ids = [f"w-{RUN}.{kind}.2" for kind in ("success", "finish")]
    again = {CALLBACK_NAMES["success"]: 1, CALLBACK_NAMES["finish"]: 2, CALLBACK_NAMES["failure"]: 1}
    lines = [*WELL[:-2], *called(f"w-{RUN}.failure.1", "failure"), *called(FINISH, "finish")]
    lines += [*called(ids[0], "success"), *called(ids[1], "finish")]
    rest = replace(rest_of(round=2), published={**PUBLISHED, **again}, claimed=[])

    assert invariants(lines, rest) == set()


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
