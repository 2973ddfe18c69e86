"""What a running handler reports: its progress, and its position in a queryset."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mq_django.core import clock
from mq_django.core.exceptions import repr_of
from mq_django.core.ids import new_id
from mq_django.core.jsontext import dumps, loads
from mq_django.core.messages import Delivery
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.queue_configs import QueueConfig
from mq_django.errors import DecodeError, InvalidMessage, InvalidProgress, NotInHandler

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
    #: What it does now, as text for people.
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
    try:
        found = loads(text) if isinstance(text, bytes) else None
    except DecodeError:
        return None
    if not isinstance(found, dict):
        return None
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

    def set_progress(self, progress: Progress) -> None:
        """Set the progress, which is saved later."""
        self.progress = progress
        self.changed = True

    def set_position(self, name: str, position: str) -> None:
        """Set the position of a queryset, which is saved later."""
        self.positions[name] = position
        self.changed = True


class ReportSlot:
    """The place for the report of one run of a handler. Most handlers do not report, so the report is made when used.

    Args:
        delivery: that the handler runs for.
        opened: makes its report.
    """

    # Of the class until they change: one slot is made for every delivery.
    report: Report | None = None
    #: The handler has ended. A thread that it has started may still run.
    is_over = False
    #: Changes in a database that the handler had not committed were rolled back.
    is_undone = False

    def __init__(self, delivery: Delivery, opened: "Callable[[ReportSlot], Report]") -> None:
        self.delivery = delivery
        self._opened = opened

    def open(self) -> Report:
        """Return the report of the run.

        Raises:
            NotInHandler: the handler has ended.
        """
        if self.is_over:
            raise NotInHandler(f"The handler of message {self.delivery.message.id} has ended")
        return self.report or self._opened(self)
