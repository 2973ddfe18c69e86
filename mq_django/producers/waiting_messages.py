"""Cancel, reschedule and find the waiting messages of a queue."""

from collections.abc import Callable
from datetime import datetime

from django.utils.module_loading import import_string

from mq_django.core.delivery_options import DeliveryOptions
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.lookup import CancelResult, Lookup, Place
from mq_django.core.publication import Publication
from mq_django.core.publish_checks import check_text, due
from mq_django.core.times import Duration
from mq_django.errors import InvalidMessage, NotSupported
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.progress_reading import ProgressReader
from mq_django.producers.sinks import RedisSink, after_commit, warn_of_other_transactions
from mq_django.stores import open_access
from mq_django.stores.base import QueueAccess
from mq_django.transport.connections import open_wire

#: Loaded when they are needed: they need the models, which this module is imported before.
FIND_ROW = "mq_django.outbox.pending_rows.find_row"
_CANCEL_ROW = "mq_django.outbox.pending_rows.cancel_row"
_RESCHEDULE_ROW = "mq_django.outbox.pending_rows.reschedule_row"


def has_rows(config: DeliveryOptions) -> bool:
    """Return whether messages of a queue may be in an outbox."""
    return bool(config.outbox)


class WaitingMessages(ProgressReader):
    """The methods of a queue that concern its waiting messages."""

    sink: RedisSink[QueueAccess]

    def cancel(
        self,
        message_id: str | None = None,
        *,
        unique: str | None = None,
        key: str | None = None,
        running: bool = False,
        force: bool = False,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
    ) -> CancelResult:
        """Cancel a waiting message, or with `running` also one that is ready or being handled.

        With OUTBOX, the row of a message that no relay has claimed is deleted, in the transaction of database `using`.

        Args:
            message_id: its id, as publish() returned it.
            unique: instead of the id: its unique key. A message that does not wait any more is found by it only if it
                was published with `unique_for`.
            key: of a queue with PARTITIONS: the key that the message was published with, by which it is found at once.
                Without it, all partitions are asked for a unique key, or an id that was given.
            running: if it does not wait, ask its consumer to cancel it: it does not start, and its running handler is
                interrupted. That takes up to a second, or a heartbeat where Redis has lost the notification.
            force: with `running`: replace the process of a handler that does not end within a second.
            using, on_commit, robust: as for publish().

        Returns:
            A CancelResult. If it is true, the message will never run. ASKED, only with `running`: it did not wait, and
            its consumer was asked; if it had ended before, that changes nothing. AT_COMMIT inside `atomic()`: the
            message is cancelled at the commit, if it is still waiting then.

        Raises:
            InvalidMessage: both an id and a unique key are given, or none, or it is not text; or `force` is given
                without `running`.
            NotSupported: with `running`: the queue has RSMQ's format.
            NoOutbox: with OUTBOX: the database has no table of the outbox.
            ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        named = _named(message_id, unique)
        if force and not running:
            raise InvalidMessage("cancel(force=True) is for running messages: give running=True, too")
        if running and self.config.keeps_running:
            raise NotSupported(self.config.keeps_running.format(config=self.config))

        had_row = has_rows(self.config) and import_string(_CANCEL_ROW)(using, self.config, named)
        if had_row and message_id is not None:
            return CancelResult.CANCELLED

        def request(store: QueueAccess) -> CancelResult:
            return store.cancel_running(named, force=force) if running else store.cancel(named)

        found = self._ask(request, key, using=using, on_commit=on_commit, robust=robust)
        return _with_row(found, CancelResult.CANCELLED) if had_row else found

    def reschedule(
        self,
        message_id: str | None = None,
        *,
        unique: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
    ) -> CancelResult:
        """Change the due time of a delayed message, and return whether it was still delayed.

        With OUTBOX, that of a row that no relay has claimed is changed in the transaction of database `using`.

        Args:
            message_id: its id, as publish() returned it.
            unique: instead of the id: its unique key.
            key: as for cancel().
            delay: a timedelta or seconds from now, by Redis's clock.
            deliver_at: instead of `delay`: a datetime. A naive one is in Django's current time zone.
            using, on_commit, robust: as for publish().

        Returns:
            A CancelResult. If it is true, the message will not run before its new time. AT_COMMIT inside `atomic()`: it
            is rescheduled at the commit, if it is still delayed then.

        Raises:
            InvalidMessage: not exactly one of `delay` and `deliver_at`, or of an id and a unique key, is given.
            NoOutbox: with OUTBOX: the database has no table of the outbox.
            ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        named, (delay_ms, due_ms) = _named(message_id, unique), due(delay, deliver_at)
        if delay_ms is None and due_ms is None:
            raise InvalidMessage("reschedule() takes delay= or deliver_at=")
        new = {"delay_ms": delay_ms, "due_ms": due_ms}
        had_row = has_rows(self.config) and import_string(_RESCHEDULE_ROW)(using, self.config, named, **new)
        if had_row and message_id is not None:
            return CancelResult.RESCHEDULED
        found = self._ask(
            lambda store: store.reschedule(named, delay_ms=delay_ms, due_ms=due_ms),
            key,
            using=using,
            on_commit=on_commit,
            robust=robust,
        )
        return _with_row(found, CancelResult.RESCHEDULED) if had_row else found

    def find(self, message_id: str | None = None, *, unique: str | None = None, key: str | None = None) -> Lookup:
        """Look up a waiting message, and return where it waits, the message, and when it is due.

        Args:
            message_id: its id, as publish() returned it.
            unique: instead of the id: its unique key.
            key: as for cancel().

        Raises:
            InvalidMessage: both an id and a unique key are given, or none, or it is not text.
            ConfigurationError, NoServer: CONNECTION cannot be used.
            StoreError: Redis cannot be reached, or refuses the command.
        """
        named = _named(message_id, unique)
        # Before Redis, to which a relay may publish it meanwhile.
        row: Publication | None = import_string(FIND_ROW)(self.config, named) if has_rows(self.config) else None
        if row is None:
            return self._access(key).find(named)
        waits = Lookup(Place.OUTBOX, row.message, row.options.due_ms)
        if message_id is not None:
            return waits
        # An earlier message with the unique key may be there, which this one will replace, or not.
        found = self._access(key).find(named)
        return found or waits

    acancel = asynchronous(cancel)
    areschedule = asynchronous(reschedule)
    afind = asynchronous(find)

    def _access(self, key: str | None) -> QueueAccess:
        if key is None:
            return self.sink.store
        return open_access(self.config, open_wire("produce", self.config.connection), key=check_text("key", key))

    def _ask(
        self,
        request: Callable[[QueueAccess], CancelResult],
        key: str | None,
        *,
        using: str | None,
        on_commit: bool,
        robust: bool,
    ) -> CancelResult:
        warn_of_other_transactions(using, on_commit=on_commit)
        found = after_commit(lambda: request(self._access(key)), using=using, on_commit=on_commit, robust=robust)
        return CancelResult.AT_COMMIT if found is None else found


def _with_row(found: CancelResult, done: CancelResult) -> CancelResult:
    """Return the result for a unique key: this was `done` to a row, and Redis has said `found`."""
    return found if found is CancelResult.AT_COMMIT else done


def _named(message_id: str | None, unique: str | None) -> str:
    """Return the id or unique key in the form of Store.find()."""
    if (message_id is None) == (unique is None):
        raise InvalidMessage("Give a message's id, or unique=")
    return check_text("message_id", message_id) if unique is None else UNIQUE_PREFIX + check_text("unique", unique)
