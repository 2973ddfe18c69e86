"""Types of the commands' arguments."""

import argparse

#: The most messages that a verb shows.
MAX_SHOWN = 500


def whole(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1, not {text!r}")
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
