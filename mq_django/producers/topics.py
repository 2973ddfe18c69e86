"""Publish to topics, and manage their groups."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, Never

from asgiref.sync import async_to_sync

from mq_django.conf import GroupConfig, TopicConfig
from mq_django.core import clock
from mq_django.core.clock import Duration
from mq_django.core.logs import get_logger
from mq_django.core.messages import (
    ACK,
    NO_HEADERS,
    Ack,
    Bury,
    Delivery,
    Message,
    Outcome,
    Retry,
    Undecodable,
    outcomes_of,
)
from mq_django.core.offsets import BEGINNING, END, Offset
from mq_django.core.publication import publication, publications
from mq_django.core.publish_checks import unknown_options
from mq_django.core.texts import class_name, repr_of, text_of
from mq_django.errors import ConfigurationError, UnknownGroup, UnknownHandler
from mq_django.inbox.entries import Identity
from mq_django.inbox.once import Once, check_repeat, is_forgotten, note_return, outcome_of_forgotten, seek
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.queues import ByName
from mq_django.producers.sinks import RedisSink, send
from mq_django.registry import find, start_of
from mq_django.stores import open_log
from mq_django.stores.activity import Effect, Given, recorded
from mq_django.stores.log import Log, PartitionedLog
from mq_django.stores.topic_stats import GroupStats
from mq_django.transport.connections import Role, open_transport

# The public status of a topic's group, returned by `Topic.groups()` and `Group.status()`.


class GroupPosition(NamedTuple):
    """The offset of a group in its topic's log, and its pending and undelivered messages."""

    name: str
    #: The id of the last delivered entry; `0-0` for none.
    offset: str
    #: Delivered messages that are not settled.
    pending: int
    #: Undelivered messages.
    lag: int
    #: The age of the oldest undelivered message in milliseconds; 0 when there is none.
    lag_ms: int
    #: Changes with every seek. Receipts of another generation are invalid.
    generation: int = 0
    #: The percentage of the retention when the alarm was raised; None: no alarm.
    alarm: int | None = None
    #: Messages trimmed before delivery since it subscribed, or was last moved.
    lost: int = 0


class GroupStatus(NamedTuple):
    """A group's position and how much of its topic's retention it uses."""

    position: GroupPosition
    #: Share of the retention. From 1 on the group loses messages, or its pending ones delay trimming. None: the topic
    #: has no retention.
    share: float | None
    #: Messages from the oldest pending or undelivered one to the newest, and the age of the oldest in milliseconds.
    behind: int
    behind_ms: int


def group_status(stats: GroupStats) -> GroupStatus:
    """Return the public status of a group with these statistics."""
    position = GroupPosition(*(getattr(stats, name) for name in GroupPosition._fields))
    return GroupStatus(position, stats.share, stats.behind, stats.behind_ms)


# Run the handler of a group for messages in the log, outside a consumer.

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    #: Messages that were handled, or would be in a dry run.
    handled: Sequence[Message]
    #: Messages whose handler failed, with the error.
    failed: Sequence[tuple[Message, str]] = field(default=())
    #: Ids of entries that are not valid messages, with the reason.
    undecodable: Sequence[tuple[str, str]] = field(default=())


def replay(
    entries: Iterable[Delivery | Undecodable],
    group: GroupConfig,
    handler: Callable[[Message], Any] | None,
    *,
    dry: bool,
    repeat: bool = False,
) -> Replayed:
    """Run a handler for entries of a log, in this process.

    Args:
        entries: what the log has, in its order.
        group: whose subscriber runs when no handler is given.
        handler: a function of a Message, not a coroutine function; None: the group's own subscriber.
        dry: do not run the handler.
        repeat: let the effects of subscribers with `@exactly_once` happen again.

    Raises:
        UnknownHandler: no handler was given, and the group has no subscriber.
        ConfigurationError: the handler is no function, or a coroutine function; or `repeat` is not possible.
    """
    given: object = handler
    if given is not None and (not callable(given) or iscoroutinefunction(given)):
        raise ConfigurationError(f"replay() takes a function of a message, not {repr_of(given, 200)}")
    if repeat:
        _raise_pass(group, given, dry=dry)
    handled: list[Message] = []
    failed: list[tuple[Message, str]] = []
    undecodable: list[tuple[str, str]] = []
    for found in entries:
        if not isinstance(found, Delivery):
            undecodable.append((found.entry.decode(), found.reason))
            continue
        message = found.message._replace(queue=group.name)
        call = handler or _subscriber(group, message)
        error = "" if dry else _run(call, message)
        if error:
            failed.append((message, error))
        else:
            handled.append(message)
    return Replayed(handled=handled, failed=failed, undecodable=undecodable)


def _subscriber(group: GroupConfig, message: Message) -> Callable[[Message], Any]:
    found = find(group.name, message.name)
    if found is None:
        raise UnknownHandler(f"Group {group.group!r} of topic {group.topic!r} has no subscriber here")
    call = async_to_sync(found.call) if found.is_async else found.call
    if found.batch:
        call = partial(_call_with_one, call)
    if found.once is None:
        return call
    once = Once(found.once, Identity.of(message, group.name, found.name))

    def run(message: Message) -> Outcome:
        if is_forgotten(message.published_ms, once.current_pass()):
            return outcome_of_forgotten(once)
        return once.run(lambda: _outcome(call(message)))

    return run


