"""Sinks: how publications are sent. To Redis, at once or when a transaction commits.

All public functions that publish use `send()`, which selects the sink.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.dispatch import Signal
from django.utils.module_loading import import_string

from mq_django.core.handler_options import current_database, is_manual
from mq_django.core.publication import Publication, with_headers
from mq_django.core.publish_checks import uses_outbox
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.core.texts import listing, repr_of
from mq_django.errors import InvalidMessage, NotReplicated, OutboxRequired
from mq_django.middleware import Publish, PublishCall, publishing_chain
from mq_django.signals import message_published, send_signal
from mq_django.stores.partitioned_store import Publishes
from mq_django.transport import test_mode
from mq_django.transport.connections import clients_closed, open_transport
from mq_django.transport.sessions import REPLICA_MS, ReplicaTransport, Transport

OUTBOX_REQUIRED = (
    "A handler with @exactly_once publishes through the outbox of its database {using!r}, and this is not possible "
    "here. With on_commit=False the message is sent at once: also if the transaction is rolled back, and once more "
    "when the handler runs again"
)
OPTION_REQUIRED = (
    "A handler with @exactly_once publishes through the outbox of its database {using!r}, and a queue with ORDERED "
    "uses that for all its messages, or for none: set OUTBOX on queue {queue!r}"
)
NOT_AT_COMMIT = (
    "A handler with @exactly_once on database {using!r} cannot have this done at its commit: a crash right after that "
    "would lose it, because the handler does not run again. With on_commit=False it is done at once: also if the "
    "transaction is rolled back, and once more when the handler runs again"
)


def within_exactly_once(
    inside: str, destination: DeliveryOptions, using: str | None, *, on_commit: bool, outbox: bool | None
) -> tuple[str | None, bool | None]:
    """Return `using` and `outbox` of a publish inside a handler with `@exactly_once` on the database `inside`.

    A message that is sent at the commit is lost when the process ends right after it: its handler does not run again.
    So it is written into the outbox of the same database, unless the caller sends at once on purpose.

    Raises:
        OutboxRequired: the message would be sent at the commit, or is for the outbox of another database; or its queue
            has ORDERED without OUTBOX.
    """
    if not on_commit and outbox is not True:
        return using or inside, outbox
    if outbox is False or using not in (None, inside):
        raise OutboxRequired(OUTBOX_REQUIRED.format(using=inside))
    # Not if the caller has written outbox=True, which is a contradiction anywhere: see uses_outbox().
    if outbox is None and not destination.outbox and getattr(destination, "ordered", False):
        raise OutboxRequired(OPTION_REQUIRED.format(using=inside, queue=destination.public_name))
    return inside, True


#: Done inside atomic() of another database than the one that nobody has named with `using`.
NOT_AWAITED = (
    "A rollback of atomic(using={alias!r}) does not undo what is done here: it waits for a commit of database {own!r}, "
    "which has no open transaction. Pass using={alias!r} to wait for that commit, or using={own!r} if this is meant."
)

MANUAL = (
    "Autocommit of database {alias!r} is off, so that nothing says when its transaction is committed: publish inside "
    "atomic(), or pass on_commit=False to send at once."
)

NOT_REPLICATED = (
    "The master has accepted the messages for {where!r}, and no replica has confirmed them within {ms} ms: they are "
    "handled, but a failover may lose them. To publish them again may double them, unless they have a unique key or a "
    "message_id."
)

#: Loaded when it is first used: it needs the models, which this module is imported before.
_OUTBOX_SINK = "mq_django.producers.outbox_sink.OutboxSink"

#: Packages that are not the project, and call what sends.
_NOT_PROJECT = frozenset({"mq_django", "django", "django_tasks"})

#: The same as `message_published`, with the publication, which has the delay. Internal: `mq_django.testing` records it.
#: Arguments: publication (Publication), message_id (str).
publication_sent = Signal()

#: The most messages of one script call, which blocks Redis for about 3 ms at this size.
BATCH = 1000
#: The most bytes of data of one script call.
BATCH_BYTES = 2 * 1024 * 1024

Result = TypeVar("Result")


class Sink(Protocol):
    """Accepts publications and sends them, now or later."""

    def send(self, publications: Sequence[Publication]) -> Sequence[str | None]:
        """Accept the publications of one call, at least one, and return the id of each.

        It is the id of another message if the other one keeps the unique key, and None if a topic had the message
        already.
        """

    @property
    def awaits(self) -> str | None:
        """Return the alias of the database whose commit publications wait for; None: of none."""


def send(
    publications: Sequence[Publication],
    redis: Sink,
    *,
    using: str | None,
    on_commit: bool,
    robust: bool,
    outbox: bool | None = None,
) -> Sequence[str | None]:
    """Pass the publications of one call to a sink: `redis`, one that uses it at the commit, or that of the outbox.

    See Queue.publish() for `using`, `on_commit`, `robust` and `outbox`.
    """
    check_sending(using, on_commit=on_commit, robust=robust, outbox=outbox)
    destination = publications[0].options.destination
    sink = choose_sink(destination, redis, using=using, on_commit=on_commit, robust=robust, outbox=outbox)
    warn_of_other_transactions(using, on_commit=on_commit, own=sink.awaits)
    middleware = publishing_chain()
    return sink.send(publications) if middleware is None else _within(middleware, publications, sink)


def choose_sink(
    destination: DeliveryOptions, redis: Sink, *, using: str | None, on_commit: bool, robust: bool, outbox: bool | None
) -> Sink:
    """Return what accepts the publications of one call: see send()."""
    inside = current_database()
    if inside is not None:
        using, outbox = within_exactly_once(inside, destination, using, on_commit=on_commit, outbox=outbox)
    if uses_outbox(destination, outbox):
        found: Sink = import_string(_OUTBOX_SINK)(using, at_once=not on_commit)
        return found
    return OnCommitSink(redis, using, robust=robust) if _waits(using, on_commit=on_commit) else redis


def _within(middleware: Publish, publications: Sequence[Publication], sink: Sink) -> Sequence[str | None]:
    """Pass publications to a sink within the middleware."""
    messages = [message for message, *_ in publications]
    ids: Sequence[str | None] = [message.id for message in messages]

    def run(call: PublishCall) -> Sequence[str | None]:
        nonlocal ids
        ids = sink.send(with_headers(publications, call.headers) if call.headers else publications)
        return ids

    # The return value of a middleware is ignored, because the messages have been sent.
    middleware(PublishCall(messages[0].queue, messages, run))
    return ids


def announce(sender: type, publication: Publication, message_id: str) -> None:
    """Send the signals of a message that Redis has accepted. Errors of receivers are logged.

    `message_id` is another message's if the other one keeps the unique key.
    """
    message = publication.message
    send_signal(
        message_published, sender, queue=message.queue, message_id=message_id, name=message.name, message=message
    )
    send_signal(publication_sent, sender, publication=publication, message_id=message_id)


StoreT = TypeVar("StoreT", bound=Publishes)


class RedisSink(Generic[StoreT]):
    """Writes to Redis at once, and sends the signal `message_published`."""

    awaits = None

    def __init__(self, sender: type, open_store: Callable[[Transport], StoreT], config: DeliveryOptions) -> None:
        self._sender = sender
        self._open_store = open_store
        self._connection = config.connection
        self._where = config.name
        # Servers of tests have no replicas.
        self._waits = config.durability == "replica" and not test_mode.is_on()
        self._store: StoreT | None = None
        #: Publishes and waits for a replica.
        self._durable: tuple[StoreT, ReplicaTransport] | None = None
        clients_closed.connect(self._forget)

    @property
    def store(self) -> StoreT:
        """Return the store. It is opened at the first use, and again when the client was closed."""
        store = self._store
        if store is None:
            self._store = store = self._open_store(open_transport("produce", self._connection))
        return store

    def send(self, publications: Sequence[Publication]) -> Sequence[str | None]:
        """See Sink.send(). An error of Redis concerns one batch: earlier ones have been written."""
        if len(publications) == 1:
            return self._write(publications)
        return [message_id for batch in _batches(publications) for message_id in self._write(batch)]

    def _write(self, batch: Sequence[Publication]) -> Sequence[str | None]:
        if not self._waits:
            ids = self.store.publish(batch)
            self._announce(batch, ids)
            return ids
        durable = self._durable
        if durable is None:
            transport = ReplicaTransport(open_transport("produce", self._connection))
            self._durable = durable = (self._open_store(transport), transport)
        store, transport = durable
        transport.begin()
        ids = store.publish(batch)
        self._announce(batch, ids)
        if not transport.is_confirmed():
            error = NotReplicated(NOT_REPLICATED.format(where=self._where, ms=REPLICA_MS))
            error.message_ids = tuple(message_id for message_id in ids if message_id is not None)
            raise error
        return ids

    def _announce(self, batch: Sequence[Publication], ids: Sequence[str | None]) -> None:
        if message_published.receivers or publication_sent.receivers:
            for publication, message_id in zip(batch, ids, strict=True):
                if message_id is not None:
                    announce(self._sender, publication, message_id)

    def _forget(self, **_: Any) -> None:
        self._store = self._durable = None


def _batches(publications: Sequence[Publication]) -> Iterator[Sequence[Publication]]:
    """Yield the publications of each script call."""
    if len(publications) <= BATCH and sum([len(data_text) for _, data_text, _ in publications]) <= BATCH_BYTES:
        yield publications
        return
    start = size = 0
    for end, (_, data_text, _) in enumerate(publications):
        if end - start == BATCH or (size and size + len(data_text) > BATCH_BYTES):
            yield publications[start:end]
            start, size = end, 0
        size += len(data_text)
    yield publications[start:]


class PendingSend:
    """Publications that wait for a commit. It is the hook of the transaction, where `mq_django.testing` finds it."""

    def __init__(self, sink: Sink, publications: Sequence[Publication]) -> None:
        self._sink = sink
        self.publications = publications
        #: The hook was called, even if sending failed.
        self.called = False
        # Django logs this name when a robust hook fails. An object has none.
        self.__qualname__ = OnCommitSink.send.__qualname__

    def __call__(self) -> None:
        """Send the publications."""
        self.called = True
        self._sink.send(self.publications)


class OnCommitSink:
    """Passes publications to another sink when a transaction commits, and never after a rollback."""

    def __init__(self, sink: Sink, using: str | None, *, robust: bool) -> None:
        self._sink = sink
        self.awaits = using or DEFAULT_DB_ALIAS
        self._robust = robust

    def send(self, publications: Sequence[Publication]) -> Sequence[str | None]:
        """See Sink.send(). The ids are the messages' own, because the real ones are known only after the commit."""
        transaction.on_commit(PendingSend(self._sink, publications), using=self.awaits, robust=self._robust)
        return [message.id for message, _, _ in publications]


