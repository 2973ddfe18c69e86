"""The options of a publish, checked at the call."""

import math
import time
from datetime import UTC, datetime, timedelta

from mq_django.conf import QueueConfig, RsmqConfig
from mq_django.core import rsmq_format
from mq_django.core.ids import new_id
from mq_django.core.keys import PARKED_PREFIX, UNIQUE_PREFIX
from mq_django.core.numbers import LAST_MS
from mq_django.errors import InvalidMessage

#: The longest delay in seconds or as a timedelta: longer than that is a mistake in the unit.
MAX_DELAY = timedelta(days=3660)
#: What to do about a message that waits under the same unique key.
CONFLICTS = ("replace", "keep", "earliest", "error")
#: `unique_for` without an end of its own.
UNTIL_HANDLED = "handled"


def check_text(what: str, value: object) -> str:
    """Return what names something, or raise InvalidMessage."""
    if not isinstance(value, str) or not 0 < len(value) <= 255 or not value.isprintable():
        raise InvalidMessage(f"{what} must be 1 to 255 printable characters, not {value!r:.300}")
    if what == "message_id" and value.startswith((UNIQUE_PREFIX, PARKED_PREFIX)):
        raise InvalidMessage(f"A message's id cannot start with {value[:2]!r}")
    return value


def fresh_id(config: QueueConfig) -> str:
    """Return an id for a message of a queue."""
    return rsmq_format.new_id() if isinstance(config, RsmqConfig) else new_id()


def check_priority(priority: object) -> int:
    """Return a priority, or raise InvalidMessage."""
    if type(priority) is not int or not -100 <= priority <= 100:
        raise InvalidMessage(f"A priority is a whole number from -100 to 100, not {priority!r:.100}")
    return priority


def check_conflict(on_conflict: str | None, *, claims: bool) -> str:
    """Return what to do about the same unique key, or raise InvalidMessage."""
    allowed = ("error", "keep") if claims else CONFLICTS
    chosen = allowed[0] if on_conflict is None else on_conflict
    if chosen not in allowed:
        raise InvalidMessage(f"on_conflict must be one of {', '.join(allowed)} here, not {on_conflict!r:.100}")
    return chosen


def claim_ms(unique: str | None, unique_for: timedelta | float | str | None) -> int | None:
    """Return for how many milliseconds a unique key is taken, 0 for until it is handled, None for not at all."""
    if unique_for is None:
        return None
    if unique is None:
        raise InvalidMessage("unique_for= needs unique=")
    if isinstance(unique_for, str):
        if unique_for != UNTIL_HANDLED:
            raise InvalidMessage(f'unique_for is a timedelta, seconds or "handled", not {unique_for!r:.100}')
        return 0
    return max(1, _milliseconds(unique_for))


def due(delay: timedelta | float | None, deliver_at: datetime | None) -> tuple[int | None, int | None]:
    """Return (milliseconds from now, milliseconds since 1970), of which at most one is there."""
    if delay is not None and deliver_at is not None:
        raise InvalidMessage("Give delay= or deliver_at=, not both")
    if deliver_at is not None:
        return None, _moment_ms(deliver_at)
    return (None if delay is None else _milliseconds(delay)), None


def expiry(expires: timedelta | datetime | None) -> int | None:
    """Return the moment from which a message is too old, in milliseconds since 1970, or raise InvalidMessage."""
    if expires is None:
        return None
    if isinstance(expires, timedelta):
        found = round((time.time() + expires.total_seconds()) * 1000)
    else:
        found = _moment_ms(expires)
    if not 0 <= found <= LAST_MS:
        raise InvalidMessage(f"A message expires between 1970 and 9999, not at {expires!r:.100}")
    return found


def _milliseconds(delay: object) -> int:
    if isinstance(delay, bool) or not isinstance(delay, timedelta | int | float):
        raise InvalidMessage(f"A delay is a timedelta or seconds, not {delay!r:.100}")
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not 0 <= seconds <= MAX_DELAY.total_seconds():
        raise InvalidMessage(f"A delay is 0 to {MAX_DELAY.days} days, not {delay!r:.100}")
    # Up, because never early holds for parts of a millisecond too.
    return math.ceil(seconds * 1000)


def _moment_ms(moment: object) -> int:
    if not isinstance(moment, datetime):
        raise InvalidMessage(f"A moment is a datetime, not {type(moment).__name__}")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return math.ceil(aware.timestamp() * 1000)
