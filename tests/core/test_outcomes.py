"""The values that handlers return."""

from datetime import timedelta

import pytest

from mq_django import Retry
from mq_django.errors import ConfigurationError


@pytest.mark.parametrize("delay", [None, 0, 30, 0.5, -5, timedelta(minutes=1)])
def test_a_retry_takes_durations(delay):
    assert Retry(delay=delay).delay == delay


@pytest.mark.parametrize("delay", ["soon", "30", True, object(), float("nan")])
def test_a_retry_refuses_what_is_not_a_duration_where_it_is_made(delay):
    with pytest.raises(ConfigurationError, match=r"Retry\.delay must be a timedelta or a number of seconds, not "):
        Retry(delay=delay)


@pytest.mark.parametrize("delay", [timedelta(days=3661), 10**12])
def test_a_retry_in_more_than_ten_years_is_a_mistake(delay):
    with pytest.raises(ConfigurationError, match=r"Retry\.delay must be up to 3660 days, not "):
        Retry(delay=delay)
