"""Iterate over a queryset, so that a handler that is stopped in the middle goes on where it was."""

from collections.abc import AsyncIterator, Iterator
from datetime import date
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import connections
from django.db.models import Field, Model, QuerySet
from django.db.models.query import ModelIterable

from mq_django.core.handler_options import current_database
from mq_django.core.logs import get_logger
from mq_django.core.running_handler import Report, current_run
from mq_django.core.texts import repr_of
from mq_django.errors import Interrupted, NotResumable
from mq_django.stores.results import MAX_POSITION, begin
from mq_django.transport.connections import open_transport

logger = get_logger(__name__)

M = TypeVar("M", bound=Model)

#: Rows of one query, unless a handler sets another number, and at most.
CHUNK, MAX_CHUNK = 500, 10_000
#: The most querysets of one run, and the most characters of the name of one.
MAX_NAMES, MAX_NAME = 16, 100


def resumable(queryset: QuerySet[M], by: str = "pk", *, name: str | None = None, chunk: int = CHUNK) -> "Resumable[M]":
    """Return an iterator over a queryset that goes on after the last item when its message is delivered again.

    The rows come in the order of the field `by`. The position is saved each second, and at the end of the attempt.
    When the consumer stops, for example because of a deploy, the iterator ends the handler between two items. The
    message goes back to the queue without a counted attempt, and another consumer goes on after the last item. After a
    process was killed, the items of up to about a second are repeated.

        @handler("imports", "prices")
        def import_prices(message):
            for line in resumable(PriceLine.objects.filter(list_id=message.data["list"])):
                line.apply()

    Use `async for` in a coroutine. An item counts as handled when the next one is asked for, so its changes must be
    committed by then: the loop cannot be inside `atomic()`, but its body can.

    Args:
        queryset: of model instances, not sliced, combined, ordered or distinct. Filters must select the same rows in
            each attempt; a row that no longer matches is left out.
        by: a unique field without NULL, whose values are integers, text, UUIDs, dates, datetimes or decimals.
        name: distinguishes the querysets of one handler: 1 to 100 characters; None: the model and the field.
        chunk: the rows of one query, from 1 to 10,000. Each chunk is in memory at once.

    Returns:
        An iterator for `for` and `async for`, which can be used once.

    Raises:
        NotInHandler: no handler runs in this context.
        NotResumable: the queryset, the field, the name or the chunk cannot be used; or, when the iteration begins, a
            transaction is open.
        StoreError: when the iteration begins, the saved position cannot be read.
    """
    report = current_run("resumable()").open()
    field = _checked(queryset, by)
    if not _is_size(chunk):
        raise NotResumable(f"chunk must be an integer from 1 to {MAX_CHUNK:,}, not {repr_of(chunk)}")
    name = f"{queryset.model._meta.label_lower}.{field.name}" if name is None else name  # noqa: SLF001 - Django's API
    if not _is_name(name):
        raise NotResumable(f"name must be 1 to {MAX_NAME} printable characters, not {repr_of(name, 200)}")
    with report.lock:
        if name in report.names:
            raise NotResumable(f"This handler iterates over {name!r} already: give each queryset a name=")
        if len(report.names) >= MAX_NAMES:
            raise NotResumable(f"A handler can iterate over up to {MAX_NAMES} querysets")
        report.names.add(name)
    return Resumable(queryset, field, name, chunk, report)


