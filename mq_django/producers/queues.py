"""Put messages into queues."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async

from mq_django.conf import Handling, QueueConfig, get_config
from mq_django.core.ids import new_id
from mq_django.core.jsontext import dumps
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.messages import NO_HEADERS, Message
from mq_django.core.wire import check_headers, check_name
from mq_django.errors import InvalidMessage, MessageTooLarge
from mq_django.producers.transactions import after_commit
from mq_django.signals import message_published
from mq_django.stores import open_store
from mq_django.stores.base import Outgoing
from mq_django.stores.results import keeps, ready_command
from mq_django.transport.connections import get_client
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Pooled

#: What one message may wait: longer than that is a mistake in the unit.
MAX_DELAY = timedelta(days=3660)
#: Messages of one script call. Redis serves nobody else meanwhile: about 3 ms at this size.
BATCH = 1000
CONFLICTS = ("replace", "keep", "earliest", "error")


class Queue:
    """One configured queue, for producers. Get it as `mq_django.queues["name"]`."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config

    @property
    def name(self) -> str:
        """Return the queue's name."""
        return self.config.name

    def publish(
        self,
        name: str,
        data: Any,
        *,
        delay: timedelta | float | None = None,
        deliver_at: datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        priority: int = 0,
        unique: str | None = None,
        on_conflict: str = "replace",
        expires: timedelta | datetime | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
        message_id: str | None = None,
        enqueued_ms: int | None = None,
    ) -> str:
        """Publish a message and return its id.

        Inside `atomic()` of database `using` the message is checked now and sent at the commit; until then the id is
        pending, and a rollback leaves nothing. `on_commit=False` sends at once.

        Args:
            name: chooses the handler.
            data: JSON: None, bool, int, float, str, lists and dicts of them.
            delay: a timedelta or seconds from now (of the sending), by Redis's clock.
            deliver_at: not handled before this moment; without a time zone it is UTC.
            key: what the message is about, such as "order:7".
            headers: text by lower-case name.
            priority: -100 to 100; higher runs sooner.
            unique: with a delay, the message replaces the one that waits under this key; see `on_conflict`.
            on_conflict: "replace", "keep" the first, the "earliest" of both, or "error".
            expires: not handled after this time.
            robust: what fails after the commit is logged, not raised.
            enqueued_ms: it runs a task that was enqueued at this moment, and whose result is kept.

        Raises:
            InvalidMessage: data, name, key or an option cannot be sent. Nothing was written.
            QueueFull, AlreadyPublished, ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        if on_conflict not in CONFLICTS:
            raise InvalidMessage(f"on_conflict must be one of {', '.join(CONFLICTS)}, not {on_conflict!r}")
        delay_ms, due_ms = _due(delay, deliver_at)
        if unique is not None and delay_ms is None and due_ms is None:
            raise InvalidMessage("unique= needs delay= or deliver_at=")
        message = self._message(name, data, key, headers, priority, unique, expires, message_id)
        if enqueued_ms is not None:
            message = message._replace(published_ms=enqueued_ms)
        outgoing = Outgoing(message, data_text(data, self.config), delay_ms, due_ms)

        def send() -> str:
            also = [ready_command(self.config, outgoing)] if enqueued_ms is not None and keeps(self.config) else ()
            return self._send([outgoing], on_conflict=on_conflict, also=also)[0]

        return after_commit(send, using=using, on_commit=on_commit, robust=robust) or message.id

    def publish_many(
        self,
        messages: Iterable[tuple[str, Any]],
        *,
        delay: timedelta | float | None = None,
        deliver_at: datetime | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
    ) -> list[str]:
        """Publish many `(name, data)` in one script call a thousand, and return their ids.

        All are checked before the first is sent. See publish() for the rest.
        """
        delay_ms, due_ms = _due(delay, deliver_at)
        config = self.config
        outgoing = [
            Outgoing(Message(new_id(), check_name(name), data, self.name), data_text(data, config), delay_ms, due_ms)
            for name, data in messages
        ]

        def send() -> None:
            for at in range(0, len(outgoing), BATCH):
                self._send(outgoing[at : at + BATCH])

        if outgoing:
            after_commit(send, using=using, on_commit=on_commit, robust=robust)
        return [item.message.id for item in outgoing]

    def cancel(
        self,
        message_id: str | None = None,
        *,
        unique: str | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
    ) -> bool | None:
        """Remove a message that waits, by its id or its unique key; tell whether it was there.

        Inside `atomic()` it happens at the commit, and the answer is None.
        """
        if (message_id is None) == (unique is None):
            raise InvalidMessage("cancel() takes a message id, or unique=")
        member = message_id if unique is None else UNIQUE_PREFIX + unique

        def send() -> bool:
            return open_store(self.config, Pooled(get_client("produce"))).cancel(str(member))

        return after_commit(send, using=using, on_commit=on_commit, robust=robust)

    async def apublish(self, name: str, data: Any, **options: Any) -> str:
        """See publish()."""
        return await sync_to_async(self.publish, thread_sensitive=True)(name, data, **options)

    async def apublish_many(self, messages: Iterable[tuple[str, Any]], **options: Any) -> list[str]:
        """See publish_many()."""
        return await sync_to_async(self.publish_many, thread_sensitive=True)(messages, **options)

    async def acancel(self, message_id: str | None = None, **options: Any) -> bool | None:
        """See cancel()."""
        return await sync_to_async(self.cancel, thread_sensitive=True)(message_id, **options)

    def _message(
        self,
        name: str,
        data: Any,
        key: str | None,
        headers: Mapping[str, str],
        priority: int,
        unique: str | None,
        expires: timedelta | datetime | None,
        message_id: str | None,
    ) -> Message:
        if type(priority) is not int or not -100 <= priority <= 100:
            raise InvalidMessage(f"A priority is a whole number from -100 to 100, not {priority!r}")
        return Message(
            id=new_id() if message_id is None else check_text("message_id", message_id),
            name=check_name(name),
            data=data,
            queue=self.name,
            key=None if key is None else check_text("key", key),
            published_ms=int(time.time() * 1000),
            expires_ms=expiry_ms(expires),
            priority=priority,
            unique=None if unique is None else check_text("unique", unique),
            headers=check_headers(headers),
        )

    def _send(
        self, outgoing: Sequence[Outgoing], *, on_conflict: str = "replace", also: Sequence[Command] = ()
    ) -> list[str]:
        store = open_store(self.config, Pooled(get_client("produce")))
        ids = store.publish(outgoing, on_conflict=on_conflict, also=also)
        if message_published.receivers:
            for item, message_id in zip(outgoing, ids, strict=True):
                message_published.send(Queue, queue=self.name, message_id=message_id, name=item.message.name)
        return ids


def data_text(data: Any, config: Handling) -> bytes:
    """Return data as JSON text, or raise InvalidMessage when a queue or topic does not take it."""
    text = dumps(data)
    if len(text) > config.max_size:
        raise MessageTooLarge(
            f"{len(text)} bytes of data are more than the {config.max_size} that {config.name!r} takes"
        )
    return text


def check_text(what: str, value: object) -> str:
    """Return a text of a message when it can travel, else raise InvalidMessage."""
    if not isinstance(value, str) or not 0 < len(value) <= 255 or not value.isprintable():
        raise InvalidMessage(f"{what} must be 1 to 255 printable characters, not {value!r:.300}")
    if what == "message_id" and value.startswith(UNIQUE_PREFIX):
        raise InvalidMessage(f"A message's id cannot start with {UNIQUE_PREFIX!r}")
    return value


def expiry_ms(expires: timedelta | datetime | None) -> int | None:
    """Return a time to live or a moment as milliseconds since 1970."""
    if isinstance(expires, timedelta):
        return round((time.time() + expires.total_seconds()) * 1000)
    return None if expires is None else _moment_ms(expires)


def _moment_ms(moment: object) -> int:
    if not isinstance(moment, datetime):
        raise InvalidMessage(f"A moment is a datetime, not {type(moment).__name__}")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def _due(delay: timedelta | float | None, deliver_at: datetime | None) -> tuple[int | None, int | None]:
    """Return (milliseconds from now, milliseconds since 1970), of which at most one is there."""
    if delay is not None and deliver_at is not None:
        raise InvalidMessage("Give delay= or deliver_at=, not both")
    if deliver_at is not None:
        return None, _moment_ms(deliver_at)
    if delay is None:
        return None, None
    if isinstance(delay, bool) or not isinstance(delay, timedelta | int | float):
        raise InvalidMessage(f"A delay is a timedelta or seconds, not {delay!r:.100}")
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not 0 <= seconds <= MAX_DELAY.total_seconds():
        raise InvalidMessage(f"A delay is 0 to {MAX_DELAY.days} days, not {delay!r}")
    return round(seconds * 1000), None


class Queues(Mapping[str, Queue]):
    """The queues in `MQ_DJANGO["QUEUES"]`, by name."""

    def __getitem__(self, name: str) -> Queue:
        return Queue(get_config().queue(name))

    def __iter__(self) -> Iterator[str]:
        return iter(get_config().queues)

    def __len__(self) -> int:
        return len(get_config().queues)

    def __contains__(self, name: object) -> bool:
        return name in get_config().queues


#: The queues of this project.
queues = Queues()
