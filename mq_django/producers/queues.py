"""Publish to queues."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.messages import NO_HEADERS
from mq_django.core.publication import publication, publications
from mq_django.core.times import Duration
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.by_name import ByName
from mq_django.producers.sinks import RedisSink, send
from mq_django.producers.waiting_messages import WaitingMessages
from mq_django.stores import open_access


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
        priority: int = 0,
        unique: str | None = None,
        unique_for: Duration | str | None = None,
        on_conflict: str | None = None,
        expires: Duration | datetime | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
        message_id: str | None = None,
        outbox: bool | None = None,
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
            deliver_at: a datetime before which the message is not handled. A naive one is in Django's current
                time zone.
            key: the subject of the message, such as "order:7". Limits by key use it.
            headers: a dict of text by lower-case name.
            priority: -100 to 100; higher runs sooner.
            unique: a unique key. With a delay, the message replaces the delayed one with the same key; see
                `on_conflict`.
            unique_for: how long the unique key is taken, even while the message is ready or being handled. "handled":
                until the message is handled, buried, cancelled, expired or purged, but at most until a week after it
                is due. A timedelta or seconds: until the same moment, but at most for this long.
            on_conflict: "replace" the other message, "keep" it and return its id, keep the "earliest" of both, or
                "error". With unique_for: "error" or "keep".
            expires: a datetime, or a timedelta or seconds from now, after which the message is not handled. A datetime
                may be in the past, so that the message expires at once; a duration must be above zero.
            using: the alias of the database whose commit is awaited; None: the default database, with a RuntimeWarning
                inside `atomic()` of another one only.
            on_commit: False: send at once, even inside `atomic()`.
            robust: errors after the commit are logged, not raised.
            outbox: True: write a row into the outbox of database `using`, in its transaction; a relay publishes it
                after the commit. False: do not. None: as the option OUTBOX says. `on_commit` and `robust` have no
                effect on a row. What Redis says of its message is known only to the relay: on_conflict="error" sets the
                row aside.
            message_id: replaces the generated id. It need not be unique, except in RSMQ's format, where a second
                message with the same id is AlreadyPublished.

        Returns:
            The id of the message, or of the other message if `on_conflict` keeps that one.

        Raises:
            InvalidMessage: data, name, key or an option cannot be sent. Nothing was written.
            NoOutbox: the message belongs into the outbox, and the database has none.
            MessageTooLarge: data and headers have more bytes than the queue's MAX_SIZE, or than a message may have.
            NotSupported: the queue's format lacks an option.
            QueueFull, AlreadyPublished, ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
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
            expires=expires,
            message_id=message_id,
        )
        return (
            send([made], self.sink, using=using, on_commit=on_commit, robust=robust, outbox=outbox)[0]
            or made.message.id
        )

    def publish_many(
        self,
        messages: Iterable[tuple[str, Any]],
        *,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        priority: int = 0,
        expires: Duration | datetime | None = None,
        message_ids: Iterable[str] | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
        outbox: bool | None = None,
    ) -> list[str]:
        """Publish many messages in few round trips, and return their ids in the same order.

        All are checked before the first is sent. They are sent in batches of up to 1000 messages or 2 MiB of data. Each
        batch is written as a whole or not at all. When Redis refuses one, earlier batches have been written.

            queues["emails"].publish_many(("welcome", {"user_id": user.pk}) for user in users)

        Args:
            messages: pairs of a name and data, as for publish().
            delay, deliver_at, key, headers, priority, expires: as for publish(), for all of them.
            message_ids: as many ids as messages, in place of new ids.
            using, on_commit, robust, outbox: as for publish().

        Raises:
            InvalidMessage, MessageTooLarge, NotSupported, NoOutbox: as publish(). Nothing was written.
            QueueFull, ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
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
        UnknownQueue: there is none of that name.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """


#: The queues of this project.
queues = Queues(lambda config: config.queues, lambda config, name: Queue(config.whole_queue(name)))