class Resumable(Generic[M]):
    """The iterator of `resumable()`."""

    def __init__(self, queryset: QuerySet[M], field: "Field[Any, Any]", name: str, chunk: int, report: Report) -> None:
        self._queryset = queryset.order_by(field.attname)
        self._field = field
        self._name = name
        self._chunk = chunk
        self._report = report

    def __iter__(self) -> Iterator[M]:
        """Yield the rows after the saved position."""
        last = self._begin()
        while True:
            rows = list(self._after(last))
            for row in rows:
                self._interrupt()
                # Before the loop may change or delete the row: then a changed value would skip rows.
                value = getattr(row, self._field.attname)
                yield row
                last = self._note(value)
            if len(rows) < self._chunk:
                return

    async def __aiter__(self) -> AsyncIterator[M]:
        """Yield the rows after the saved position."""
        last = await sync_to_async(self._begin)()
        while True:
            rows = [row async for row in self._after(last)]
            for row in rows:
                self._interrupt()
                # Before the loop may change or delete the row: then a changed value would skip rows.
                value = getattr(row, self._field.attname)
                yield row
                last = self._note(value)
            if len(rows) < self._chunk:
                return

    def _begin(self) -> Any:
        """Return the value of the field in the last handled row, or None."""
        _check_no_transaction(self._queryset.db)
        report = self._report
        found = begin(open_transport("produce", report.config.connection), report.config, report)
        with report.lock:
            report.positions = {**found, **report.positions}
        position = report.positions.get(self._name)
        if position is None:
            return None
        try:
            return self._field.to_python(position)
        except (ValidationError, ValueError, TypeError):
            text = "The saved position of %s for message %s is not valid: it begins anew"
            logger.warning(text, self._name, report.delivery.message.id)
            return None

    def _after(self, last: Any) -> QuerySet[M]:
        rows = self._queryset if last is None else self._queryset.filter(**{f"{self._field.attname}__gt": last})
        return rows[: self._chunk]

    def _interrupt(self) -> None:
        if self._report.stopping.is_set():
            raise Interrupted

    def _note(self, value: Any) -> Any:
        report, text = self._report, _position(value)
        if text is None:
            raise NotResumable(f"{self._name} has a value that cannot be a position: {repr_of(value)}")
        with report.lock:
            report.set_position(self._name, text)
        return value


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_CHUNK


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def _checked(queryset: object, by: object) -> "Field[Any, Any]":
    """Return the field to order by.

    Raises:
        NotResumable: the queryset cannot be iterated over in that order.
    """
    if not isinstance(queryset, QuerySet):
        raise NotResumable(f"resumable() takes a queryset, not {repr_of(queryset)}")
    query = queryset.query
    for found, what in (
        (query.is_sliced, "is sliced"),
        (query.combinator, "is a union, intersection or difference"),
        (query.distinct, "is distinct"),
        (query.order_by or query.extra_order_by or not query.standard_ordering, "has an order of its own"),
        (query.select_for_update, "locks its rows, which needs a transaction"),
        (not issubclass(queryset._iterable_class, ModelIterable), "has no model instances"),  # noqa: SLF001
    ):
        if found:
            raise NotResumable(f"resumable() cannot go on in a queryset that {what}")
    meta = queryset.model._meta  # noqa: SLF001 - Django's API
    try:
        field = meta.pk if by == "pk" else meta.get_field(by)
    except (FieldDoesNotExist, TypeError, AttributeError) as error:
        raise NotResumable(f"{meta.label} has no field {repr_of(by)}") from error
    # Before Django 6.1 a ManyToManyField has the name of a column, and no column.
    if not isinstance(field, Field) or field.many_to_many or not field.concrete or field.column is None:
        raise NotResumable(f"{meta.label} cannot be ordered by {repr_of(by)}: it is not one column")
    if not field.unique or field.null:
        raise NotResumable(f"{meta.label}.{field.name} must be unique and not null, so that a position is one row")
    return field


def _check_no_transaction(alias: str) -> None:
    """Refuse to begin in a transaction, whose rollback would undo items that count as handled."""
    blocks = connections[alias].atomic_blocks
    # As Django does for atomic(durable=True): a test may run its handlers in a transaction.
    if current_database() is not None:
        raise NotResumable(
            "resumable() cannot be used in a handler with @exactly_once, whose transaction ends with it: at an "
            "interrupt all items would be rolled back"
        )
    if blocks and not getattr(blocks[-1], "_from_testcase", False):
        raise NotResumable(
            "resumable() cannot begin inside atomic(): at an interrupt the handled items would be rolled back. Use "
            "atomic() for each item"
        )


def _position(value: object) -> str | None:
    """Return a value of the field as text; None if it has no form as text."""
    if isinstance(value, bool) or not isinstance(value, int | str | UUID | date | Decimal):
        return None
    text = value.isoformat() if isinstance(value, date) else str(value)
    return text if len(text) <= MAX_POSITION else None
