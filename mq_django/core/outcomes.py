"""The outcomes of deliveries: values, which are settled later in batches."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import isasyncgen, iscoroutine, isgenerator
from typing import Any, Literal

from mq_django.core.clock import MAX_DELAY, Duration, read_duration
from mq_django.core.texts import MAX_TRACEBACK, class_name, repr_of, summary_of, text_of, traceback_of
from mq_django.errors import ConfigurationError, InvalidOutcomes


@dataclass(frozen=True, slots=True)
class Ack:
    """The message is handled. Any return value of a handler that is not an outcome has the same effect."""

    #: A task's return value as JSON text. It is stored for the queue's RESULT_TTL.
    result: Any = None


@dataclass(frozen=True, slots=True)
class StepEnd(Ack):
    """A step of a workflow has ended. Its message is acked, and the same script notes how, for its run."""

    #: "done", or "dropped": the step has not run, because its workflow had ended.
    event: str = "done"
    #: The JSON text of its return value, if another step takes it.
    value: bytes = b""
    #: The steps that it has added to its run, such as "8-1007".
    added: str = ""


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
    #: One line, which is logged, and shown in the admin with the traceback. For an exception or another value, its
    #: text. If it is empty and the Retry is raised inside `except`, the handled exception gives both.
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

    #: One line, which is logged, and shown in the admin with the traceback. For an exception or another value, its
    #: text.
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

    #: The subject of the hold, as `mq_django.core.holds.subject_of()` returns it.
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
KINDS: tuple[type[Outcome], ...] = (Ack, StepEnd, Retry, HandBack, Bury, SetAside, Park, Expire, Cancel)

#: How a message ends for good, and by which outcome.
Ending = Literal["handled", "expired", "buried", "cancelled"]
ENDINGS: Mapping[type, Ending] = {
    Ack: "handled",
    StepEnd: "handled",
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
    error, trace = text_of(outcome.error), text_of(outcome.traceback, slice(-MAX_TRACEBACK, None))
    if not error:
        # The one that a traceback shows: the cause, else the context.
        handled = outcome.__cause__ or (None if outcome.__suppress_context__ else outcome.__context__)
        if handled is not None:
            error, trace = summary_of(handled), trace or traceback_of(handled)
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