def after_commit(
    action: Callable[[], Result], *, using: str | None, on_commit: bool, robust: bool = False
) -> Result | None:
    """Run `action` when the transaction of database `using` commits, or at once without one.

    Returns the result of `action` if it ran at once, else None. An error of a `robust` action after the commit is
    logged, and later actions run. Any other error is raised by the `atomic()` that has committed.

    Raises:
        OutboxRequired: it would run at the commit of a handler with `@exactly_once`, which does not run again.
    """
    check_sending(using, on_commit=on_commit, robust=robust)
    if on_commit and (inside := current_database()) is not None:
        raise OutboxRequired(NOT_AT_COMMIT.format(using=inside))
    if _waits(using, on_commit=on_commit):
        transaction.on_commit(action, using=using or DEFAULT_DB_ALIAS, robust=robust)
        return None
    return action()


def check_sending(using: object, *, on_commit: object, robust: object, outbox: object = None) -> None:
    """Raise InvalidMessage for values that the options of sending cannot have."""
    if outbox is not None and not isinstance(outbox, bool):
        raise InvalidMessage(f"outbox must be True, False or None, not {repr_of(outbox)}")
    if not isinstance(on_commit, bool):
        raise InvalidMessage(f"on_commit must be True or False, not {repr_of(on_commit)}")
    if not isinstance(robust, bool):
        raise InvalidMessage(f"robust must be True or False, not {repr_of(robust)}")
    if using is not None and using not in list(connections):
        known = listing(connections)
        raise InvalidMessage(f"using must be the alias of a database, not {repr_of(using)}; DATABASES has {known}")


