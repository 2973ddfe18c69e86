"""Messages, deliveries, and their outcomes: values, which are settled later in batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from inspect import isasyncgen, iscoroutine, isgenerator
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from mq_django.core.clock import MAX_DELAY, Duration, read_duration
from mq_django.core.texts import MAX_TRACEBACK, class_name, repr_of, summary_of, text_of, traceback_of
from mq_django.errors import ConfigurationError, InvalidOutcomes, NotSupported

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Message(NamedTuple):
    """A message, as handlers, subscribers and signals get it. It never changes.

    A named tuple, because one is made for every delivery and a frozen dataclass takes four times as long to build.
    """

    id: str
    #: Selects the handler. CloudEvents calls it `type`.
    name: str
    #: JSON: None, bool, int, float, str, list, dict.
    data: Any
    queue: str
    #: The number of this delivery, from 1.
    attempt: int = 1
    #: The subject of the message, such as `order:7`. Limits by key use it.
    key: str | None = None
    #: When it was published, in milliseconds since 1970; None if unknown.
    published_ms: int | None = None
    #: It is not handled after this time, in milliseconds since 1970.
    expires_ms: int | None = None
    #: -100 to 100. A higher one runs earlier.
    priority: int = 0
    #: The unique key under which it was published.
    unique: str | None = None
    #: Further CloudEvents attributes: text by lower-case name.
    headers: Mapping[str, str] = NO_HEADERS
    #: Its unique key is taken for a time, or until it is handled, and not only while it waits.
    claims: bool = False


class Delivery(NamedTuple):
    """One delivery of a message to a consumer."""

    message: Message
    #: The stream that it was read from: `READY`, `URGENT` or `LOG` of `mq_django.core.keys`.
    stream: int
    #: The id of the stream entry.
    entry: bytes
    #: The JSON text of `data` as it was received.
    data_text: bytes
    #: It was running when a process died, so it runs alone.
    alone: bool = False
    #: Other messages were running there as well, so no attempt was charged. It is charged if it ends a process alone.
    suspect: bool = False
    #: The earlier attempts: see `mq_django.core.retries`.
    history: str = ""
    #: A moment before it was read, in seconds of the monotonic clock; 0 for what no consumer has read.
    read_at: float = 0.0
    #: The subject of the breaker that has let it through, to try whether it succeeds; "" of all others.
    probe: str = ""


class Undecodable(NamedTuple):
    """An entry that is not a valid message. It is buried with its bytes and the reason."""

    stream: int
    entry: bytes
    fields: list[bytes]
    reason: str


class CancelResult(StrEnum):
    """The result of cancelling or rescheduling one message. It is true when that was done."""

    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    #: Another message with the same unique key replaced it within the last day.
    REPLACED = "replaced"
    #: It is ready, is being handled, was handled, or never existed.
    NOT_WAITING = "not waiting"
    #: It does not wait, so its consumer was asked to cancel it: it does not start, and its running handler is
    #: interrupted within a second. It may have ended before, or never have existed.
    ASKED = "asked"
    #: Inside `atomic()`: it is tried at the commit, and the result is not known yet. bool() raises NotSupported.
    AT_COMMIT = "at commit"

    def __bool__(self) -> bool:
        if self is CancelResult.AT_COMMIT:
            raise NotSupported(
                "Inside atomic() a message is cancelled or rescheduled at the commit, and whether it still waits then "
                "is not known yet: give on_commit=False to do it at once, or compare with CancelResult.AT_COMMIT"
            )
        return self in (CancelResult.CANCELLED, CancelResult.RESCHEDULED)


class LookupState(StrEnum):
    """Where a message waits, if it waits."""

    DELAYED = "delayed"
    #: No consumer has a handler of its name.
    UNHANDLED = "unhandled"
    #: It is ready, behind messages that run first.
    PRIORITY = "priority"
    #: Over the limit of its key.
    PARKED = "parked"
    #: In the outbox of a database: no relay has published it yet.
    OUTBOX = "outbox"
    #: Another message with the same unique key replaced it within the last day.
    REPLACED = "replaced"
    #: It was discarded within the last week, because it had expired before it was handled.
    EXPIRED = "expired"
    #: It is ready, is being handled, was handled, or never existed.
    NOT_WAITING = "not waiting"


class Lookup(NamedTuple):
    """The result of looking up one message. It is true when the message waits."""

    #: Where it waits, or why it does not.
    state: LookupState
    #: None when it does not wait, or is not valid.
    message: Message | None = None
    #: For delayed messages: when it is due, in milliseconds since 1970 by Redis's clock.
    due_ms: int | None = None
    #: For expired messages: when it was discarded, in milliseconds since 1970 by Redis's clock.
    expired_ms: int | None = None

    def __bool__(self) -> bool:
        return self.state not in (LookupState.REPLACED, LookupState.EXPIRED, LookupState.NOT_WAITING)


@dataclass(frozen=True, slots=True)
class Ack:
    """The message is handled. Any return value of a handler that is not an outcome has the same effect."""

    #: A task's return value as JSON text. It is stored for the queue's RESULT_TTL.
    result: Any = None


@dataclass(frozen=True, slots=True)
class StepEnd(Ack):
    """A step of a workflow has ended. Its message is acked, and the same script notes how, for its run."""

    #: How the note names it.
    event: ClassVar[str] = "done"
    #: The JSON text of its return value, if another step takes it.
    value: bytes = b""
    #: The steps that it has added to its run, such as "8-1007".
    added: str = ""


@dataclass(frozen=True, slots=True)
class StepDrop(StepEnd):
    """A step of a workflow has not run, because its run had ended. Its message counts as cancelled."""

    event: ClassVar[str] = "dropped"
    #: One line, as that of Cancel.
    error: ClassVar[str] = "Its run ended before it started"


# Not frozen, because `contextlib` sets the traceback of what is raised.
@dataclass(slots=True, unsafe_hash=True)
class Retry(Exception):
    """Handle the message again later; this attempt counts.

    A handler may return a Retry, or raise it. When it raises another exception, its `RetryPolicy` chooses the delay. A
    delay below zero counts as zero. Raises ConfigurationError if `delay` is not a duration, or is longer than 3660
    days.

        @handler("invoices", "paid")
        def send_receipt(message):
            if not is_booked(message.data["invoice_id"]):
                return Retry(delay=30, error="not booked yet")
    """

    #: A timedelta or seconds; None: the retry policy decides.
    delay: Duration | None = None
    #: One line, which is logged, and shown in the admin with the traceback. An exception gives both, also the one that
    #: is handled where a Retry without an error is raised. Another value gives its text.
    error: str = ""
    traceback: str = ""
    #: Its partner is down: it counts for the breaker of its handler or queue.
    trips: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.delay is not None:
            try:
                too_long = read_duration(self.delay) > MAX_DELAY
            except TypeError as error:
                raise ConfigurationError(f"Retry.delay must be {error}, not {repr_of(self.delay)}") from error
            if too_long:
                raise ConfigurationError(f"Retry.delay must be up to {MAX_DELAY.days} days, not {repr_of(self.delay)}")


@dataclass(frozen=True, slots=True)
class HandBack:
    """The message goes back to its place in the queue. This attempt does not count."""

    #: Its supervisor died, and it is unknown which messages were running. When that happens to a message twice, it
    #: runs alone.
    lost: bool = False
    #: Its process died while it and others were running. It runs alone from then on. If it ends another process, both
    #: attempts are charged.
    suspect: bool = False


@dataclass(slots=True, unsafe_hash=True)
class Bury(Exception):
    """Do not handle the message again: move it to the dead-letter queue. A handler may return a Bury, or raise it.

        @handler("invoices", "paid")
        def send_receipt(message):
            if not Invoice.objects.filter(pk=message.data["invoice_id"]).exists():
                return Bury("no such invoice")

    An operator can inspect it there, and redrive it.
    """

    #: One line, which is logged, and shown in the admin with the traceback. An exception gives both. Another value
    #: gives its text.
    error: str = ""
    traceback: str = ""
    #: Why, for middleware and the receivers of signals: `error` if a handler asks for it. mq_django buries with
    #: `attempts`, `crashed`, `expired`, `uncertain` or `undecodable`.
    reason: str = field(default="error", kw_only=True)


@dataclass(frozen=True, slots=True)
class SetAside:
    """No handler of its name is known here. The message waits in `unhandled`, and the attempt does not count."""


@dataclass(frozen=True, slots=True)
class Park:
    """The message is held: it waits in `parked` until its hold ends, and the attempt does not count."""

    #: The subject of the hold, as `mq_django.core.breakers.subject_of()` returns it.
    subject: str
    #: Attempts since then have failed because of a breaker, and are not charged either; ms since 1970.
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Expire:
    """The message has expired. It is counted and deleted, and its id is kept for a week."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The message was cancelled while it ran, or before it started. It is deleted, and the attempt does not count."""

    #: One line: the text of the error in the result of a task.
    error: str = "Cancelled while it ran"


