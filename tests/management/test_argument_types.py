"""How the commands read their arguments."""

from argparse import ArgumentTypeError

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

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


#: Arguments of `mq` with a number outside its limits, and what the error says before "not" and the number.
OUTSIDE = [
    *[
        (arguments, f"argument {arguments[-2]}: a number of seconds from 0 to 316,224,000 (3660 days)")
        for arguments in (
            ["publish", "emails", "welcome", "--delay", "1e30"],
            ["publish", "emails", "welcome", "--delay", "-1"],
            ["publish", "emails", "welcome", "--expires", "nan"],
            ["publish", "emails", "welcome", "--unique", "u", "--delay", "1", "--at-most", "inf"],
            ["schedules", "create", "s", "--queue", "emails", "--message", "m", "--every", "1e30"],
            ["schedules", "create", "s", "--queue", "emails", "--message", "m", "--expires", "1e30"],
            ["outbox", "--relay", "--drain", "--timeout", "1e9"],
        )
    ],
    (["hold", "emails", "--name", "m", "--for", "367d"], "argument --for: a time above 0 and up to 366d"),
    (["hold", "emails", "--name", "m", "--probe", "25h"], "argument --probe: a time above 0 and up to 1d"),
    (["hold", "emails", "--probe", "0"], "argument --probe: a time above 0 and up to 1d"),
    (["mute", "emails", "late", "--for", "99999999d"], "argument --for: a time above 0 and up to 3660d"),
    (["tail", "x", "--timeout", "99999999d"], "argument --timeout: a time up to 3660d"),
    (["doctor", "--health", "--timeout", "99999999d"], "argument --timeout: a time up to 3660d"),
    (["status", "--check", "--max-age", "99999999d"], "argument --max-age: a time up to 3660d"),
    (
        ["purge", "emails", "--state", "ready", "--rate", "1000000001"],
        "argument --rate: a whole number from 1 to 1,000,000,000",
    ),
    (["workflows", "x", "--limit", "9" * 5000], "argument --limit: a whole number from 1 to 500"),
    (
        ["outbox", "--retry", "--row", str(2**63)],
        "argument --row: a whole number from 1 to 9,223,372,036,854,775,807",
    ),
]


def test_a_number_outside_its_limits_is_refused_with_its_option_and_the_limits(subtests):
    for arguments, said in OUTSIDE:
        with subtests.test(arguments=arguments[:-1]), pytest.raises(CommandError) as refused:
            call_command("mq", *arguments)
        assert (str(refused.value), refused.value.returncode) == (f"Error: {said}, not {arguments[-1]!r}", 1)