def _waits(using: str | None, *, on_commit: bool) -> bool:
    """Return whether to wait for a commit.

    Raises:
        InvalidMessage: autocommit is off, so that nothing says when there is one.
    """
    if not on_commit:
        return False
    connection = transaction.get_connection(using or DEFAULT_DB_ALIAS)
    if connection.in_atomic_block:
        return True
    if is_manual(connection):
        raise InvalidMessage(MANUAL.format(alias=connection.alias))
    return False


def in_transaction(using: str | None) -> bool:
    """Return whether a database has an open transaction in this thread."""
    return bool(transaction.get_connection(using or DEFAULT_DB_ALIAS).in_atomic_block)


def awaiting_commit() -> dict[str, bool]:
    """Return the messages that wait for the commit of an open transaction of this thread: id -> whether it is a row."""
    hooks = [hook for each in connections.all(initialized_only=True) for _savepoints, hook, *_ in each.run_on_commit]
    # captureOnCommitCallbacks(execute=True) of Django calls hooks, and leaves them there.
    waiting = [hook for hook in hooks if not getattr(hook, "called", False)]
    sent = [message.id for hook in waiting if isinstance(hook, PendingSend) for message, *_ in hook.publications]
    rows = [message_id for hook in waiting for message_id in getattr(hook, "outbox_ids", ())]
    return dict.fromkeys(sent, False) | dict.fromkeys(rows, True)


def warn_of_other_transactions(using: str | None, *, on_commit: bool, own: str | None = None) -> None:
    """Warn if the only open transaction is that of a database nobody has named.

    `own` is the alias of the database that is used where nobody names one; None: the default one.
    """
    if not on_commit or using is not None or len(connections.settings) < 2 or in_transaction(own):
        return
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            text = NOT_AWAITED.format(alias=connection.alias, own=own or DEFAULT_DB_ALIAS)
            warnings.warn(text, RuntimeWarning, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """Return the `stacklevel` of the project's line that has led to a warning of the function that calls this."""
    frame, level = sys._getframe(1), 1  # noqa: SLF001 - Python 3.11 has no `skip_file_prefixes`
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_PROJECT:
        frame, level = frame.f_back, level + 1
    return level
