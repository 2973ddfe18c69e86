"""Holds: people or a breaker let the messages with a name or a key wait."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from mq_django.core.jsontext import dumps, loads
from mq_django.core.messages import Message
from mq_django.core.numbers import LAST_MS, whole
from mq_django.errors import DecodeError

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
