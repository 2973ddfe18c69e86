"""Report the progress of the running handler."""

from contextvars import ContextVar
from dataclasses import replace

from mq_django.core.reports import Number, ReportSlot, checked
from mq_django.errors import NotInHandler

#: The slot of the handler that runs in this context: in its thread or coroutine, and in what `sync_to_async` runs.
running: ContextVar[ReportSlot | None] = ContextVar("mq_django_running", default=None)


class Interrupted(BaseException):
    """Ends a handler between two items of `resumable()`, because its process stops.

    It is no Exception, so that a handler that catches those does not go on.
    """


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
        note: what the handler does now: up to 500 characters.

    Raises:
        NotInHandler: no handler runs in this context. A thread that a handler starts itself needs a copy of the
            handler's context.
        InvalidProgress: a value cannot be reported.
    """
    slot = current_slot("progress()")
    value = checked(done, total, note)
    slot.open().set_progress(replace(value, attempt=slot.delivery.message.attempt))


def current_slot(what: str) -> ReportSlot:
    """Return the slot of the running handler.

    Raises:
        NotInHandler: no handler runs in this context; the error names `what` was called.
    """
    slot = running.get()
    if slot is None:
        raise NotInHandler(f"{what} works only while a consumer runs a handler, and in its context")
    return slot
