"""What lets the messages of a queue run: rate limits, concurrency limits, order per key, turns of the keys."""

import hashlib
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, NamedTuple, TypeVar

from mq_django.core.texts import repr_of

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{0,6})\s*([smhd])", re.ASCII)
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