Outcome = Ack | Retry | HandBack | Bury | SetAside | Park | Expire | Cancel

#: The classes of all outcomes. Each table by class must have all of them: see tests/test_outcome_kinds.py.
KINDS: tuple[type[Outcome], ...] = (Ack, StepEnd, StepDrop, Retry, HandBack, Bury, SetAside, Park, Expire, Cancel)

#: How a message ends for good, and by which outcome.
Ending = Literal["handled", "expired", "buried", "cancelled"]
ENDINGS: Mapping[type, Ending] = {
    Ack: "handled",
    StepEnd: "handled",
    StepDrop: "cancelled",
    Expire: "expired",
    Bury: "buried",
    Cancel: "cancelled",
}

#: The most frequent outcome, made once.
ACK = Ack()
#: The outcome of an interrupted handler. Middleware returns it as it is.
CANCEL = Cancel()
#: The outcome of a handler that could not go on here. Middleware returns it as it is.
POSTPONED = HandBack()


def outcome_of(returned: object, *, keeps_result: bool = False) -> Outcome:
    """Return the outcome of a handler by what it has returned.

    Args:
        returned: an outcome, or anything else: then the message is handled.
        keeps_result: whether a value that is no outcome is kept as the result of a task.

    Raises:
        InvalidOutcomes: it is something that has not run, such as a coroutine, or the class of an outcome.
    """
    if returned is None:
        return ACK
    if isinstance(returned, Ack):
        return returned
    if isinstance(returned, Retry | Bury):
        return with_texts(returned)
    refuse_unfinished(returned)
    return Ack(returned) if keeps_result else ACK


