"""How the commands read their arguments."""

from argparse import ArgumentTypeError

import pytest

from mq_django.management.verb_types import address, count, period


def answer(read, text):
    """Return what a text is read as, or why it is refused."""
    try:
        return read(text)
    except ArgumentTypeError as error:
        return str(error)


def test_a_period_has_a_unit_or_is_in_seconds():
    periods = {"90": 90, "90s": 90, "5m": 300, "1.5h": 5400, "1d": 86400, "0": 0}
    assert {text: answer(period, text) for text in periods} == periods
    refused = {text: str(answer(period, text)) for text in ("", "m", "-5m", "5 m", "5w", "1e9", "nan", "٣")}
    assert [text for text, said in refused.items() if "such as 90, 90s, 5m" not in said] == []


def test_an_address_is_a_port_with_or_without_a_host():
    addresses = {
        "8080": ("", 8080),
        "127.0.0.1:1": ("127.0.0.1", 1),
        "localhost:65535": ("localhost", 65535),
        "[::1]:80": ("::1", 80),
    }
    assert {text: answer(address, text) for text in addresses} == addresses
    wrong = ("", "0", "65536", "web", "localhost:", ":8080", "::1:80", "-1", "8080x", "1.2.3.4")
    assert [text for text in wrong if "a port" not in str(answer(address, text))] == []


def test_a_count_may_be_0():
    assert (count("0"), count("12")) == (0, 12)
    with pytest.raises(ArgumentTypeError):
        count("-1")
