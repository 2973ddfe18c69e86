from datetime import UTC, datetime, timedelta

import pytest

from mq_django.core import clock
from mq_django.core.clock import MAX_DELAY
from mq_django.core.retries import RetryPolicy
from mq_django.errors import ConfigurationError

NO_JITTER = RetryPolicy(jitter=0)


def test_delays_double_up_to_an_hour(subtests):
    for attempt, delay_ms in [(1, 1000), (2, 2000), (3, 4000), (12, 2_048_000), (13, 3_600_000), (10_000, 3_600_000)]:
        with subtests.test(attempt=attempt):
            assert NO_JITTER.delay_ms(attempt) == delay_ms


def test_jitter_takes_a_share_off(subtests):
    for rand, delay_ms in [(0.0, 1000), (0.5, 875), (1.0, 750)]:
        with subtests.test(rand=rand):
            assert RetryPolicy(jitter=0.25).delay_ms(1, rand=lambda value=rand: value) == delay_ms


def test_a_factor_of_one_keeps_delays_equal():
    policy = RetryPolicy(delay=timedelta(milliseconds=50), factor=1, jitter=0)
    assert {policy.delay_ms(attempt) for attempt in (1, 2, 30)} == {50}


def test_the_policys_own_limit_goes_before_the_queues(subtests):
    for own, attempt, exhausted in [(None, 4, False), (None, 5, True), (2, 2, True), (9, 5, False)]:
        with subtests.test(own=own):
            assert RetryPolicy(max_attempts=own).exhausted(attempt, default_max=5) is exhausted


def test_an_impossible_policy_is_refused(subtests):
    for wrong in [
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
    ]:
        said = rf"RetryPolicy\.(max_)?{next(iter(wrong))} must be"
        with subtests.test(wrong=wrong), pytest.raises(ConfigurationError, match=said):
            RetryPolicy(**wrong)


def test_numbers_are_seconds():
    assert RetryPolicy(delay=0.2, max_delay=60) == RetryPolicy(
        delay=timedelta(milliseconds=200), max_delay=timedelta(minutes=1)
    )
    assert RetryPolicy(delay=0.2, jitter=0).delay_ms(1) == 200


def test_a_delay_is_read_from_a_header(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: 1_792_567_680.0)  # Wed, 21 Oct 2026 07:28:00 GMT
    read = {
        "120": 120,
        " 7 ": 7,
        "Wed, 21 Oct 2026 07:30:00 GMT": 120,
        "Wed, 21 Oct 2026 07:00:00 GMT": 0,
        datetime(2026, 10, 21, 7, 29, tzinfo=UTC): 60,
        timedelta(minutes=1): 60,
        1.5: 1.5,
        -3: 0,
        "9" * 12: MAX_DELAY.total_seconds(),
    }
    assert {value: RetryPolicy.delay_from(value).total_seconds() for value in read} == read
    for wrong in ("soon", "", None, True, float("nan"), b"7"):
        with pytest.raises(ConfigurationError, match=r"RetryPolicy\.delay_from"):
            RetryPolicy.delay_from(wrong)
