"""What a running handler reports: its progress, its position in a queryset, and what it streams."""

import threading
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from mq_django.core import clock
from mq_django.core.flow_graph import StepRecord
from mq_django.core.ids import new_id
from mq_django.core.jsontext import LAST_MS, dumps, evaluated, object_in, whole
from mq_django.core.message_streams import RunStream, encoded, encoded_line
from mq_django.core.messages import Delivery
from mq_django.core.queue_configs import QueueConfig
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidMessage, InvalidProgress, NotInHandler, NotSupported

#: The most characters of a note.
MAX_NOTE = 500
#: The largest number of a report. Larger ones are not whole in JSON of other languages.
MAX_NUMBER = 2**53

Number = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a handler is, as it has reported last."""

    #: How much is done, from 0.
    done: Number
    #: How much there is to do; None if that is unknown.
    total: Number | None = None
    #: A text for people that says what it does now.
    note: str = ""
    #: The number of the attempt that has reported.
    attempt: int = 1
    #: When it has reported, in ms since 1970 by the consumer's clock.
    at_ms: int | None = None

    @property
    def fraction(self) -> float | None:
        """Return the part that is done, from 0 to 1; None if the total is unknown or 0."""
        return min(1.0, self.done / self.total) if self.total else None

    @property
    def at(self) -> datetime | None:
        """Return when it has reported, as an aware datetime in UTC; None if unknown."""
        return None if self.at_ms is None else datetime.fromtimestamp(self.at_ms / 1000, UTC)


def checked(done: object, total: object, note: object) -> Progress:
    """Return the progress with these values.

    Raises:
        InvalidProgress: a number is not finite, below 0 or over 2**53, or the note is not text of up to 500 characters.
    """
    if not _is_number(done):
        raise InvalidProgress(f"done must be a finite number from 0 to 2**53, not {_shown(done)}")
    if total is not None and not _is_number(total):
        raise InvalidProgress(f"total must be None or a finite number from 0 to 2**53, not {_shown(total)}")
    note = evaluated(note)
    if not isinstance(note, str) or len(note) > MAX_NOTE:
        raise InvalidProgress(f"note must be text of up to {MAX_NOTE} characters, not {repr_of(note)}")
    try:
        dumps(note)
    except InvalidMessage as error:
        raise InvalidProgress(f"note is not text that JSON can hold: {repr_of(note)}") from error
    return Progress(done=done, total=total, note=note, at_ms=clock.now_ms())  # type: ignore[arg-type] # checked


def _is_number(value: object) -> bool:
    # NaN is in no order.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER


def _shown(value: object) -> str:
    # Python makes no text of an integer with thousands of digits.
    return "a larger integer" if isinstance(value, int) and abs(value) > MAX_NUMBER else f"{repr_of(value)}"


def progress_text(progress: Progress) -> bytes:
    """Return progress as the JSON text that is stored."""
    return dumps(
        {
            "done": progress.done,
            "total": progress.total,
            "note": progress.note,
            "attempt": progress.attempt,
            "at": progress.at_ms,
        }
    )


def read_progress(text: object) -> Progress | None:
    """Return the progress in stored text, or None if it is not valid: any program may have written it."""
    found = object_in(text)
    done, total, note = found.get("done"), found.get("total"), found.get("note")
    if not _is_number(done) or not (total is None or _is_number(total)):
        return None
    return Progress(
        done=done,  # type: ignore[arg-type] # checked
        total=total,
        note=note[:MAX_NOTE] if isinstance(note, str) else "",
        attempt=whole(found.get("attempt")) or 1,
        at_ms=whole(found.get("at"), LAST_MS),
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Report:
    """What one run of a handler reports. The handler's threads write it; another thread saves it."""

    delivery: Delivery
    config: QueueConfig
    #: Set when the process stops.
    stopping: threading.Event
    #: Identifies the run, so that an earlier run of the message does not overwrite what a later one reports.
    run: str = field(default_factory=new_id)
    progress: Progress | None = None
    #: The last position by the name of a queryset.
    positions: dict[str, str] = field(default_factory=dict)
    #: The names of the querysets that this run iterates over, or has iterated over.
    names: set[str] = field(default_factory=set)
    #: The key in Redis is this run's.
    claimed: bool = False
    #: Something is not saved yet.
    changed: bool = False
    #: A later run of the message has the key: nothing more is saved.
    lost: bool = False
    #: For the threads of the handler.
    lock: Any = field(default_factory=threading.Lock)
    #: Its chunks; None if it has not streamed.
    stream: RunStream | None = None
    #: Called when there is a chunk to send.
    wake: Callable[[], object] = bool

    def set_progress(self, progress: Progress) -> None:
        """Set the progress, which is saved later."""
        self.progress = progress
        self.changed = True

    def set_position(self, name: str, position: str) -> None:
        """Set the position of a queryset, which is saved later."""
        self.positions[name] = position
        self.changed = True

    @property
    def is_empty(self) -> bool:
        """Return whether there is neither progress nor a position: the run may have streamed."""
        return self.progress is None and not self.positions and not self.claimed

    def open_stream(self) -> RunStream:
        """Return what the run streams.

        Raises:
            NotSupported: its queue keeps no streams.
        """
        limits = self.config.stream
        if limits is None:
            raise NotSupported(f"Queue {self.config.public_name!r} keeps no streams: set STREAM in its settings")
        with self.lock:
            if self.stream is None:
                self.stream = RunStream(limits, self.wake)
            return self.stream


