"""Publish to queues, which are made by their names when they are first used."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Never, TypeVar

from django.utils.module_loading import import_string

from mq_django.conf import Config, QueueConfig, get_config
from mq_django.core.clock import Duration
from mq_django.core.handler_options import current_database
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.message_format import Priority
from mq_django.core.messages import NO_HEADERS, CancelResult, Lookup, LookupState
from mq_django.core.publication import Publication, publication, publications
from mq_django.core.publish_checks import check_text, due, unknown_options
from mq_django.core.running_handler import Progress
from mq_django.errors import InvalidMessage, NotSupported, UnknownQueue
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.sinks import RedisSink, after_commit, send, warn_of_other_transactions
from mq_django.stores import open_access
from mq_django.stores.base import QueueAccess
from mq_django.stores.partitioned_store import PartitionedStore
from mq_django.stores.results import read_progress_in
from mq_django.transport.connections import open_transport

Made = TypeVar("Made")


class ByName(Mapping[str, Made]):
    """A mapping of configured names to objects. Each is made at its first use, and again after settings change."""

    def __init__(self, configured: Callable[[Config], Mapping[str, Any]], make: Callable[[Config, str], Made]) -> None:
        self._configured, self._make = configured, make
        self._made: tuple[Config | None, dict[str, Made]] = (None, {})

    def __getitem__(self, name: str) -> Made:
        config, (made_for, made) = get_config(), self._made
        if made_for is not config:  # settings may change in tests
            self._made = (config, made := {})
        try:
            return made[name]
        except (KeyError, TypeError):
            made[name] = found = self._make(config, name)
            return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._configured(get_config()))

    def __len__(self) -> int:
        return len(self._configured(get_config()))

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the queue or topic of a name, or the default. UnknownQueue is no KeyError, which Mapping expects."""
        try:
            return self[name]
        except UnknownQueue:
            return default


# Read the progress of a message or task.


class ProgressReader:
    """The methods of a queue that read the progress of its messages."""

    config: QueueConfig

    def progress(self, message_id: str) -> Progress | None:
        """Return what the handler of a message has reported last by `mq_django.progress()`.

        It is kept for an hour after the message was handled, and for a week while it is not.

        Args:
            message_id: its id, as publish() returned it.

        Returns:
            The progress, or None if the handler has not started or does not report.

        Raises:
            InvalidMessage: the id is not text.
            StoreError: Redis cannot be reached, or refuses the command.
            ConfigurationError: CONNECTION cannot be used.
        """
        return read_progress_in(self.config.partitions_for_id(check_text("message_id", message_id)), message_id)

    aprogress = asynchronous(progress)


def get_progress(task: object) -> Progress | None:
    """Return what a task, or the handler of a message, has reported last by `mq_django.progress()`.

    All queues are asked, and of a queue with PARTITIONS the one that a generated id names. `Queue.progress()` asks only
    one queue.

        result = import_prices.enqueue(7)
        found = get_progress(result)
        percent = None if found is None or found.fraction is None else round(found.fraction * 100)

    Args:
        task: the result that `enqueue()` or `get_result()` has returned, or its id as text. The id of a message is
            accepted, too.

    Returns:
        The progress, or None if the task has not started or does not report.

    Raises:
        InvalidMessage: it is neither a result nor text.
        StoreError: Redis cannot be reached, or refuses the command.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """
    message_id = check_text("task", task if isinstance(task, str) else getattr(task, "id", task))
    return read_progress_in(get_config().partitions_for_id(message_id), message_id)


aget_progress = asynchronous(get_progress)

# Cancel, reschedule and find the waiting messages of a queue.

