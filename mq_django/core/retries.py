"""Retry policies: the delay before the next attempt, and the number of attempts."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from mq_django.core.clock import MAX_DELAY, Duration, read_duration
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError

#: More would overflow a float before the longest delay ends the growth.
MAX_FACTOR = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retry with exponential backoff and jitter.

    With the defaults the delays are about 1 s, 2 s, 4 s, 8 s and so on, up to an hour. Jitter prevents messages that
    failed together from being retried together.

        RetryPolicy(max_attempts=5, delay=10, bury_on=(ValidationError,))

    Raises:
        ConfigurationError: an argument is not valid.
    """

    #: The number of failed attempts after which the message is buried; None: the queue's MAX_ATTEMPTS.
    max_attempts: int | None = None
    #: The delay after the first failure: a timedelta or seconds.
    delay: Duration = timedelta(seconds=1)
    #: Each further delay is the previous one times this factor; with 1 all are equal.
    factor: float = 2.0
    #: The longest delay, at least `delay`: a timedelta or seconds.
    max_delay: Duration = timedelta(hours=1)
    #: The largest share of a delay that is subtracted at random: with 0.25 it is 75 % to 100 % of the full delay.
    jitter: float = 0.25
    #: Exceptions that bury the message at once, because a retry cannot help.
    bury_on: Sequence[type[Exception]] = ()

    def __post_init__(self) -> None:
        for name in ("delay", "max_delay"):
            # Frozen, and made once: whoever reads a policy finds timedeltas.
            object.__setattr__(self, name, _delay(name, getattr(self, name)))
        if read_duration(self.delay) > read_duration(self.max_delay):
            raise _refusal("max_delay", f"at least the delay, which is {self.delay}", self.max_delay)
        if self.max_attempts is not None and not (type(self.max_attempts) is int and self.max_attempts > 0):
            raise _refusal("max_attempts", "a whole number from 1", self.max_attempts)
        if not _is_number(self.factor) or not 1 <= self.factor <= MAX_FACTOR:
            raise _refusal("factor", f"a number from 1 to {MAX_FACTOR}", self.factor)
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise _refusal("jitter", "a number from 0 to 1", self.jitter)
        given: object = self.bury_on
        if not isinstance(given, list | tuple) or not all(map(_is_exception, given)):
            raise _refusal("bury_on", "a tuple or a list of exception classes", given)
        object.__setattr__(self, "bury_on", tuple(given))

    def delay_ms(self, attempt: int, *, rand: Callable[[], float] = random.random) -> int:
        """Return the delay after a failed attempt, in milliseconds.

        Args:
            attempt: the number of the attempt that failed, from 1.
            rand: returns a number from 0 to 1, for the jitter.
        """
        first, ceiling = (read_duration(delay).total_seconds() * 1000 for delay in (self.delay, self.max_delay))
        # The exponent is capped because a float overflows at 2 ** 1024, and the ceiling is reached long before.
        full = min(ceiling, first * self.factor ** min(attempt - 1, 64))
        return round(full * (1 - self.jitter * rand()))

    def exhausted(self, attempt: int, *, default_max: int) -> bool:
        """Return whether an attempt was the last one allowed.

        Args:
            attempt: the number of the attempt, from 1.
            default_max: the queue's MAX_ATTEMPTS, for a policy that has no max_attempts.
        """
        return attempt >= (self.max_attempts or default_max)


def _delay(name: str, value: object) -> timedelta:
    try:
        delay = read_duration(value)
    except TypeError as error:
        raise _refusal(name, str(error), value) from error
    if not timedelta(0) <= delay <= MAX_DELAY:
        raise _refusal(name, f"0 to {MAX_DELAY.days} days", value)
    return delay


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _refusal(name: str, expected: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"RetryPolicy.{name} must be {expected}, not {repr_of(value)}")