class HandlerRun:
    """One run of a handler. Most handlers report nothing, so the report is made when it is used.

    Args:
        delivery: that the handler runs for.
        opened: makes its report.
    """

    # One is made for every delivery.
    __slots__ = ("_opened", "delivery", "is_over", "is_undone", "report")

    def __init__(self, delivery: Delivery, opened: "Callable[[HandlerRun], Report]") -> None:
        self.delivery = delivery
        self._opened = opened
        self.report: Report | None = None
        #: The handler has ended. A thread that it has started may still run.
        self.is_over = False
        #: Changes in a database that the handler had not committed were rolled back.
        self.is_undone = False

    def open(self) -> Report:
        """Return the report of the run.

        Raises:
            NotInHandler: the handler has ended.
        """
        if self.is_over:
            raise NotInHandler(f"The handler of message {self.delivery.message.id} has ended")
        return self.report or self._opened(self)


# Report the progress of the running handler.

#: The run of the handler of this context: in its thread or coroutine, and in what `sync_to_async` runs.
running: ContextVar[HandlerRun | None] = ContextVar("mq_django_running", default=None)


def progress(done: Number, total: Number | None = None, note: str = "") -> None:
    """Report how far the running handler is.

    This only sets memory, so it can be called for each item. Its consumer saves the latest report at most once a
    second. `Queue.progress()`, `get_progress()`, the command `mq` and the admin show it.

        @handler("imports", "prices")
        def import_prices(message):
            for number, line in enumerate(lines, 1):
                apply(line)
                progress(number, len(lines), note=line.name)

    Args:
        done: how much is done: a finite number from 0 to 2**53. It may be more than the total, which then counts as
            reached.
        total: how much there is to do, as a number of the same unit; None if that is unknown.
        note: what the handler does now: text of up to 500 characters, which may be lazy.

    Raises:
        NotInHandler: no handler runs in this context. A thread that a handler starts itself needs a copy of the
            handler's context.
        InvalidProgress: a value cannot be reported.
    """
    handler_run = current_run("progress()")
    value = checked(done, total, note)
    handler_run.open().set_progress(replace(value, attempt=handler_run.delivery.message.attempt))


def current_run(what: str) -> HandlerRun:
    """Return the run of the running handler.

    Raises:
        NotInHandler: no handler runs in this context; the error names `what` was called.
    """
    handler_run = running.get()
    if handler_run is None:
        raise NotInHandler(f"{what} works only while a consumer runs a handler, and in its context")
    return handler_run


# Stream from the running handler to its readers.