def _call_with_one(call: Callable[[list[Message]], Any], message: Message) -> Outcome:
    """Call a handler with batch=, which gets a list of one."""
    return outcomes_of(call([message]), 1)[0]


def _raise_pass(group: GroupConfig, handler: object, *, dry: bool) -> None:
    if handler is not None:
        raise ConfigurationError("repeat=True is for the subscribers of the group. A given handler runs in any case")
    check_repeat(group.name)
    if not dry:
        note_return(group.name, repeat=True)


def _outcome(returned: object) -> Outcome:
    return returned if isinstance(returned, Ack | Retry | Bury) else ACK


def _run(call: Callable[[Message], Any], message: Message) -> str:
    """Run a handler, and return its error, or "" if it succeeded."""
    try:
        outcome = call(message)
    except Exception as error:
        logger.exception("Message %s (%s) failed in a replay", message.id, message.name)
        return f"{class_name(type(error))}: {text_of(error)}"
    return str(outcome.error or class_name(type(outcome))) if isinstance(outcome, Retry | Bury) else ""


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
        **unknown: Never,
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
            using, on_commit, robust, outbox, unknown: as for Queue.publish().

        Raises:
            InvalidArguments: there is no such option.
            InvalidMessage: data, name, key or an option cannot be sent. Nothing was written.
            NoOutbox: the message belongs into the outbox, and the database has none.
            MessageTooLarge: data and headers have more bytes than the topic's MAX_SIZE, or than a message may have.
            NotSupported: a topic lacks an option.
            QueueClosed: the topic has another number of partitions in Redis than PARTITIONS says.
            ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        if unknown:
            raise unknown_options(self.publish, unknown)
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
        **unknown: Never,
    ) -> list[str]:
        """Publish many messages in few round trips, and return their ids in the same order.

        All are checked before the first is sent. They are sent in batches of up to 1000 messages or 2 MiB of data. Each
        batch is written as a whole or not at all. When Redis refuses one, earlier batches have been written.

        Args:
            messages: pairs of a name and data, as for publish().
            key, headers, expires: as for publish(), for all of them.
            message_ids: as many ids as messages. Within the topic's `DUPLICATE_WINDOW` each is added once, as with
                `message_id` of publish().
            using, on_commit, robust, outbox, unknown: as for Queue.publish().

        Raises:
            InvalidArguments, InvalidMessage, MessageTooLarge, NoOutbox: as publish(). Nothing was written.
            ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        if unknown:
            raise unknown_options(self.publish_many, unknown)
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
        return open_log(self.config, open_transport(role, self.config.connection))


def _name_of(given: Given) -> str:
    group: Group = given["self"]
    return group.config.name


def _replayed(given: Given, found: Replayed) -> Effect:
    return Effect(0 if given["dry"] else len(found.handled), f"{len(found.failed)} failed" if found.failed else "")


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
        return self._log("produce").subscribe(self.name, start_of(self.config.name) if start is None else start)

    @recorded("unsubscribe", queue=_name_of)
    def unsubscribe(self) -> bool:
        """Remove the group with its retries, dead letters, counters and alarm, and return whether it existed.

        Running consumers of the group create it again at the `start` of its subscriber, so messages may be handled
        again.
        """
        return self._log("produce").unsubscribe(self.name, now=clock.now())

    @recorded("seek", queue=_name_of, about="position")
    def seek(self, position: Offset, *, repeat: bool = False) -> None:
        """Move the group: the next message that it reads is the one at `position`, in all partitions.

        Consumers may run meanwhile. Outcomes of messages that they have read from the log before are ignored. Messages
        that wait for a retry still wait, because they are no longer read from the log.

        Args:
            position: "beginning", "end", a datetime (the first message since then), or the id of an entry. In
                partitions that do not have this entry it stands for its time.
            repeat: let the effects of subscribers with `@exactly_once` happen again. Otherwise these subscribers do not
                run for messages that they have handled.

        Raises:
            UnknownGroup: the group does not exist.
            InvalidOffset: `position` is no position in a log.
            ConfigurationError: `repeat` is True, and no subscriber of the group has `@exactly_once`.
        """
        seek(self._log("produce"), self.config, position, repeat=repeat)

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
        """Yield the messages in a range of the log, of all partitions by their time. No group is changed.

        Args:
            since: "beginning", a datetime, or the id of an entry, which is included.
            until: "end", a datetime, or the id of an entry, which is included.

        Raises:
            InvalidOffset: `since` or `until` is not a position in a log.
        """
        for found in self._log("inspect").read(since, until):
            if isinstance(found, Delivery):
                yield found.message

    @recorded("replay", queue=_name_of, effect=_replayed)
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
        return open_log(self.topic.config, open_transport(role, self.topic.config.connection))


class Topics(ByName[Topic]):
    """The topics in `MQ_DJANGO["TOPICS"]`, by name.

    Raises:
        UnknownTopic: there is none with this name.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """


#: The topics of this project.
topics = Topics(lambda config: config.topics, lambda config, name: Topic(config.whole_topic(name)))