#: Loaded when they are needed: they need the models, which this module is imported before.
FIND_ROW = "mq_django.outbox.stored_rows.find_row"
_CANCEL_ROW = "mq_django.outbox.stored_rows.cancel_row"
_RESCHEDULE_ROW = "mq_django.outbox.stored_rows.reschedule_row"


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
        A task that is still in the outbox has no result after a cancel.

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
            A CancelResult. If it is true, the message will never run. It is ASKED, only with `running`, if the message
            did not wait and its consumer was asked; if it had ended before, that changes nothing. It is AT_COMMIT
            inside `atomic()`, if the message will be cancelled at the commit, should it still wait then: that is
            neither true nor false, and bool() raises NotSupported.

        Raises:
            InvalidMessage: both an id and a unique key are given, or none, or it is not text; or `force` is given
                without `running`.
            NotSupported: with `running`: the queue has RSMQ's format.
            NoOutbox: with OUTBOX: the database has no table of the outbox.
            OutboxRequired: in a handler with `@exactly_once`, for what is no row, without `on_commit=False`.
            ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        named = _named(message_id, unique)
        if force and not running:
            raise InvalidMessage("cancel(force=True) is for running messages: give running=True, too")
        if running and self.config.keeps_running:
            raise NotSupported(self.config.keeps_running.format(config=self.config))

        using = using or current_database()
        had_row = self.config.outbox and import_string(_CANCEL_ROW)(using, self.config, named)
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
            deliver_at: instead of `delay`: a datetime, which must be aware in a project with `USE_TZ`.
            using, on_commit, robust: as for publish().

        Returns:
            A CancelResult. If it is true, the message will not run before its new time. It is AT_COMMIT inside
            `atomic()`, as for cancel().

        Raises:
            InvalidMessage: not exactly one of `delay` and `deliver_at`, or of an id and a unique key, is given.
            NoOutbox: with OUTBOX: the database has no table of the outbox.
            OutboxRequired: in a handler with `@exactly_once`, for what is no row, without `on_commit=False`.
            ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        named, (delay_ms, due_ms) = _named(message_id, unique), due(delay, deliver_at)
        if delay_ms is None and due_ms is None:
            raise InvalidMessage("reschedule() takes delay= or deliver_at=")
        delay_ms = None if delay_ms is None else math.ceil(delay_ms)
        new = {"delay_ms": delay_ms, "due_ms": due_ms}
        using = using or current_database()
        had_row = self.config.outbox and import_string(_RESCHEDULE_ROW)(using, self.config, named, **new)
        if had_row and message_id is not None:
            return CancelResult.RESCHEDULED

        def request(store: QueueAccess) -> CancelResult:
            return store.reschedule(named, delay_ms=delay_ms, due_ms=due_ms)

        found = self._ask(request, key, using=using, on_commit=on_commit, robust=robust)
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
        row: Publication | None = import_string(FIND_ROW)(self.config, named) if self.config.outbox else None
        if row is None:
            return self._access(key).find(named)
        waits = Lookup(LookupState.OUTBOX, row.message, row.options.due_ms)
        if message_id is not None:
            return waits
        # An earlier message with the unique key may be there, which this one will replace, or not.
        return self._access(key).find(named) or waits

    acancel = asynchronous(cancel)
    areschedule = asynchronous(reschedule)
    afind = asynchronous(find)

    def _access(self, key: str | None) -> QueueAccess:
        if key is None:
            return self.sink.store
        return open_access(self.config, open_transport("produce", self.config.connection), key=check_text("key", key))

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


