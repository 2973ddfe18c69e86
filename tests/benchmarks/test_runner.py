from benchmarks import runner
from benchmarks.contenders import HANDLERS
from benchmarks.record import Record
from benchmarks.runner import Step
from benchmarks.trial import Failed
from tests.benchmarks.contenders import A, B


def nothing(contender):
    return {}


def test_peers_have_rounds_of_their_own():
    step = Step("s", nothing, 3, rounds_of_peers=1)
    told = [one for together in runner.turns(step, [HANDLERS, A, B]) for one in together]
    assert (told.count(HANDLERS), told.count(A), told.count(B)) == (3, 1, 1)


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
