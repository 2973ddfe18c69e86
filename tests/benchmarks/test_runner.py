from benchmarks import runner
from benchmarks.contenders import AT_COMMIT, HANDLERS, RAW, TASKS
from benchmarks.record import Record
from benchmarks.runner import Step
from benchmarks.trial import Failed
from tests.benchmarks.contenders import SAFE, A, B, peer


def nothing(contender):
    return {}


def test_turns_go_round_and_nobody_is_always_first():
    step = Step("s", nothing, 3)
    assert list(runner.turns(step, [RAW, HANDLERS])) == [[RAW], [HANDLERS], [HANDLERS], [RAW], [RAW], [HANDLERS]]


def test_peers_have_rounds_of_their_own():
    step = Step("s", nothing, 3, rounds_of_peers=1)
    told = [one for together in runner.turns(step, [HANDLERS, A, B]) for one in together]
    assert (told.count(HANDLERS), told.count(A), told.count(B)) == (3, 1, 1)


def test_the_safest_settings_have_one_round():
    told = [one for together in runner.turns(Step("s", nothing, 3, safest=True), [A, SAFE]) for one in together]
    assert (told.count(A), told.count(SAFE)) == (3, 1)


def test_peers_that_mostly_wait_go_together_and_ours_goes_alone():
    step = Step("s", nothing, together=True)
    assert list(runner.turns(step, [HANDLERS, A, B])) == [[HANDLERS], [A, B]]


def test_who_takes_part(subtests):
    for step, contender, taken in [
        (Step("s", nothing), A, True),
        (Step("s", nothing), SAFE, False),
        (Step("s", nothing, safest=True), SAFE, True),
        (Step("s", nothing, ours_only=True), RAW, False),
        (Step("s", nothing, ours_only=True), HANDLERS, True),
        (Step("s", nothing, is_long=True), RAW, True),
        (Step("s", nothing, is_long=True), A, False),
        (Step("s", nothing), peer("c", skips=["s"]), False),
        (Step("s", nothing, needs_bulk=True), HANDLERS, True),
        (Step("s", nothing, needs_bulk=True), TASKS, False),
        (Step("s", nothing, in_django=True), AT_COMMIT, True),
        (Step("s", nothing, in_django=True), HANDLERS, False),
        (Step("s", nothing, in_django=True), A, False),
        (Step("s", nothing), AT_COMMIT, False),
        (Step("s", nothing, ours_only=True), AT_COMMIT, False),
    ]:
        with subtests.test(step=step):
            assert step.takes(contender) is taken


def test_long_steps_are_for_peers_when_everything_is_asked_for():
    assert Step("s", nothing, is_long=True).takes(A, everything=True)


def test_a_run_keeps_every_round_and_goes_on_after_a_failure(tmp_path):
    seen = []

    def measure(contender):
        seen.append(contender.name)
        if contender is B:
            raise Failed("b: nothing was handled")
        return {"rate": float(len(seen))}

    told = []
    record = runner.run([HANDLERS, A, B], [Step("s", measure, 3)], say=told.append)
    assert {who: len(found["rate"]) for who, found in record.values.items()} == {HANDLERS.name: 3, "queue-a": 3}
    assert record.failures == ["queue-b, s: b: nothing was handled"] * 3
    assert record.contenders == [HANDLERS.name, "queue-a", "queue-b"]
    record.save(tmp_path / "r.json")
    assert Record.load(tmp_path / "r.json") == record
    assert len(told) == 9
    assert " 0 left" in told[-1]


def test_every_step_has_a_name_of_its_own_and_somebody_to_run_it():
    names = [step.name for step in runner.STEPS]
    assert len(set(names)) == len(names)
    for contender in (RAW, HANDLERS, TASKS):
        assert any(step.takes(contender) for step in runner.STEPS)
