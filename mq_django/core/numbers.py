"""Read numbers from Redis, where other programs may have written anything.

Python's int() and float() raise for thousands of digits, accept `inf`, and take a second for a very long text.
"""

import math

#: The largest number that Redis counts to.
LARGEST = 2**63 - 1
#: The last time that has an RFC 3339 timestamp, in milliseconds since 1970.
LAST_MS = 253402300799999
#: The most characters of a number: 64 bits have 20 digits, a double has up to 24.
_LONGEST = 32


def whole(value: object, most: int = LARGEST) -> int | None:
    """Return the whole number from 0 to `most` in a reply of Redis, or None."""
    if isinstance(value, bytes | str) and len(value) <= _LONGEST and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= most else None


def score(value: object) -> float | None:
    """Return the finite number in a reply of Redis, such as the score of a member, or None."""
    if not isinstance(value, int | float) and not (isinstance(value, bytes | str) and len(value) <= _LONGEST):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def score_ms(value: object) -> int | None:
    """Return the time in ms since 1970 in a score, rounded up, or None if it is not a valid date."""
    found = score(value)
    return math.ceil(found) if found is not None and 0 <= found <= LAST_MS else None
