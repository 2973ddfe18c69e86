"""Messages and deliveries for unit tests of handlers, subscribers and middleware, which need no Redis."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from mq_django.conf import get_config
from mq_django.core.clock import Duration
from mq_django.core.jsontext import dumps, received
from mq_django.core.keys import READY
from mq_django.core.messages import NO_HEADERS, Delivery, Message
from mq_django.core.publication import publication


def message(
    name: str,
    data: Any = None,
    *,
    queue: str = "",
    attempt: int = 1,
    key: str | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    priority: int = 0,
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
    priority: int
    unique: str | None
    expires: Duration | datetime | None
    message_id: str | None


def delivery(name: str, data: Any = None, *, entry: str = "1-0", **options: Unpack[MessageOptions]) -> Delivery:
    """Return a delivery of a message, for tests of code that works with the parts of a consumer.

    Args:
        name, data: as for message().
        entry: the id of the stream entry.
        options: those of message().

    Raises:
        InvalidMessage, NotSupported, UnknownQueue: as message().
    """
    made = message(name, data, **options)
    return Delivery(made, READY, entry.encode(), dumps(made.data))