def with_texts(outcome: Retry | Bury) -> Retry | Bury:
    """Return an outcome with texts: a handler may return Bury(error), or raise Retry() inside `except`."""
    given: object = outcome.error
    # The one that a traceback shows: the cause, else the context.
    handled = outcome.__cause__ or (None if outcome.__suppress_context__ else outcome.__context__)
    cause = given if isinstance(given, BaseException) else handled
    error, trace = text_of(given), text_of(outcome.traceback, slice(-MAX_TRACEBACK, None))
    if cause is not None and (cause is given or not error):
        error, trace = summary_of(cause), trace or traceback_of(cause)
    return replace(outcome, error=error, traceback=trace)


def refuse_unfinished(returned: object) -> None:
    """Refuse a return value whose handler has not run to its end, or has surely meant something else.

    Raises:
        InvalidOutcomes: it is a coroutine, a generator, another awaitable, a list of them, or the class of an outcome.
    """
    if isinstance(returned, type) and issubclass(returned, Ack | Retry | Bury):
        raise InvalidOutcomes(
            f"The handler has returned the class {class_name(returned)}: return {class_name(returned)}()"
        )
    # In a list look only at the first: a comprehension makes all items alike.
    first = returned[0] if isinstance(returned, list | tuple) and returned else returned
    if iscoroutine(first) or isgenerator(first):
        first.close()
    elif not isasyncgen(first) and not hasattr(type(first), "__await__"):
        return
    raise InvalidOutcomes(
        f"The handler has returned {class_name(type(first))}, which has not run: it must be an `async def` function "
        "itself, or a function that returns when its work is done"
    )


