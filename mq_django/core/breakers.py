"""Breakers and holds.

While a breaker is open, what a queue needs is down: its messages wait, and one at a time tries whether it is back. That
is a hold, as people make one too: the messages with a name or a key wait.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import Any, Literal, NamedTuple, Self, get_args

from mq_django.core.clock import Duration, read_duration
from mq_django.core.jsontext import LAST_MS, dumps, loads, whole
from mq_django.core.messages import Message
from mq_django.core.texts import is_a, object_of, repr_of
from mq_django.errors import ConfigurationError, DecodeError

#: Which messages are held: all of a queue, or those with a name or a key.
Kind = Literal["queue", "name", "key"]
State = Literal["held", "open", "ramp", "ended"]

#: The most holds of a queue. Breakers leave some of these to people: see `lua/breakers_count.lua`.
MAX_HOLDS = 500
_TEXTS = ("who", "reason", "error")
_TIMES = ("since", "until", "next", "probe", "first")
_KINDS: tuple[Kind, ...] = ("queue", "name", "key")
_STATES: tuple[State, ...] = ("held", "open", "ramp", "ended")


def subject_of(kind: Kind, value: str = "") -> str:
    """Return the text that names what a hold is about, as in `{queue}:holds`."""
    return f"{kind}:{value}"


def hold_score(subject: str) -> int:
    """Return the score of its messages in `parked`: below 0, where no line is, and a hash of 52 bits."""
    return -1 - int(hashlib.sha256(subject.encode()).hexdigest()[:13], 16)


def subjects_of(message: Message) -> tuple[str, ...]:
    """Return all subjects that a message belongs to."""
    found = (subject_of("queue"), subject_of("name", message.name))
    return found if message.key is None else (*found, subject_of("key", message.key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A hold of a queue: some of its messages wait, and are not charged an attempt."""

    kind: Kind
    #: The name or the key; "" of a queue.
    value: str = ""
    #: `held` by people; `open` by a breaker; `ramp`: the breaker lets more and more through; `ended`: its messages are
    #: being made ready.
    state: State = "held"
    #: Who, and why, for others to see.
    who: str = ""
    reason: str = ""
    #: Since when, in ms since 1970.
    since_ms: int | None = None
    #: When it ends, in ms since 1970; None: when somebody ends it.
    until_ms: int | None = None
    #: Of a breaker: the last error, and how many of how many results had failed when it opened.
    error: str = ""
    failed: int = 0
    of: int = 0
    #: When the next probe is, in ms since 1970, how many ms are between two, and how many messages the ramp lets
    #: through at once.
    next_ms: int | None = None
    probe_ms: int | None = None
    level: int = 0
    #: When the first of these failures was, in ms since 1970.
    first_ms: int | None = None
    #: How many of its messages wait; None where that was not counted.
    messages: int | None = None

    @property
    def subject(self) -> str:
        """Return the text that names what it is about."""
        return subject_of(self.kind, self.value)

    @property
    def by_breaker(self) -> bool:
        """Return whether a breaker made it, or somebody who opened one."""
        return self.state in ("open", "ramp")

    def holds(self, now_ms: int) -> bool:
        """Return whether its messages wait.

        Args:
            now_ms: the time, in ms since 1970.
        """
        return self.state != "ended" and (self.until_ms is None or now_ms < self.until_ms)

    def encoded(self) -> bytes:
        """Return it as the value in `{queue}:holds`.

        Raises:
            InvalidMessage: a text cannot be encoded in UTF-8.
        """
        found = {"state": self.state, "score": str(hold_score(self.subject)), "who": self.who, "reason": self.reason}
        times = {"since": self.since_ms, "until": self.until_ms, "next": self.next_ms, "probe": self.probe_ms}
        return dumps(found | {name: value for name, value in times.items() if value is not None})

    @classmethod
    def decoded(cls, subject: bytes, value: bytes) -> "Hold | None":
        """Return the hold of a field of `{queue}:holds`; None if it is none: any program may have written it.

        Args:
            subject: the field.
            value: a JSON object, see `lua/parts/holds.lua`.
        """
        try:
            kind, _, about = subject.decode().partition(":")
            found: Any = loads(value)
        except (UnicodeDecodeError, DecodeError):
            return None
        if kind not in _KINDS or not isinstance(found, Mapping) or found.get("state") not in _STATES:
            return None
        return cls._of(kind, about, found)

    @classmethod
    def _of(cls, kind: Kind, about: str, found: Mapping[str, Any]) -> Self:
        texts: Any = {name: value if isinstance(value := found.get(name), str) else "" for name in _TEXTS}
        counts: Any = {name: whole(found.get(name)) or 0 for name in ("failed", "of", "level")}
        times: Any = {f"{name}_ms": whole(found.get(name), LAST_MS) for name in _TIMES}
        return cls(kind=kind, value=about, state=found["state"], **texts, **counts, **times)


def read_holds(flat: Any) -> dict[str, Hold]:
    """Return the holds in the fields and values of `{queue}:holds`, by subject."""
    found = (Hold.decoded(subject, value) for subject, value in zip(flat[::2], flat[1::2], strict=True))
    return {hold.subject: hold for hold in found if hold is not None}


class Counted(NamedTuple):
    """A breaker before and after results were reported; "" of a state: there was no hold."""

    before: str
    after: str
    #: When the first failure was because of which it is open, in ms since 1970, and how many there were.
    first_ms: int = 0
    failed: int = 0

    @property
    def holds(self) -> bool:
        """Return whether messages wait now: what has failed meanwhile waits, too."""
        return self.after in ("held", "open", "ramp")


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
        """Return what it stops when this message fails, as `mq_django.core.breakers.subject_of()` names it."""
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
