"""Publish to topics, and manage their groups."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync

from mq_django.conf import Config, GroupConfig, TopicConfig, get_config
from mq_django.core.logs import get_logger
from mq_django.core.messages import NO_HEADERS, Delivery, Message
from mq_django.core.offsets import BEGINNING, END, Place
from mq_django.core.outcomes import Bury, Retry
from mq_django.core.publication import publication, publications
from mq_django.errors import UnknownGroup, UnknownHandler
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.group_standing import Standing, standing_of
from mq_django.producers.sinks import RedisSink, send
from mq_django.registry import find, start_of
from mq_django.stores.log import Log
from mq_django.transport.connections import Role, get_client
from mq_django.transport.sessions import Pooled

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


class Topic:
    """One configured topic. Get it as `mq_django.topics["name"]`."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self._redis = RedisSink(Topic, partial(Log, config))

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self.config.name

    def publish(
        self,
        name: str,
        data: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        expires: timedelta | datetime | None = None,
        message_id: str | None = None,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
    ) -> str:
        """Publish a message to every group, and return its id.

        With `message_id`, publishing again within the topic's `DUPLICATE_WINDOW` adds nothing: so a publish that failed
        without an answer can be repeated. A log has one order, so there is neither a delay nor a priority; a handler's
        `Retry(delay=...)` delays for its group. See Queue.publish() for the rest.

        Raises:
            InvalidMessage: data, name, key or an option cannot be sent. Nothing was written.
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
        send([made], self._redis, using=using, on_commit=on_commit, robust=robust)
        return made.message.id

    def publish_many(
        self,
        messages: Iterable[tuple[str, Any]],
        *,
        using: str | None = None,
        on_commit: bool = True,
        robust: bool = False,
    ) -> list[str]:
        """Publish many `(name, data)` in one script call a thousand, or two megabytes, and return their ids.

        All are checked before the first is sent. See publish() for the rest.
        """
        made = publications(self.config, messages)
        if made:
            send(made, self._redis, using=using, on_commit=on_commit, robust=robust)
        return [message.id for message, _, _ in made]

    apublish = asynchronous(publish)
    apublish_many = asynchronous(publish_many)

    def group(self, name: str) -> "Group":
        """Return a group of the topic, whether or not there is one of that name yet."""
        return Group(self, self.config.group(name))

    def groups(self) -> list[Standing]:
        """Return every group that there is, with its lag and how much of the retention it is behind."""
        return [standing_of(group) for group in self._log("inspect").groups()]

    def _log(self, role: Role) -> Log:
        return Log(self.config, Pooled(get_client(role)))


class Group:
    """A group of a topic: its place in the log. Get it as `mq_django.topics["name"].group("name")`."""

    def __init__(self, topic: Topic, config: GroupConfig) -> None:
        self.topic = topic
        self.config = config

    @property
    def name(self) -> str:
        """Return the group's name."""
        return self.config.group

    def subscribe(self, start: Place | None = None) -> bool:
        """Make the group now, at `start` or where its subscriber says, and tell whether it was not there.

        Consumers do so by themselves. It is for who wants a group to begin before its first consumer does.
        """
        place = start_of(self.config.name) if start is None else start
        return self._log("produce").subscribe(self.name, place)

    def unsubscribe(self) -> bool:
        """Remove the group with its retries, dead letters, counters and alarm; tell whether it was there.

        Consumers of it that still run subscribe again, where their subscriber says: that is a replay, too.
        """
        return self._log("produce").unsubscribe(self.name, now=time.time())

    def seek(self, place: Place) -> None:
        """Go on with the message at `place`: "beginning", "end", the first since a datetime, or the id of an entry.

        It may be done while consumers run. What they hold of the log is theirs no longer: when it ends, it is not
        settled. A message that waits for another attempt still does, because it has left the log.

        Raises:
            UnknownGroup: nobody has subscribed.
        """
        self._log("produce").seek(self.name, place)

    def standing(self) -> Standing:
        """Return the group's place, its lag, and how much of the retention it is behind.

        Raises:
            UnknownGroup: nobody has subscribed.
        """
        for standing in self.topic.groups():
            if standing.place.name == self.name:
                return standing
        raise UnknownGroup(f"Topic {self.topic.name!r} has no group {self.name!r}")

    def messages(self, since: Place = BEGINNING, until: Place = END) -> Iterator[Message]:
        """Yield the messages that the log has from `since` to `until`, without touching any group."""
        for found in self._log("inspect").read(since, until):
            if isinstance(found, Delivery):
                yield found.message

    def replay(
        self,
        handler: Callable[[Message], Any] | None = None,
        *,
        since: Place = BEGINNING,
        until: Place = END,
        dry: bool = False,
    ) -> Replayed:
        """Run a range of the log through a handler, here and now, without moving the group.

        Args:
            handler: takes a message; None: the group's own subscriber.
            dry: run nothing, and return what would be.

        Raises:
            UnknownHandler: none was given, and the group has no subscriber.
        """
        handled: list[Message] = []
        failed: list[tuple[Message, str]] = []
        undecodable: list[tuple[str, str]] = []
        for found in self._log("produce").read(since, until):
            if not isinstance(found, Delivery):
                undecodable.append((found.entry.decode(), found.reason))
                continue
            message = found.message._replace(queue=self.config.name)
            call = handler or self._subscriber(message.name)
            error = "" if dry else _run(call, message)
            if error:
                failed.append((message, error))
            else:
                handled.append(message)
        return Replayed(handled=handled, failed=failed, undecodable=undecodable)

    def _subscriber(self, name: str) -> Callable[[Message], Any]:
        found = find(self.config.name, name)
        if found is None:
            raise UnknownHandler(f"Group {self.name!r} of topic {self.topic.name!r} has no subscriber here")
        return async_to_sync(found.call) if found.is_async else found.call

    def _log(self, role: Role) -> Log:
        return Log(self.topic.config, Pooled(get_client(role)))


def _run(call: Callable[[Message], Any], message: Message) -> str:
    """Run a handler, and return its error, or "" if it succeeded."""
    try:
        outcome = call(message)
    except Exception as error:
        logger.exception("Message %s (%s) failed in a replay", message.id, message.name)
        return f"{type(error).__name__}: {error}"
    return (outcome.error or type(outcome).__name__) if isinstance(outcome, Retry | Bury) else ""


class Topics(Mapping[str, Topic]):
    """The topics in `MQ_DJANGO["TOPICS"]`, by name."""

    def __init__(self) -> None:
        self._made: tuple[Config | None, dict[str, Topic]] = (None, {})

    def __getitem__(self, name: str) -> Topic:
        config, (made_for, made) = get_config(), self._made
        if made_for is not config:  # settings may change in tests
            made = {}
            self._made = (config, made)
        try:
            return made[name]
        except (KeyError, TypeError):
            made[name] = topic = Topic(config.topic(name))
            return topic

    def __iter__(self) -> Iterator[str]:
        return iter(get_config().topics)

    def __len__(self) -> int:
        return len(get_config().topics)

    def __contains__(self, name: object) -> bool:
        return name in get_config().topics


#: The topics of this project.
topics = Topics()