class Streaming:
    """Streams from the running handler: see `stream`."""

    def __call__(self, chunk: object) -> None:
        """Send a chunk to those who read the stream of the running handler's message.

        This only sets memory, and never waits, so it can be called for each word, also in coroutines. Its consumer
        sends the chunks within milliseconds, and the last ones before the message counts as handled.

            @task(queue="answers")
            def answer(question):
                for token in model.generate(question):
                    stream(token)

        Args:
            chunk: text, also lazy, bytes, or anything that has a form in JSON: up to 64 KiB as it is stored, where
                bytes are base64.

        Raises:
            NotInHandler: no handler runs in this context, or it has several messages.
            NotSupported: the queue has no STREAM in its settings.
            InvalidChunk: it cannot be sent.
        """
        stream = self._open()
        stream.add(*encoded(chunk, stream.limits))

    def log(self, line: str) -> None:
        """Send a line for people, such as "fetched 20 of 300": see `stream()`.

        Args:
            line: up to 1,000 characters.

        Raises:
            NotInHandler: no handler runs in this context, or it has several messages.
            NotSupported: the queue has no STREAM in its settings.
            InvalidChunk: it is no text, or too long.
        """
        self._open().add("log", encoded_line(line))

    @staticmethod
    def _open() -> RunStream:
        return current_run("stream()").open().open_stream()


#: Streams from the running handler: `stream(chunk)`, `stream.log(line)`.
stream = Streaming()


# Whether the present code runs inside a handler, in a thread or on an event loop.

_runs_handlers: ContextVar[bool] = ContextVar("mq_django_runs_handlers", default=False)


def enter() -> None:
    """Note that all that runs in this context, and in copies of it, is part of a handler.

    A slot does this once, because each handler runs in a copy of its context: so it costs nothing a message.
    """
    _runs_handlers.set(True)


def is_in_handler() -> bool:
    """Return whether a handler runs here. One that starts a thread of its own is not known in it."""
    return _runs_handlers.get()


# The end of a running handler that is cancelled: what it can ask, and how it guards what must not be interrupted.


class Interruptible(Protocol):
    """A thread or a coroutine in which a handler runs."""

    @property
    def cancelled(self) -> bool:
        """Return whether somebody has cancelled what runs here."""

    def guard(self) -> None:
        """Begin a block in which the handler is not interrupted. Blocks may be nested."""

    def unguard(self) -> None:
        """End a block; raise in the handler if it was cancelled meanwhile and this is the outermost block."""

    def seal(self) -> None:
        """Let nothing interrupt the handler from now on, not even its timeout."""


#: The thread or coroutine in which the current code runs. Set once for each, not for each message.
interruptible: ContextVar[Interruptible | None] = ContextVar("mq_django_interruptible", default=None)


def is_cancelled() -> bool:
    """Return whether the running handler was cancelled: `Queue.cancel()` with `running=True`, the admin or `mq purge`.

    It reads memory, so that a loop may call it at each step. False outside of handlers.

        for row in rows:
            if mq_django.is_cancelled():
                return
    """
    here = interruptible.get()
    return here is not None and here.cancelled


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay the interrupt of a cancelled handler until the end of the block.

    For steps of which all or none must happen, such as a call of a payment provider and the note that it was made. It
    delays neither a timeout nor the end of the process. Outside of handlers it has no effect.

        with mq_django.uninterrupted():
            reference = provider.charge(order)
            order.paid_by(reference)

    Raises:
        HandlerCancelled: at the end of the block, when the handler was cancelled meanwhile. In a coroutine function it
            is asyncio.CancelledError.
    """
    here = interruptible.get()
    if here is None:
        yield
        return
    here.guard()
    try:
        yield
    finally:
        here.unguard()


def seal() -> None:
    """Let nothing interrupt the running handler from now on. Outside of handlers it has no effect.

    What has interrupted it before is raised here.
    """
    here = interruptible.get()
    if here is not None:
        here.seal()


# The step of a workflow that runs now, for code that adds steps to its run.

#: Returns what is written for steps. The first has the number `first`.
Records = Callable[[int], Sequence[StepRecord]]


@dataclass(slots=True)
class RunningStep:
    """A step while its task runs."""

    run_id: str
    number: int
    #: The bytes of all values of the run when it began.
    value_bytes: int = 0
    #: The flow of the steps that it adds, and their records; None for none.
    flow: Sized | None = None
    records: Records | None = None


#: None outside a step.
running_step: ContextVar[RunningStep | None] = ContextVar("mq_django_running_step", default=None)
