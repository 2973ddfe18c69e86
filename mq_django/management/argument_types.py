"""Types of the commands' arguments."""

import argparse
import re
from datetime import datetime
from typing import NamedTuple

from mq_django.core import clock
from mq_django.core.clock import aware

#: Seconds of the units of a period.
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

LAST_PORT = 65535

#: The most messages that a verb shows.
MAX_SHOWN = 500


def whole(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1, not {text!r}")
    return int(text)


def count(text: str) -> int:
    """Parse a whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number from 0, not {text!r}")
    return int(text)


def page_size(text: str) -> int:
    """Parse how many messages to show."""
    if not text.isdecimal() or not 1 <= int(text) <= MAX_SHOWN:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to {MAX_SHOWN}, not {text!r}")
    return int(text)


def duration(text: str) -> float:
    """Parse a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"a number of seconds, not {text!r}")
    return seconds


def period(text: str) -> float:
    """Parse a number of seconds, or one with a unit such as 90s, 5m, 2h or 1d, as seconds."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"a time such as 90, 90s, 5m, 2h or 1d, not {text!r}")
    return float(found[1]) * UNITS[found[2]]


def address(text: str) -> tuple[str, int]:
    """Parse `[HOST:]PORT`; without a host, it is "". An IPv6 address is written in brackets."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if (":" in host and not is_bracketed) or text.startswith(":") or not re.fullmatch(r"[0-9]{1,5}", port):
        raise argparse.ArgumentTypeError(f"a port, or a host and a port such as 127.0.0.1:8080, not {text!r}")
    if not 1 <= int(port) <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"a port from 1 to {LAST_PORT}, not {port}")
    return (host[1:-1] if is_bracketed else host), int(port)


class Moment(NamedTuple):
    """A time, and how it was given."""

    ms: int
    text: str

    def __str__(self) -> str:
        return self.text


def time_ms(text: str) -> Moment:
    """Parse a date, a time or an age such as 2h. A time without an offset is in the project's time zone."""
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,3})?[smhd]", text):
        return Moment(clock.now_ms() - round(period(text) * 1000), text)
    try:
        return Moment(round(aware(datetime.fromisoformat(text)).timestamp() * 1000), text)
    except (ValueError, OverflowError) as error:
        expected = "a time such as 2026-11-01T06:00Z, or how long ago, such as 2h or 7d"
        raise argparse.ArgumentTypeError(f"{expected}, not {text!r}") from error


def cursor(text: str) -> str:
    """Parse the cursor at the end of a list."""
    if not re.fullmatch(
        r"(?:[0-9]{1,5}/|(?:[0-9]{1,5}/)?(?:[a-z]+\.)?[0-9]{1,20}(?:-[0-9]{1,20}(?:\.[0-9]{1,20})?)?)", text
    ):
        raise argparse.ArgumentTypeError(f"what `mq find` printed after --after, not {text!r}")
    return text
