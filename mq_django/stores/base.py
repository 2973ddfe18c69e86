"""What every store promises."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from mq_django.conf import QueueConfig
from mq_django.core.keys import QueueKeys
from mq_django.core.lookup import CancelResult, Lookup
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Outcome
from mq_django.core.publication import Publication
from mq_django.transport.scripts import Command

#: The receipt of a delivery for who knows its queue: `Delivery.home` and `Delivery.entry`.
HomeEntry = tuple[int, bytes]


class Settlement(NamedTuple):
    """A delivery (or what could not be decoded) with its outcome."""

    delivery: Delivery | Undecodable
    outcome: Outcome
    #: For a `Retry`: milliseconds until the next attempt.
    delay_ms: int = 0
    #: How long the handler ran, in microseconds; None when none ran.
    micros: int | None = None
    #: It is a task's, and its result is kept: see `mq_django.stores.results`.
    keeps_result: bool = False


class Depths(NamedTuple):
    """How many messages of a queue are where."""

    ready: int
    delayed: int
    unhandled: int
    pending: int
    dead: int
    parked: int = 0

    @property
    def depth(self) -> int:
        """Return ready + waiting + pending."""
        return self.ready + self.delayed + self.unhandled + self.parked + self.pending


class Store(Protocol):
    """The Redis form of a queue.

    A message is always in exactly one place: each method that moves one is one script. Methods raise `StoreError` and
    its subclasses, never errors of redis-py.
    """

    config: QueueConfig
    keys: QueueKeys

    def publish(self, publications: Sequence[Publication]) -> list[str]:
        """Put messages of one call in, and begin their results; return their ids; or put none of them in and raise.

        Where a unique key is taken and the message that has it stays, its id is returned.
        """

    def take(self, consumer: str, *, count: int) -> Sequence[Delivery | Undecodable]:
        """Take up to `count` messages for a consumer, what goes first before what is ready, without waiting."""

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Sequence[Delivery | Undecodable]:
        """Take up to `count` ready messages for a consumer, waiting up to `block_ms` for the first.

        For when `take` brought nothing: whatever goes first is put where this looks while somebody waits here.
        """

    def rest(self) -> float:
        """Return for how many seconds it makes no sense to take or fetch, because of limits."""

    def admit(self, consumer: str, deliveries: Sequence[Delivery | Undecodable]) -> Sequence[Delivery | Undecodable]:
        """Return those of a consumer's deliveries that may run, when they came to it past take() and fetch().

        The others wait for a permit, and are no longer the consumer's.
        """

    def settle(self, consumer: str, settlements: Sequence[Settlement], *, also: Sequence[Command] = ()) -> list[str]:
        """Settle a batch in one round trip and return the ids of the messages the consumer no longer held.

        `also` are commands for the same trip, run before: results, counters.
        """

    def settle_and_take(
        self, consumer: str, settlements: Sequence[Settlement], *, count: int, also: Sequence[Command] = ()
    ) -> "Fetched":
        """Settle a batch and take the next messages, in one round trip and without waiting."""

    def promote(self, *, limit: int) -> "Promoted":
        """Make up to `limit` due messages ready, by the server's clock."""

    def cancel(self, named: str | bytes) -> CancelResult:
        """Remove a message that waits, by its id, or `u:` and its unique key, and say whether that was in time."""

    def reschedule(self, named: str, *, delay_ms: int | None = None, due_ms: int | None = None) -> CancelResult:
        """Let a delayed message be due at another time, and say whether that was in time."""

    def find(self, named: str) -> Lookup:
        """Look a message up that waits."""

    def purge(self, *, limit: int, place: Literal["", "ready", "delayed", "unhandled", "parked"] = "") -> int:
        """Delete about `limit` messages that are ready or wait, in one place or all; return how many, 0 at the end."""

    def held_by(self, consumer: str, *, limit: int) -> Sequence[Delivery | Undecodable]:
        """Return up to `limit` of the deliveries that a consumer holds, without counting or touching them."""

    def extend(self, consumer: str, receipts: Sequence[HomeEntry]) -> list[HomeEntry]:
        """Keep deliveries the consumer's for another visibility timeout; return those it no longer held."""

    def pass_on(self, consumer: str, new_owner: str, receipts: Sequence[HomeEntry]) -> list[HomeEntry]:
        """Pass deliveries on to another consumer, uncounted; return those the first no longer held."""

    def release_unhandled(self, names: Iterable[str], *, limit: int) -> int:
        """Make up to `limit` unhandled messages of each name ready, and return how many."""

    def depths(self) -> Depths:
        """Count the queue's messages by place."""


class Fetched(NamedTuple):
    """What a fetch brought."""

    deliveries: Sequence[Delivery | Undecodable]
    #: Ids of settled messages that the consumer no longer held.
    stale: Sequence[str]


class Promoted(NamedTuple):
    """What a promotion did."""

    moved: int
    #: Microseconds until the next message is due; None when nothing waits.
    next_us: int | None
    paused: bool
    unhandled: int
