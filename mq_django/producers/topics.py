"""Publish to topics, and manage their groups."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from mq_django.conf import GroupConfig, TopicConfig
from mq_django.core import clock
from mq_django.core.exceptions import repr_of
from mq_django.core.messages import NO_HEADERS, Delivery, Message
from mq_django.core.offsets import BEGINNING, END, Offset
from mq_django.core.publication import publication, publications
from mq_django.core.times import Duration
from mq_django.errors import UnknownGroup
from mq_django.inbox.seeking import seek
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.by_name import ByName
from mq_django.producers.group_status import GroupStatus, group_status
from mq_django.producers.replay import Replayed, replay
from mq_django.producers.sinks import RedisSink, send
from mq_django.registry import start_of
from mq_django.stores import open_log
from mq_django.stores.log import Log
from mq_django.stores.partitioned_log import PartitionedLog
from mq_django.transport.connections import Role, open_wire


class Topic:
    """One configured topic. Get it as `mq_django.topics["name"]`.

        topics["orders"].publish("order.paid", {"order_id": 7})

    `apublish()` and `apublish_many()` are asynchronous versions with the same parameters.
    """

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self._redis = RedisSink(Topic, partial(open_log, config), config)

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self.config.name

    def publish(
        self,
        name: str,
        data: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        expires: Duration | datetime | None = None,
        message_id: str | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
        outbox: bool | None = None,
    ) -> str:
        """Publish a message to every group, and return its id.

        A log has one order, so delays and priorities are not supported. A handler's `Retry(delay=...)` delays the
        message for its own group.

        Args:
            name: selects the subscribers; 1 to 255 printable characters.
            data: a JSON value: None, a bool, int, float or str, or a list or dict of JSON values. `Queue.publish` says
                which other values are converted.
            key: the subject of the message, such as "order:7".
            headers: a dict of text by lower-case name.
            expires: a datetime, or a timedelta or seconds from now, after which the message is not handled.
            message_id: replaces the generated id. Publishing the same id again within the topic's DUPLICATE_WINDOW has
                no effect, so a publish can be repeated safely when its reply was lost.
            using, on_commit, robust, outbox: as for Queue.publish().

        Raises:
            InvalidMessage: data, name, key or an option cannot be sent. Nothing was written.
            NoOutbox: the message belongs into the outbox, and the database has none.
            MessageTooLarge: data and headers have more bytes than the topic's MAX_SIZE, or than a message may have.
            NotSupported: a topic lacks an option.
            QueueClosed: the topic has another number of partitions in Redis than PARTITIONS says.
            ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        made = publication(
            self.config,
            name,
            data,
            key=key,
            headers=headers,
            expires=expires,
            message_id=message_id,
            once=message_id is not None,
        )
        send([made], self._redis, using=using, on_commit=on_commit, robust=robust, outbox=outbox)
        return made.message.id

    def publish_many(
        self,
        messages: Iterable[tuple[str, Any]],
        *,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
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

        Args:
            messages: pairs of a name and data, as for publish().
            key, headers, expires: as for publish(), for all of them.
            message_ids: as many ids as messages. Within the topic's `DUPLICATE_WINDOW` each is added once, as with
                `message_id` of publish().
            using, on_commit, robust, outbox: as for Queue.publish().

        Raises:
            InvalidMessage, MessageTooLarge, NoOutbox: as publish(). Nothing was written.
            ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        made = publications(
            self.config,
            messages,
            key=key,
            headers=headers,
            expires=expires,
            message_ids=message_ids,
            once=message_ids is not None,
        )
        if made:
            send(made, self._redis, using=using, on_commit=on_commit, robust=robust, outbox=outbox)
        return [message.id for message, _, _ in made]

    apublish = asynchronous(publish)
    apublish_many = asynchronous(publish_many)

    def group(self, name: str) -> "Group":
        """Return a group of the topic. It need not exist in Redis.

        Args:
            name: 1 to 160 letters, digits, _ and -.

        Raises:
            ConfigurationError: no group can have this name.
        """
        return Group(self, self.config.group(name))

    def groups(self) -> list[GroupStatus]:
        """Return the status of every group that exists in Redis.

        Raises:
            StoreError: Redis cannot be reached, or refuses the command.
            ConfigurationError: CONNECTION cannot be used.
        """
        return [group_status(group) for group in self._log("inspect").groups()]

    def _log(self, role: Role) -> Log | PartitionedLog:
        return open_log(self.config, open_wire(role, self.config.connection))


class Group:
    """A group of a topic: its offset in the log. Get it as `mq_django.topics["name"].group("name")`.

    Every method raises StoreError when Redis cannot be reached or refuses the command, and ConfigurationError when
    CONNECTION cannot be used.
    """

    def __init__(self, topic: Topic, config: GroupConfig) -> None:
        self.topic = topic
        self.config = config

    @property
    def name(self) -> str:
        """Return the group's name."""
        return self.config.group

    def subscribe(self, start: Offset | None = None) -> bool:
        """Create the group, and return whether it did not exist.

        Consumers create groups when they start. Call this if a group should begin before its first consumer starts.

        Args:
            start: "beginning", "end", a datetime, or the id of an entry; None: the `start` of its subscriber.

        Raises:
            InvalidOffset: `start` is not a position in a log.
        """
        place = start_of(self.config.name) if start is None else start
        return self._log("produce").subscribe(self.name, place)

    def unsubscribe(self) -> bool:
        """Remove the group with its retries, dead letters, counters and alarm, and return whether it existed.

        Running consumers of the group create it again at the `start` of its subscriber, so messages may be handled
        again.
        """
        return self._log("produce").unsubscribe(self.name, now=clock.now())

    def seek(self, place: Offset, *, repeat: bool = False) -> None:
        """Move the group: the next message that it reads is the one at `place`, in all partitions.

        Consumers may run meanwhile. Outcomes of messages that they have read from the log before are ignored. Messages
        that wait for a retry still wait, because they are no longer read from the log.

        Args:
            place: "beginning", "end", a datetime (the first message since then), or the id of an entry. In partitions
                that do not have this entry it stands for its time.
            repeat: let the effects of subscribers with `@exactly_once` happen again. Otherwise these subscribers do not
                run for messages that they have handled.

        Raises:
            UnknownGroup: the group does not exist.
            InvalidOffset: `place` is not a position in a log.
            ConfigurationError: `repeat` is True, and no subscriber of the group has `@exactly_once`.
        """
        seek(self._log("produce"), self.config, place, repeat=repeat)

    def status(self) -> GroupStatus:
        """Return the group's offset, its lag, and its share of the retention.

        Raises:
            UnknownGroup: the group does not exist.
        """
        for status in self.topic.groups():
            if status.position.name == self.name:
                return status
        raise UnknownGroup(f"Topic {self.topic.name!r} has no group {repr_of(self.name)}")

    def messages(self, since: Offset = BEGINNING, until: Offset = END) -> Iterator[Message]:
        """Yield the messages in a range of the log, those of all partitions by their time. No group is changed.

        Args:
            since: "beginning", a datetime, or the id of an entry, which is included.
            until: "end", a datetime, or the id of an entry, which is included.

        Raises:
            InvalidOffset: `since` or `until` is not a position in a log.
        """
        for found in self._log("inspect").read(since, until):
            if isinstance(found, Delivery):
                yield found.message

    def replay(
        self,
        handler: Callable[[Message], Any] | None = None,
        *,
        since: Offset = BEGINNING,
        until: Offset = END,
        dry: bool = False,
        repeat: bool = False,
    ) -> Replayed:
        """Run a handler for the messages in a range of the log, in this process. The group is not changed.

            replayed = topics["orders"].group("billing").replay(since=yesterday, dry=True)

        Args:
            handler: a function of a Message, not a coroutine function; None: the group's own subscriber.
            since: "beginning", a datetime, or the id of an entry, which is included.
            until: "end", a datetime, or the id of an entry, which is included.
            dry: do not run the handler; return the messages for which it would run.
            repeat: let the effects of subscribers with `@exactly_once` happen again. Otherwise these subscribers do not
                run for messages that they have handled, which count as handled here.

        Returns:
            The messages that were handled, those that failed, and the entries that are not valid messages.

        Raises:
            UnknownHandler: no handler was given, and the group has no subscriber.
            ConfigurationError: `handler` is no function, or a coroutine function; or `repeat` is True with a `handler`,
                or for a group none of whose subscribers has `@exactly_once`.
            InvalidOffset: `since` or `until` is not a position in a log.
        """
        return replay(self._log("produce").read(since, until), self.config, handler, dry=dry, repeat=repeat)

    def _log(self, role: Role) -> Log | PartitionedLog:
        return open_log(self.topic.config, open_wire(role, self.topic.config.connection))


class Topics(ByName[Topic]):
    """The topics in `MQ_DJANGO["TOPICS"]`, by name.

    Raises:
        UnknownTopic: there is none of that name.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """


#: The topics of this project.
topics = Topics(lambda config: config.topics, lambda config, name: Topic(config.whole_topic(name)))
