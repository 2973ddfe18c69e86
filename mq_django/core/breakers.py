"""A breaker: what a queue needs is down, so its messages wait for it, and one at a time tries whether it is back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import Literal, get_args

from mq_django.core.clock import Duration, read_duration
from mq_django.core.holds import hold_score, subject_of
from mq_django.core.messages import Message
from mq_django.core.texts import is_a, object_of, repr_of
from mq_django.errors import ConfigurationError

#: Which messages a breaker stops: those with the same name, those with the same key, or all.
By = Literal["name", "key", "queue"]

#: The most results that count: the failures among them are one field in Redis.
MAX_OF = 500
#: The longest time in which they count, and the longest time between probes.
MAX_TIME = timedelta(days=1)
#: The most characters of an error that others see.
MAX_ERROR = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Let messages wait, without a charged attempt, while what they need is down.

    It opens for all consumers together when a share of the latest results are failures of these kinds. While it is
    open, messages wait, and one in each `probe` tries whether it is over. When one is handled, 2, 4, 8 and so on are
    let through at once, and after 64 all; if one of them fails, it stays open. Meanwhile no failure is charged.

        @task(breaker=Breaker(on=["requests.ConnectionError"]))
        def charge(order_id): ...

    `Retry(trips=True)` counts as well, and so does an exception with an attribute `retry_after`.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    #: Exceptions, also by their paths, such as "requests.ConnectionError".
    on: Sequence[type[Exception] | str] = ()
    #: It opens when this share of the last `of` results have failed, and that within a time: a timedelta or seconds.
    share: float = 0.5
    of: int = 20
    within: Duration = timedelta(seconds=60)
    #: Which messages it stops: with the same name, with the same key (without one: the same name), or all.
    by: By = "name"
    #: The time between two probes, ten percent more or less: a timedelta or seconds.
    probe: Duration = timedelta(seconds=30)

    def __post_init__(self) -> None:
        for name, least in (("within", 0.1), ("probe", 0.1)):
            # Frozen, and made once: readers find timedeltas.
            object.__setattr__(self, name, _time(name, getattr(self, name), least))
        if type(self.of) is not int or not 1 <= self.of <= MAX_OF:
            raise _refusal("of", f"a whole number from 1 to {MAX_OF}", self.of)
        share: object = self.share
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
            raise _refusal("share", "a number above 0 and up to 1", share)
        if self.by not in get_args(By):
            raise _refusal("by", '"name", "key" or "queue"', self.by)
        given: object = self.on
        if not isinstance(given, list | tuple) or not all(map(_is_kind, given)):
            raise _refusal("on", "a list of exception classes, or of their paths", given)
        object.__setattr__(self, "on", tuple(given))

    @property
    def needed(self) -> int:
        """Return how many of the latest results have to fail."""
        return max(1, math.ceil(self.share * self.of - 1e-9))

    def subject(self, message: Message) -> str:
        """Return what it stops when this message fails, as `mq_django.core.holds.subject_of()` names it."""
        if self.by == "queue":
            return subject_of("queue")
        if self.by == "key" and message.key is not None:
            return subject_of("key", message.key)
        return subject_of("name", message.name)

    def classes(self) -> tuple[type[BaseException], ...]:
        """Return the exceptions. Their modules are imported.

        Raises:
            ConfigurationError: a path leads to no exception.
        """
        return tuple(each if isinstance(each, type) else _imported(each) for each in self.on)


@dataclass(slots=True)
class Results:
    """The results of the messages of a subject since the last report to Redis."""

    breaker: Breaker
    subject: str
    handled: int = 0
    failed: int = 0
    #: Of these, those that were let through as probes.
    probes: int = 0
    failed_probes: int = 0
    #: Other probes, which have ended without a run: others take their place.
    unrun_probes: int = 0
    #: The last one.
    error: str = field(default="", compare=False)

    def arguments(self) -> tuple[str | int, ...]:
        """Return the arguments of `breakers_count`."""
        breaker = self.breaker
        within, probe = (round(read_duration(each).total_seconds() * 1000) for each in (breaker.within, breaker.probe))
        about = (self.subject, str(hold_score(self.subject)), breaker.of, breaker.needed, within, probe)
        counts = (self.handled, self.failed, self.probes, self.failed_probes, self.unrun_probes)
        return (*about, *counts, self.error[:MAX_ERROR])


def _imported(path: str) -> type[BaseException]:
    module, _, _ = path.rpartition(".")
    try:
        if module:
            import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"Breaker.on names {path}, whose module cannot be imported: {error}") from error
    found = object_of(path)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise ConfigurationError(f"Breaker.on names {path}, which is no exception")
    return found


def _is_kind(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= MAX_ERROR and all(part.isidentifier() for part in value.split("."))
    return isinstance(value, type) and issubclass(value, Exception)


def _time(name: str, value: object, least: float) -> timedelta:
    try:
        found = read_duration(value)
    except TypeError as error:
        raise _refusal(name, str(error), value) from error
    if not timedelta(seconds=least) <= found <= MAX_TIME:
        raise _refusal(name, f"{least} s to {MAX_TIME.days} day", value)
    return found


def _refusal(name: str, expected: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"Breaker.{name} must be {expected}, not {repr_of(value)}")


def check_breaker(value: object) -> None:
    """Check the argument `breaker` of a handler or a task.

    Raises:
        ConfigurationError: it is not a Breaker.
    """
    if value is not None and not is_a(value, Breaker):
        raise ConfigurationError(f"breaker= must be a Breaker, as Breaker(on=[OSError]) is, not {repr_of(value)}")
