"""When a failed message is tried again."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retry with exponential backoff and jitter.

    With the defaults an attempt follows after about 1 s, 2 s, 4 s, 8 s, ... and never later than an hour. Without
    jitter everything that failed together would come back together.
    """

    #: Deliveries that may fail before the message is buried; None: the queue's MAX_ATTEMPTS.
    max_attempts: int | None = None
    #: The delay after the first failure.
    delay: timedelta = timedelta(seconds=1)
    #: Each further delay is this many times the one before; 1 keeps them equal.
    factor: float = 2.0
    max_delay: timedelta = timedelta(hours=1)
    #: A share of the delay, taken off at random: 0.25 gives 75 % to 100 % of it.
    jitter: float = 0.25
    #: Exceptions that bury at once, for failures that no retry can fix.
    bury_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError("RetryPolicy.max_attempts must be at least 1")
        if self.delay < timedelta(0) or self.max_delay < timedelta(0):
            raise ValueError("RetryPolicy.delay and max_delay must not be negative")
        if self.factor < 1:
            raise ValueError("RetryPolicy.factor must be at least 1")
        if not 0 <= self.jitter <= 1:
            raise ValueError("RetryPolicy.jitter must be between 0 and 1")

    def delay_ms(self, attempt: int, *, rand: Callable[[], float] = random.random) -> int:
        """Return the milliseconds to wait after failed attempt number `attempt` (from 1)."""
        ceiling = self.max_delay.total_seconds() * 1000
        # The exponent is capped because a float overflows at 2 ** 1024, and the ceiling is reached long before.
        full = min(ceiling, self.delay.total_seconds() * 1000 * self.factor ** min(attempt - 1, 64))
        return round(full * (1 - self.jitter * rand()))

    def exhausted(self, attempt: int, *, default_max: int) -> bool:
        """Tell whether attempt number `attempt` was the last one allowed."""
        return attempt >= (self.max_attempts or default_max)
