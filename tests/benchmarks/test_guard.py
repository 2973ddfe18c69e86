"""What the guard of speed takes for slow."""

import pytest

from benchmarks import guard
from benchmarks.contenders import HANDLERS, RAW


def ratio(values, floor=0.5):
    """Return a ratio that was measured so often."""
    return guard.Ratio("it", None, HANDLERS, "rate", floor, list(values))


@pytest.mark.parametrize(
    ("values", "is_too_low", "is_open"),
    [
        ([], False, True),
        ([0.3, 0.3], False, True),  # two may be chance
        ([0.40, 0.41, 0.40], True, False),
        ([0.60, 0.61, 0.60], False, False),
        ([0.30, 0.60, 0.45], False, True),  # lower on average, and too noisy to tell
    ],
)
def test_only_what_is_surely_below_its_floor_is_too_low(values, is_too_low, is_open):
    found = ratio(values)
    assert (found.is_too_low, found.is_open) == (is_too_low, is_open)


def measured(rates, *, seconds=100.0):
    """Measure a ratio whose rounds take ten seconds and bring these rates of ours, where the raw limit has 100."""
    now, ours = iter(range(0, 10_000, 10)), iter(rates)

    def run(who):
        return {"rate": 100.0 if who is RAW else next(ours)}

    row = ratio([])
    row.run = run
    guard.measure([row], seconds=seconds, clock=lambda: next(now))
    return row


def test_it_is_measured_until_it_is_sure():
    assert len(measured([70.0, 72.0, 71.0, 70.0]).values) == guard.ROUNDS
    assert measured([30.0, 31.0, 30.5, 30.0]).is_too_low


def test_noise_is_measured_until_the_time_is_over_and_fails_nothing():
    row = measured([20.0, 90.0] * 50)
    assert guard.ROUNDS < len(row.values) < 20
    assert not row.is_too_low


def test_nobody_always_comes_first():
    turns, row = [], ratio([])

    def run(who):
        turns.append(who)
        return {"rate": 1.0}

    row.run = run
    guard.measure([row], clock=lambda: 0.0)
    assert turns == [RAW, HANDLERS, HANDLERS, RAW, RAW, HANDLERS]


def test_five_in_a_hundred_more_instructions_are_too_many():
    noted = {"handler": 1000.0, "task": 2000.0}
    assert guard.too_many({"handler": 1049.0, "task": 2101.0}, noted) == ["task"]