class Queue(WaitingMessages):
    """One configured queue, for producers. Get it as `mq_django.queues["name"]`.

        queues["emails"].publish("welcome", {"user_id": 7}, delay=60)

    Each method that uses Redis has an asynchronous version with the same parameters, such as `apublish()`.
    """

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        #: Internal: sends the messages of this queue's tasks, too.
        self.sink = RedisSink(Queue, partial(open_access, config), config)

    @property
    def name(self) -> str:
        """Return the queue's name."""
        return self.config.name

    def publish(
        self,
        name: str,
        data: Any = None,
        *,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        priority: Priority = 0,
        unique: str | None = None,
        unique_for: Duration | str | None = None,
        on_conflict: str | None = None,
        at_most: Duration | None = None,
        expires: Duration | datetime | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
        message_id: str | None = None,
        outbox: bool | None = None,
        **unknown: Never,
    ) -> str:
        """Publish a message and return its id.

        Inside `atomic()` of database `using` the message is checked now and sent at the commit. After a rollback
        nothing is sent. With `on_commit=False` it is sent at once.

        Args:
            name: selects the handler; 1 to 255 printable characters.
            data: a JSON value: None, a bool, int, float or str, or a list or dict of JSON values. Values that Django's
                JSON encoder supports, such as dates and UUIDs, are written as it writes them, and an enum as its value.
                A tuple arrives as a list. A number, bool or None as the key of a dict arrives as JSON text, 7 as "7".
                bytes are refused.
            delay: a timedelta or seconds from the sending, by Redis's clock.
            deliver_at: a datetime before which the message is not handled. It must be aware in a
                project with `USE_TZ`.
            key: the subject of the message, such as "order:7". Limits by key use it.
            headers: a dict of text by lower-case name.
            priority: -100 to 100, or "high" (10), "normal" (0) or "low" (-10); higher runs sooner.
            unique: a unique key. With a delay, the message replaces the delayed one with the same key; see
                `on_conflict`.
            unique_for: how long the unique key is taken, even while the message is ready or being handled. "handled":
                until the message is handled, buried, cancelled, expired or purged, but at most until a week after it
                is due. A timedelta or seconds: until the same moment, but at most for this long.
            on_conflict: "replace" the other message, "keep" it and return its id, keep the "earliest" of both, or
                "error". With unique_for: "error" or "keep".
            at_most: with `unique` and `delay`: for how long after the first publish under the key later ones postpone
                the message that waits: a timedelta or seconds, at least the delay. None: for any time.
            expires: a datetime, or a timedelta or seconds from now, after which the message is not handled. A datetime
                may be in the past, so that the message expires at once; a duration must be above zero.
            using: the alias of the database whose commit is awaited; None: the default database, or that of the outbox,
                with a RuntimeWarning inside `atomic()` of another one only.
            on_commit: False: send at once, even inside `atomic()`.
            robust: errors after the commit are logged, not raised.
            outbox: True: write a row into the outbox of database `using`, in its transaction; a relay publishes it
                after the commit. False: do not. None: as the option OUTBOX says. `on_commit` and `robust` have no
                effect on a row. What Redis says of its message is known only to the relay: on_conflict="error" sets the
                row aside.
            message_id: replaces the generated id. It need not be unique, except in RSMQ's format, where a second
                message with the same id is AlreadyPublished; but of several that wait with the same id, cancel(),
                reschedule() and find() know only the first.
            unknown: is refused, such as `countdown` of Celery.

        Returns:
            The id of the message, or of the message that `on_conflict` keeps.

        Raises:
            InvalidArguments: there is no such option. The error says what to write instead of one of others.
            InvalidMessage: data, name, key or an option cannot be sent. Nothing was written.
            NoOutbox: the message belongs into the outbox, and the database has none.
            MessageTooLarge: data and headers have more bytes than the queue's MAX_SIZE, or than a message may have.
            NotSupported: the queue's format lacks an option.
            QueueFull, AlreadyPublished, ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        if unknown:
            raise unknown_options(self.publish, unknown)
        made = publication(
            self.config,
            name,
            data,
            delay=delay,
            deliver_at=deliver_at,
            key=key,
            headers=headers,
            priority=priority,
            unique=unique,
            unique_for=unique_for,
            on_conflict=on_conflict,
            at_most=at_most,
            expires=expires,
            message_id=message_id,
        )
        sent = send([made], self.sink, using=using, on_commit=on_commit, robust=robust, outbox=outbox)[0]
        return sent or made.message.id

    def publish_many(
        self,
        messages: Iterable[tuple[str, Any]],
        *,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        priority: Priority = 0,
        expires: Duration | datetime | None = None,
        message_ids: Iterable[str] | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
        outbox: bool | None = None,
        **unknown: Never,
    ) -> list[str]:
        """Publish many messages in few round trips, and return their ids in the same order.

        All are checked before the first is sent. They are sent in batches of up to 1000 messages or 2 MiB of data. Each
        batch is written as a whole or not at all. When Redis refuses one, earlier batches have been written.

            queues["emails"].publish_many(("welcome", {"user_id": user.pk}) for user in users)

        Args:
            messages: pairs of a name and data, as for publish().
            delay, deliver_at, key, headers, priority, expires: as for publish(), for all of them.
            message_ids: as many ids as messages, in place of new ids.
            using, on_commit, robust, outbox, unknown: as for publish().

        Raises:
            InvalidArguments, InvalidMessage, MessageTooLarge, NotSupported, NoOutbox: as publish(). Nothing is written.
            QueueFull, ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        if unknown:
            raise unknown_options(self.publish_many, unknown)
        made = publications(
            self.config,
            messages,
            delay=delay,
            deliver_at=deliver_at,
            key=key,
            headers=headers,
            priority=priority,
            expires=expires,
            message_ids=message_ids,
        )
        if made:
            send(made, self.sink, using=using, on_commit=on_commit, robust=robust, outbox=outbox)
        return [message.id for message, _, _ in made]

    apublish = asynchronous(publish)
    apublish_many = asynchronous(publish_many)


class Queues(ByName[Queue]):
    """The queues in `MQ_DJANGO["QUEUES"]`, by name.

    Raises:
        UnknownQueue: there is none with this name.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """


#: The queues of this project.
queues = Queues(lambda config: config.queues, lambda config, name: Queue(config.whole_queue(name)))

# Check the number of partitions before something is written to a partition without a publish by the queue.


def check_partitions(config: QueueConfig) -> None:
    """Check once a process that the queue of a partition has as many as the settings say.

    Raises:
        QueueClosed: it has another number, or it is being changed.
        StoreError: Redis cannot be reached, or refuses the command.
    """
    if not config.is_partition:
        return
    store = queues[config.public_name].sink.store
    assert isinstance(store, PartitionedStore)
    store.check()
