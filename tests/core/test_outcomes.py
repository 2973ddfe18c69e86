"""The values that handlers return."""

from datetime import timedelta

import pytest

from mq_django import Bury, Retry
from mq_django.core.messages import outcome_of
from mq_django.errors import ConfigurationError


def test_a_retry_takes_durations(subtests):
    for delay in [None, 0, 30, 0.5, -5, timedelta(minutes=1)]:
        with subtests.test(delay=delay):
            assert Retry(delay=delay).delay == delay


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["soon", "30", True, object(), float("nan")], "a timedelta or a number of seconds"),
        ([timedelta(days=3661), 10**12], "up to 3660 days"),
    ],
    ids=["other types", "too long"],
)
def test_a_retry_refuses_what_is_no_delay_where_it_is_made(wrong, said, subtests):
    for delay in wrong:
        with subtests.test(delay=delay), pytest.raises(ConfigurationError, match=rf"Retry\.delay must be {said}, not "):
            Retry(delay=delay)


@pytest.mark.parametrize("kind", [Retry, Bury])
def test_of_a_long_traceback_the_end_is_kept(kind):
    """It has the exception."""
    given = kind(error="no", traceback="  File ...\n" * 20_000 + "ValueError: no")
    assert outcome_of(given).traceback.endswith("ValueError: no")
