"""Sinks: where publications go. To Redis, at once or when a transaction commits.

Every public way to publish ends in `send()`, which chooses the sink.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from django.db import DEFAULT_DB_ALIAS, transaction

from mq_django.core.publication import Publication, with_headers
from mq_django.middleware import Publish, PublishCall, publishing_chain
from mq_django.signals import message_published
from mq_django.transport.connections import clients_closed, open_wire
from mq_django.transport.sessions import Wire

#: Messages of one script call. Redis serves nobody else meanwhile: about 3 ms at this size.
BATCH = 1000
#: Bytes of data of one script call.
BATCH_BYTES = 2 * 1024 * 1024

Result = TypeVar("Result")


class Sink(Protocol):
    """Takes publications, and sees to it that they are sent."""

    def send(self, publications: Sequence[Publication]) -> Sequence[str | None]:
        """Take the publications of one call, at least one, and return the id under which each is known.

        That is another message's where a unique key keeps that one, and None where a topic had the message before.
        """


def send(
    publications: Sequence[Publication], redis: Sink, *, using: str | None, on_commit: bool, robust: bool
) -> Sequence[str | None]:
    """Give the publications of one call to the sink in charge; `redis` is that of their destination.

    See Queue.publish() for `using`, `on_commit` and `robust`.
    """
    sink = OnCommitSink(redis, using, robust=robust) if on_commit and in_transaction(using) else redis
    middleware = publishing_chain()
    return sink.send(publications) if middleware is None else _within(middleware, publications, sink)


def _within(middleware: Publish, publications: Sequence[Publication], sink: Sink) -> Sequence[str | None]:
    """Give publications to a sink within the middleware."""
    messages = [message for message, *_ in publications]
    ids: Sequence[str | None] = [message.id for message in messages]

    def run(call: PublishCall) -> Sequence[str | None]:
        nonlocal ids
        ids = sink.send(with_headers(publications, call.headers) if call.headers else publications)
        return ids

    # What a middleware returns is not looked at: the messages are on their way, whatever that is.
    middleware(PublishCall(messages[0].queue, messages, run))
    return ids


class Publisher(Protocol):
    """What a RedisSink writes to: a store, or the log of a topic."""

    def publish(self, publications: Sequence[Publication]) -> Sequence[str | None]:
        """Write publications in one round trip, all or none, and return what Sink.send() does."""


StoreT = TypeVar("StoreT", bound=Publisher)


class RedisSink(Generic[StoreT]):
    """Writes to Redis at once. The signal `message_published` is sent here."""

    def __init__(self, sender: type, open_store: Callable[[Wire], StoreT]) -> None:
        self._sender = sender
        self._open_store = open_store
        self._store: StoreT | None = None
        clients_closed.connect(self._forget)

    @property
    def store(self) -> StoreT:
        """Return what is written to, opened when it is first needed and kept as long as its client."""
        store = self._store
        if store is None:
            self._store = store = self._open_store(open_wire("produce"))
        return store

    def send(self, publications: Sequence[Publication]) -> Sequence[str | None]:
        """See Sink.send(). What Redis refuses it refuses a batch at a time."""
        if len(publications) == 1:
            return self._write(publications)
        return [message_id for batch in _batches(publications) for message_id in self._write(batch)]

    def _write(self, batch: Sequence[Publication]) -> Sequence[str | None]:
        ids = self.store.publish(batch)
        if message_published.receivers:
            for (message, _, _), message_id in zip(batch, ids, strict=True):
                if message_id is not None:
                    message_published.send_robust(
                        self._sender, queue=message.queue, message_id=message_id, name=message.name
                    )
        return ids

    def _forget(self, **_: Any) -> None:
        self._store = None


def _batches(publications: Sequence[Publication]) -> Iterator[Sequence[Publication]]:
    """Yield what goes into one script call."""
    start = size = 0
    for end, (_, data_text, _) in enumerate(publications):
        if end - start == BATCH or (size and size + len(data_text) > BATCH_BYTES):
            yield publications[start:end]
            start, size = end, 0
        size += len(data_text)
    yield publications[start:]


class OnCommitSink:
    """Gives publications to another sink when a transaction commits; after a rollback never."""

    def __init__(self, sink: Sink, using: str | None, *, robust: bool) -> None:
        self._sink = sink
        self._using = using
        self._robust = robust

    def send(self, publications: Sequence[Publication]) -> Sequence[str | None]:
        """See Sink.send(). Until the commit nobody knows what becomes of an id, so each is the message's own."""

        def publish() -> None:
            self._sink.send(publications)

        after_commit(publish, using=self._using, on_commit=True, robust=self._robust)
        return [message.id for message, _, _ in publications]


def after_commit(
    action: Callable[[], Result], *, using: str | None, on_commit: bool, robust: bool = False
) -> Result | None:
    """Run `action` when the transaction of database `using` commits, or at once when there is none.

    Returns what `action` returned if it ran at once, else None. A `robust` action that fails after the commit is
    logged and does not keep later ones from running; any other raises out of the `atomic()` that has committed.
    """
    if on_commit and in_transaction(using):
        transaction.on_commit(action, using=using or DEFAULT_DB_ALIAS, robust=robust)
        return None
    return action()


def in_transaction(using: str | None) -> bool:
    """Tell whether a database has a transaction open in this thread."""
    return bool(transaction.get_connection(using or DEFAULT_DB_ALIAS).in_atomic_block)
