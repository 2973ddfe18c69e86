"""Retry policies: the delay before the next attempt, and the number of attempts."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retry with exponential backoff and jitter.

    With the defaults the delays are about 1 s, 2 s, 4 s, 8 s and so on, up to an hour. Jitter prevents messages that
    failed together from being retried together.

        RetryPolicy(max_attempts=5, delay=timedelta(seconds=10), bury_on=(ValidationError,))

    Raises:
        ValueError: max_attempts or factor is below 1, a delay is negative, or jitter is not between 0 and 1.
    """

    #: The number of failed attempts after which the message is buried; None: the queue's MAX_ATTEMPTS.
    max_attempts: int | None = None
    #: The delay after the first failure.
    delay: timedelta = timedelta(seconds=1)
    #: Each further delay is the previous one times this factor; with 1 all are equal.
    factor: float = 2.0
    #: The longest delay.
    max_delay: timedelta = timedelta(hours=1)
    #: The largest share of a delay that is subtracted at random: with 0.25 it is 75 % to 100 % of the full delay.
    jitter: float = 0.25
    #: Exceptions that bury the message at once, because a retry cannot help.
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
        """Return the delay after a failed attempt, in milliseconds.

        Args:
            attempt: the number of the attempt that failed, from 1.
            rand: returns a number from 0 to 1, for the jitter.
        """
        ceiling = self.max_delay.total_seconds() * 1000
        # The exponent is capped because a float overflows at 2 ** 1024, and the ceiling is reached long before.
        full = min(ceiling, self.delay.total_seconds() * 1000 * self.factor ** min(attempt - 1, 64))
        return round(full * (1 - self.jitter * rand()))

    def exhausted(self, attempt: int, *, default_max: int) -> bool:
        """Return whether an attempt was the last one allowed.

        Args:
            attempt: the number of the attempt, from 1.
            default_max: the queue's MAX_ATTEMPTS, for a policy that has no max_attempts.
        """
        return attempt >= (self.max_attempts or default_max)
