"""What lets the messages of a queue run: rate limits, concurrency limits, order per key, turns of the keys."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

from mq_django.core.jsontext import LAST_MS, dumps, loads, whole
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{0,6})\s*([smhd])", re.ASCII)
_MAX_SECONDS = 999_999 * 86_400
#: The highest count of a rate: the log of its grants is read at every fetch.
MAX_COUNT = 1_000_000

Value = TypeVar("Value")
#: Keys with their weights.
Weights = tuple[tuple[str, float], ...]


def key_hash(key: str) -> int:
    """Return the hash of a key of messages: the first 52 bits of its SHA-1, which a double holds exactly."""
    return int(hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:13], 16)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` deliveries in any period of this length."""

    count: int
    window: timedelta

    @classmethod
    def parse(cls, text: object) -> "Rate":
        """Parse a rate such as `10/s`, `100/m`, `5/10s`, `1000/h` or `50000/d`.

        Raises:
            ValueError: it is not a rate.
        """
        found = _RATE.fullmatch(text) if isinstance(text, str) else None
        if found is None or not 0 < int(found[1]) <= MAX_COUNT or found[2] == "0":
            raise ValueError(f"not a rate: {repr_of(text, 80)}")
        return cls(int(found[1]), timedelta(seconds=int(found[2] or 1) * _UNITS[found[3]]))

    def __str__(self) -> str:
        """Return the text that parse() reads."""
        seconds = self.window // timedelta(seconds=1)
        unit = next(unit for unit in "dhms" if seconds % _UNITS[unit] == 0)
        count = seconds // _UNITS[unit]
        return f"{self.count}/{'' if count == 1 else count}{unit}"

    @property
    def micros(self) -> int:
        """Return the window in microseconds."""
        return self.window // timedelta(microseconds=1)


class Limit(NamedTuple, Generic[Value]):
    """A limit of the whole queue and of each key; None: no limit."""

    queue: Value | None = None
    key: Value | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one queue; None: no limit."""

    rate: Rate | None = None
    #: Deliveries at once.
    concurrency: int | None = None
    #: The same for the messages of one key.
    key_rate: Rate | None = None
    key_concurrency: int | None = None
    #: The messages of a key run in their order, one at a time: `key_concurrency` is 1.
    ordered: bool = False
    #: Keys take turns, those with a weight more often; None: messages are taken as they come.
    fair: Weights | None = None

    @property
    def of_queue(self) -> bool:
        """Return whether the queue as a whole is limited."""
        return self.rate is not None or self.concurrency is not None

    @property
    def of_keys(self) -> bool:
        """Return whether messages may have to wait in the line of their key."""
        return self.needs_tokens or self.fair is not None

    @property
    def needs_tokens(self) -> bool:
        """Return whether each key is limited."""
        return self.key_rate is not None or self.key_concurrency is not None

    def __bool__(self) -> bool:
        return self.of_queue or self.of_keys

    @property
    def changeable(self) -> tuple["LimitName", ...]:
        """Return the limits that can be changed at run time: those that it has, except what ORDERED says."""
        fixed = "key_concurrency" if self.ordered else ""
        return tuple(name for name in LIMITS if getattr(self, name) is not None and name != fixed)

    def changed(self, changes: Mapping["LimitName", "LimitChange"]) -> "Limits":
        """Return the limits with these changes."""
        now: Any = {name: value_of(changes[name]) for name in self.changeable if name in changes}
        return replace(self, **now)


# Limits that people have changed at run time, in the field `limits` of `control`: see `lua/parts/limit_changes.lua`.

LimitName = Literal["rate", "concurrency", "key_rate", "key_concurrency"]
LIMITS: tuple[LimitName, ...] = get_args(LimitName)
RATES: tuple[LimitName, ...] = ("rate", "key_rate")
NO_LIMIT = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange:
    """A limit that has another value than in the settings, until it is changed back."""

    limit: LimitName
    #: As in the settings, such as "10/s" or "5"; "none": no limit.
    value: str
    #: The user who changed it, and why.
    who: str = ""
    reason: str = ""
    #: Since when, in ms since 1970.
    since_ms: int | None = None

    def encoded(self) -> bytes:
        """Return it as JSON.

        Raises:
            InvalidMessage: a text cannot be encoded in UTF-8.
        """
        value = value_of(self)
        found: dict[str, Any] = {"most": value or 0}
        if isinstance(value, Rate):
            found = {"most": value.count, "seconds": value.window // timedelta(seconds=1)}
        return dumps({**found, "who": self.who, "reason": self.reason, "since": self.since_ms})


def value_of(change: LimitChange) -> Rate | int | None:
    """Return the value of a changed limit; None: no limit."""
    if change.value == NO_LIMIT:
        return None
    return Rate.parse(change.value) if change.limit in RATES else int(change.value)


def read_changes(text: bytes | None) -> dict[LimitName, LimitChange]:
    """Return the changed limits in the field of `control`. Texts of other programs are left out."""
    try:
        found: Any = loads(text or b"")
    except DecodeError:
        return {}
    pairs = [(name, found.get(name)) for name in LIMITS] if isinstance(found, Mapping) else []
    changes = (_change(name, about) for name, about in pairs if isinstance(about, Mapping))
    return {change.limit: change for change in changes if change is not None}


def _change(name: LimitName, about: Mapping[str, Any]) -> LimitChange | None:
    most, seconds = whole(about.get("most")), whole(about.get("seconds"), _MAX_SECONDS)
    if most is None or (name in RATES and most and not seconds):
        return None
    value = str(most or NO_LIMIT)
    if name in RATES and most:
        value = str(Rate(most, timedelta(seconds=seconds or 1)))
    who, reason = (found if isinstance(found := about.get(part), str) else "" for part in ("who", "reason"))
    return LimitChange(limit=name, value=value, who=who, reason=reason, since_ms=whole(about.get("since"), LAST_MS))
