"""How the commands read their arguments."""

from argparse import ArgumentTypeError

import pytest

from mq_django.management.argument_types import address, count, period


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400), ("1d", 86400), ("0", 0)]
)
def test_a_period_has_a_unit_or_is_in_seconds(text, seconds):
    assert period(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5m", "5 m", "5w", "1e9", "nan", "٣"])
def test_what_is_no_period_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="such as 90, 90s, 5m"):
        period(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8080", ("", 8080)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host(text, found):
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "0", "65536", "web", "localhost:", ":8080", "::1:80", "-1", "8080x", "1.2.3.4"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="a port"):
        address(text)


def test_a_count_may_be_0():
    assert (count("0"), count("12")) == (0, 12)
    with pytest.raises(ArgumentTypeError):
        count("-1")
