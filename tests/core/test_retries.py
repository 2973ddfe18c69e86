from datetime import timedelta

import pytest

from mq_django.core.retries import RetryPolicy
from mq_django.errors import ConfigurationError

NO_JITTER = RetryPolicy(jitter=0)


@pytest.mark.parametrize(
    ("attempt", "delay_ms"), [(1, 1000), (2, 2000), (3, 4000), (12, 2_048_000), (13, 3_600_000), (10_000, 3_600_000)]
)
def test_delays_double_up_to_an_hour(attempt, delay_ms):
    assert NO_JITTER.delay_ms(attempt) == delay_ms


@pytest.mark.parametrize(("rand", "delay_ms"), [(0.0, 1000), (0.5, 875), (1.0, 750)])
def test_jitter_takes_a_share_off(rand, delay_ms):
    assert RetryPolicy(jitter=0.25).delay_ms(1, rand=lambda: rand) == delay_ms


def test_a_factor_of_one_keeps_delays_equal():
    policy = RetryPolicy(delay=timedelta(milliseconds=50), factor=1, jitter=0)
    assert {policy.delay_ms(attempt) for attempt in (1, 2, 30)} == {50}


@pytest.mark.parametrize(
    ("own", "attempt", "exhausted"), [(None, 4, False), (None, 5, True), (2, 2, True), (9, 5, False)]
)
def test_the_policys_own_limit_goes_before_the_queues(own, attempt, exhausted):
    assert RetryPolicy(max_attempts=own).exhausted(attempt, default_max=5) is exhausted


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"delay": timedelta(seconds=-1)},
        {"max_delay": timedelta(seconds=-1)},
        {"factor": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"max_attempts": 2.5},
        {"delay": "soon"},
        {"delay": True},
        {"max_delay": timedelta(days=4000)},
        {"max_delay": 1, "delay": 5},
        # The default is an hour.
        {"delay": timedelta(hours=2)},
        {"factor": float("inf")},
        {"factor": "2"},
        {"jitter": float("nan")},
        {"bury_on": ValueError},
        {"bury_on": ["ValueError"]},
    ],
    ids=str,
)
def test_an_impossible_policy_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=rf"RetryPolicy\.(max_)?{next(iter(wrong))} must be"):
        RetryPolicy(**wrong)


def test_numbers_are_seconds():
    assert RetryPolicy(delay=0.2, max_delay=60) == RetryPolicy(
        delay=timedelta(milliseconds=200), max_delay=timedelta(minutes=1)
    )
    assert RetryPolicy(delay=0.2, jitter=0).delay_ms(1) == 200
