"""The interface of all stores."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from mq_django.conf import QueueConfig
from mq_django.core.breakers import Counted, Hold, Results
from mq_django.core.keys import QueueKeys
from mq_django.core.message_format import entry_ms
from mq_django.core.message_streams import RunStream
from mq_django.core.messages import CancelResult, Delivery, Lookup, Outcome, Undecodable
from mq_django.core.publication import Publication
from mq_django.registry import Handler
from mq_django.transport.scripts import Command

#: The receipt of a delivery within its queue: `Delivery.stream` and `Delivery.entry`.
StreamEntry = tuple[int, bytes]


class Settlement(NamedTuple):
    """A delivery, or an entry that could not be decoded, with its outcome."""

    delivery: Delivery | Undecodable
    outcome: Outcome
    #: For a `Retry`: milliseconds until the next attempt.
    delay_ms: int = 0
    #: How long the handler ran, in microseconds; None when none ran.
    micros: int | None = None
    #: The delivery is a task whose result is stored: see `mq_django.stores.results`.
    keeps_result: bool = False
    #: For a `Retry`: it runs alone from then on, because it was running when its process died.
    alone: bool = False
    #: For a `Retry`: it counts as no attempt.
    uncharged: bool = False
    #: How many messages the call of the handler had. `micros` is the share of one.
    together: int = 1
    #: It has failed in a way that a breaker counts: the breaker decides whether this outcome holds.
    failure: "CountedFailure | None" = None


class CancelRequest(NamedTuple):
    """A request to cancel a message that does not wait any more."""

    #: When, in milliseconds since 1970, by the server's clock.
    asked_ms: float
    #: Its process may be replaced.
    force: bool

    def is_for(self, delivery: Delivery) -> bool:
        """Return whether it is about this message, and not about an earlier one with the same id."""
        # A message is not younger than its entry, whose time is the server's: the clock of its publisher may be fast.
        entered_ms = entry_ms(delivery.entry)
        return min(entered_ms, delivery.message.published_ms or entered_ms) <= self.asked_ms


class CountedFailure(NamedTuple):
    """A failure that a breaker counts."""

    #: The subject of the breaker: see `mq_django.core.breakers.subject_of()`.
    subject: str
    #: One line.
    error: str
    handler: Handler
    #: The exception that the handler has raised.
    raised: BaseException | None


class Also(NamedTuple):
    """What else the round trip does that settles a batch."""

    #: Run before it.
    commands: Sequence[Command] = ()
    #: Added to the counters if any delivery is settled, by what is counted and the name of the message.
    counts: Mapping[tuple[str, str], int] = MappingProxyType({})
    #: The runs among these deliveries that have streamed. Their last chunks are appended before.
    streamed: Sequence[tuple[Delivery, RunStream]] = ()


NOTHING = Also()


class Depths(NamedTuple):
    """The number of messages of a queue by state."""

    ready: int
    delayed: int
    unhandled: int
    pending: int
    dead: int
    #: Without those that are held: these wait until their hold ends.
    parked: int = 0

    @property
    def depth(self) -> int:
        """Return the number of messages that are ready, waiting or pending."""
        return self.ready + self.delayed + self.unhandled + self.parked + self.pending


class QueueAccess(Protocol):
    """What producers use of a queue: of one without partitions, its store."""

    def publish(self, publications: Sequence[Publication]) -> list[str]:
        """Publish the messages of one call, all or none of a partition, create their results, and return their ids.

        If a message keeps its unique key against a new one, its id is returned instead of the new one's.
        """

    def cancel(self, id_or_unique: str | bytes) -> CancelResult:
        """Cancel a waiting message, by its id or by `u:` + its unique key."""

    def cancel_running(self, id_or_unique: str | bytes, *, force: bool = False) -> CancelResult:
        """Cancel a waiting message; if it does not wait, ask its consumer to cancel it, with `force` by all means.

        Raises NotSupported for a group of a topic, and for a queue in RSMQ's format.
        """

    def reschedule(self, id_or_unique: str, *, delay_ms: int | None = None, due_ms: int | None = None) -> CancelResult:
        """Change the due time of a delayed message."""

    def find(self, id_or_unique: str) -> Lookup:
        """Find a waiting message."""


class Store(QueueAccess, Protocol):
    """The Redis form of a queue.

    A message is always in exactly one state: each method that moves one is one script. Methods raise `StoreError` and
    its subclasses, never errors of redis-py.
    """

    config: QueueConfig
    keys: QueueKeys

    def create_groups(self) -> None:
        """Create what a consumer reads from, if it does not exist."""

    def take(self, consumer: str, *, count: int) -> Sequence[Delivery | Undecodable]:
        """Take up to `count` messages for a consumer, urgent ones first, without waiting."""

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Sequence[Delivery | Undecodable]:
        """Take up to `count` ready messages for a consumer, waiting up to `block_ms` for the first.

        For use after `take` returned nothing: urgent messages reach consumers that wait here, too.
        """

    def rest(self) -> float:
        """Return for how many seconds limits prevent a take or fetch."""

    def admit(self, consumer: str, deliveries: Sequence[Delivery | Undecodable]) -> Sequence[Delivery | Undecodable]:
        """Return those deliveries that limits allow to run. For deliveries that did not come from take() or fetch().

        The others wait for a permit, and the consumer no longer holds them.
        """

    def line_up(self, consumer: str) -> bool:
        """Put ready messages into the lines of their keys, for a consumer that has no room; return whether more may be.

        With FAIR only a message in a line can get its turn.
        """

    def settle(self, consumer: str, settlements: Sequence[Settlement], *, also: Also = NOTHING) -> list[str]:
        """Settle a batch in one round trip and return the ids of the messages the consumer no longer held."""

    def settle_and_take(
        self, consumer: str, settlements: Sequence[Settlement], *, count: int, also: Also = NOTHING
    ) -> "Fetched":
        """Settle a batch and take the next messages, in one round trip and without waiting."""

    def promote(self, *, limit: int) -> "Promoted":
        """Make up to `limit` due messages ready, by the server's clock."""

    def due_command(self) -> Command:
        """Return the command that asks what promote() would find, and makes nothing ready."""

    def read_due(self, reply: Any) -> "Promoted | None":
        """Return what the reply to this command says; None: promote() has something to do."""

    def cancel_requests(self) -> Mapping[str, CancelRequest]:
        """Return what consumers were asked to cancel, by the ids of the messages."""

    def current_holds(self) -> Mapping[str, Hold]:
        """Return what is held, by subject."""

    def hold(self, hold: Hold) -> bool:
        """Hold messages, and return whether it was possible: False if the queue has as many holds as it can."""

    def count_results(self, rows: Sequence[Results]) -> list[Counted]:
        """Report to breakers what was handled and what has failed; return what became of each."""

    def end_hold(self, subject: str) -> bool:
        """End a hold, whose messages supervisors then make ready; return whether there was one."""

    def is_cancelled(self, delivery: Delivery) -> bool:
        """Return whether consumers were asked to cancel a message that they have got."""

    def held_by(self, consumer: str, *, limit: int) -> Sequence[Delivery | Undecodable]:
        """Return up to `limit` of the deliveries that a consumer holds. Counts no attempt and extends nothing."""

    def extend(self, consumer: str, receipts: Sequence[StreamEntry]) -> list[StreamEntry]:
        """Extend deliveries by another visibility timeout; return those that the consumer no longer held."""

    def append(self, consumer: str, runs: Sequence[tuple[Delivery, RunStream]]) -> None:
        """Append what runs have not sent to the streams of their messages, of each a part."""

    def reassign(self, consumer: str, new_owner: str, receipts: Sequence[StreamEntry]) -> list[StreamEntry]:
        """Reassign deliveries to another consumer; counts no attempt. Returns those that the first no longer held."""

    def release_unhandled(self, names: Iterable[str] | None, *, limit: int) -> int:
        """Make up to `limit` unhandled messages of each name ready, or with None of all names; return the number."""

    def depths(self) -> Depths:
        """Count the queue's messages by state."""


class Fetched(NamedTuple):
    """The result of settling and taking."""

    deliveries: Sequence[Delivery | Undecodable]
    #: Ids of settled messages that the consumer no longer held.
    stale: Sequence[str]


class Promoted(NamedTuple):
    """The result of a promotion."""

    moved: int
    #: Microseconds until the next message is due; None when none is delayed.
    next_us: int | None
    paused: bool
    unhandled: int