def outcomes_of(returned: object, count: int) -> Sequence[Outcome]:
    """Return the outcome of each of `count` messages, in their order.

    Args:
        returned: None: all are handled. An outcome is that of all. A list or tuple has an outcome, or None, for each.
        count: how many messages the handler has got.

    Raises:
        InvalidOutcomes: it is something else.
    """
    if returned is None:
        return [ACK] * count
    if isinstance(returned, Ack | Retry | Bury):
        return [_plain(returned)] * count
    refuse_unfinished(returned)
    if not isinstance(returned, list | tuple):
        raise InvalidOutcomes(
            "A handler of batches must return None, an outcome, or a list with an outcome or None for each message, "
            f"not {repr_of(returned, 200)}"
        )
    if len(returned) != count:
        raise InvalidOutcomes(f"A handler has returned {len(returned)} outcomes for {count} messages")
    for at, outcome in enumerate(returned):
        if outcome is not None and not isinstance(outcome, Ack | Retry | Bury):
            raise InvalidOutcomes(f"Outcome {at} must be None, Ack, Retry or Bury, not {repr_of(outcome, 200)}")
    return [ACK if outcome is None else _plain(outcome) for outcome in returned]


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Return one outcome for middleware: the first burial, else the first retry, else an ack."""
    for kind in (Bury, Retry):
        for outcome in outcomes:
            if isinstance(outcome, kind):
                return outcome
    return ACK


def _plain(outcome: Ack | Retry | Bury) -> Outcome:
    """Return an outcome with texts: a handler may return Bury(error). A value of an Ack is not stored."""
    return ACK if isinstance(outcome, Ack) else with_texts(outcome)


# Which messages of a batch are tried together next, when the handler has raised for some of them.
#
# A call that fails is repeated with each half of its messages, until the failing message is alone. As long as no call
# has succeeded, only one of two failed halves is split further. If that ends with single messages that fail, it is
# assumed that all fail for the same reason, and the others are not tried one by one.

Item = TypeVar("Item")
Failure = TypeVar("Failure")


class BatchBisection(Generic[Item, Failure]):
    """Decides what to call next, by how the calls before have ended.

    Args:
        items: of the first call.
        may_be_common: returns whether it may be assumed that all fail for the same reason. If not, each message that
            fails is tried alone.
    """

    def __init__(self, items: Sequence[Item], *, may_be_common: Callable[[], bool]) -> None:
        self._may_be_common = may_be_common
        #: How many groups were called so far.
        self.calls = 0
        #: The groups to call next.
        self._next: list[Sequence[Item]] = [items]
        #: Groups of several that have failed and are not split, each with its failure; the last one is the smallest.
        self._failed: list[tuple[Sequence[Item], Failure]] = []
        #: Messages that have failed alone, and not yet been taken.
        self._alone: list[tuple[Item, Failure]] = []
        #: Whether a message that fails alone is the cause; it is not if all fail for the same reason.
        self._blames = len(items) == 1
        self._is_common = False

    def next_group(self) -> Sequence[Item]:
        """Return what to call next; empty: nothing is left to call."""
        self.calls += 1
        if self._next:
            return self._next.pop(0)
        if len(self._alone) > 1 and not self._blames:
            self._is_common = self._may_be_common()
            self._blames = not self._is_common
        if self._is_common:
            return ()
        if not self._failed:
            self._blames = True
            return ()
        group, _ = self._failed.pop()
        middle = len(group) // 2
        self._next.append(group[middle:])
        return group[:middle]

    def succeeded(self) -> None:
        """Note that a call has not failed."""
        self._blames = True

    def failed(self, group: Sequence[Item], failure: Failure) -> None:
        """Note that a call has failed, which had these messages."""
        if len(group) > 1:
            self._failed.append((group, failure))
        else:
            self._alone += [(item, failure) for item in group]

    def take_alone(self) -> list[tuple[Item, Failure]]:
        """Return the messages that have failed alone since the last call, once it is known that they are the cause."""
        if not self._blames:
            return []
        alone, self._alone = self._alone, []
        return alone

    def take_common(self) -> list[tuple[Item, Failure]]:
        """Return the messages that fail for a common reason, when nothing is left to call."""
        if not self._is_common:
            return []
        found = [(item, failure) for group, failure in self._failed for item in group] + self._alone
        self._failed, self._alone = [], []
        return found

    def take_rest(self) -> list[Item]:
        """Return the messages that have neither ended nor failed alone, for a process that stops."""
        rest = [item for group in self._next for item in group]
        rest += [item for group, _ in self._failed for item in group]
        rest += [item for item, _ in self._alone]
        self._next, self._failed, self._alone = [], [], []
        return rest
