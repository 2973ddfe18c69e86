"""Messages and deliveries for unit tests of handlers, subscribers and middleware, which need no Redis."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.clock import Duration
from mq_django.core.jsontext import dumps, received
from mq_django.core.keys import GROUP_SEPARATOR, READY
from mq_django.core.message_format import Priority
from mq_django.core.messages import NO_HEADERS, Delivery, Message
from mq_django.core.publication import Publication, publication
from mq_django.core.texts import repr_of
from mq_django.errors import TestKitError
from mq_django.registry import ANY, Handler
from mq_django.stores import open_log, open_store
from mq_django.transport.connections import open_transport


def message(
    name: str,
    data: Any = None,
    *,
    queue: str = "",
    attempt: int = 1,
    key: str | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    priority: Priority = 0,
    unique: str | None = None,
    expires: Duration | datetime | None = None,
    message_id: str | None = None,
) -> Message:
    """Return a message as a handler gets it: its data went through JSON.

        def test_a_customer_is_welcomed(mq):
            welcome(mq.message("welcome", {"email": "ann@shop.example"}))

    Args:
        name: selects the handler.
        data: JSON values, and others that are sent in their JSON form.
        queue: a queue, or a group such as `orders:billing`; "": the first one in the settings.
        attempt: the number of the delivery.
        key, headers, priority, unique, expires, message_id: as for `Queue.publish`.

    Raises:
        InvalidMessage: data, name, key or an option cannot be sent.
        NotSupported: the queue has no such option.
        UnknownQueue: the queue is not configured.
    """
    config = get_config()
    destination = config.queue(queue or next(iter(config.queues), ""))
    made, text, _ = publication(
        destination,
        name,
        data,
        key=key,
        headers=headers,
        priority=priority,
        unique=unique,
        expires=expires,
        message_id=message_id,
    )
    return made._replace(data=received(text), attempt=attempt)


class MessageOptions(TypedDict, total=False):
    """The options of message()."""

    queue: str
    attempt: int
    key: str | None
    headers: Mapping[str, str]
    priority: Priority
    unique: str | None
    expires: Duration | datetime | None
    message_id: str | None


def delivery(name: str, data: Any = None, *, entry: str = "1-0", **options: Unpack[MessageOptions]) -> Delivery:
    """Return a delivery of a message, for tests of code that works with the parts of a consumer.

    Args:
        name, data: as for message().
        entry: the id of the stream entry.
        options: of message().

    Raises:
        InvalidMessage, NotSupported, UnknownQueue: as message().
    """
    made = message(name, data, **options)
    return Delivery(made, READY, entry.encode(), dumps(made.data))


# Find the queue of a handler, a subscriber or a task, and make a message for it.


@dataclass(frozen=True, slots=True)
class FunctionMessage:
    """A message of a function, which may be published again and again."""

    #: The path of the function.
    where: str
    #: The options of its queue, partition or group.
    config: QueueConfig
    publication: Publication

    def publish(self) -> None:
        """Write the message to its queue or topic, without signals and middleware."""
        topic, separator, _ = self.config.name.partition(GROUP_SEPARATOR)
        transport = open_transport("produce", self.config.connection)
        if separator:
            open_log(get_config().topic(topic), transport).publish([self.publication])
        else:
            open_store(self.config, transport).publish([self.publication])


def message_for(function: Any, given: Any) -> FunctionMessage:
    """Return a message for a function.

    Args:
        function: of a handler or subscriber, or a task.
        given: data, or a Message from mq.message(...); for a task a list of positional arguments, or a dict of keyword
            arguments.

    Raises:
        TestKitError: it is no such function; it does not accept these arguments; or it has several names.
        InvalidMessage: the message cannot be sent.
    """
    path = getattr(function, "module_path", None)
    if path is not None:
        return _for_task(function, path, given)
    entry = _entry(function, given)
    assert entry.queue is not None
    config = get_config()
    topic, separator, _ = entry.queue.partition(GROUP_SEPARATOR)
    destination = config.topic(topic) if separator else config.queue(entry.queue)
    if not isinstance(given, Message):
        made = publication(destination, entry.name, given)
    else:
        made = publication(
            destination,
            given.name,
            given.data,
            key=given.key,
            headers=given.headers,
            priority=given.priority,
            message_id=given.id,
            published_ms=given.published_ms,
        )
        made = made._replace(message=made.message._replace(expires_ms=given.expires_ms))
    return FunctionMessage(entry.where, _partition_for(config.queue(entry.queue), made), made)


def _partition_for(config: QueueConfig, made: Publication) -> QueueConfig:
    """Return the queue or group, or the partition that a message is for."""
    destination = made.options.destination
    return config.parts[destination.number] if destination.is_partition else config


def _for_task(task: Any, path: str, given: Any) -> FunctionMessage:
    args: Any = () if given is None else given
    kwargs: Any = {}
    if isinstance(given, Mapping):
        args, kwargs = (), given
    entry = registry.find("", path)
    if entry is None or entry.accepts is None or not isinstance(args, list | tuple):
        raise TestKitError(f"Task {path} takes a list of positional arguments, or a dict of keyword arguments")
    try:
        entry.accepts(args, kwargs)
    except TypeError as error:
        raise TestKitError(f"Task {path} cannot be called so: {error}") from error
    config = get_config().queue(task.queue_name)
    data = {"args": list(args), "kwargs": dict(kwargs)}
    made = publication(config, path, data, priority=task.priority, runs_task=True)
    return FunctionMessage(path, _partition_for(config, made), made)


def _entry(function: Any, given: Any) -> Handler:
    """Return what a function is registered as for this message."""
    registered = [entry for entry in registry.handlers() if entry.call is function]
    if not registered:
        raise TestKitError(f"{repr_of(function, 200)} is no task, and no function of a handler or subscriber")
    found = registered
    if isinstance(given, Message):
        found = [entry for entry in registered if entry.name in (ANY, given.name)]
        found = [entry for entry in found if entry.queue == given.queue] or found
    elif registered[0].name == ANY:
        found = []
    if len(found) != 1:
        known = ", ".join(f"{entry.name or 'all names'} in {entry.queue}" for entry in registered)
        raise TestKitError(
            f"{registered[0].where} handles {known}: name one of them, as in mq.message(name, data, queue=queue)"
        )
    return found[0]
