"""A publication: a checked message that is to be sent to a queue or topic.

All publications are made here, and checked before anything is sent: by `publication()`, by `publications()` for many
of one call, and by `resubmission()` for a message that was published before.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from mq_django.core import clock
from mq_django.core.clock import Duration
from mq_django.core.jsontext import loads
from mq_django.core.message_format import (
    Priority,
)
from mq_django.core.messages import NO_HEADERS, Message
from mq_django.core.publish_checks import (
    check_headers,
    check_id,
    check_iterable,
    check_message_names,
    check_name,
    check_priority,
    check_supported,
    check_text,
    check_whole,
    data_text,
    data_texts,
    due,
    expiry,
    postponable,
    uniqueness,
)
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.core.texts import class_name, repr_of
from mq_django.errors import InvalidMessage


class PublishOptions(NamedTuple):
    """The options that all publications of one call share."""

    #: The queue, topic or group that receives them.
    destination: DeliveryOptions
    #: The delay in milliseconds, by the server's clock. If this and `due_ms` are None: no delay.
    delay_ms: float | None = None
    #: When they are due, in milliseconds since 1970 by the server's clock.
    due_ms: int | None = None
    #: For how many milliseconds the unique key is taken; 0: until the message is handled; None: while it waits.
    claim_ms: int | None = None
    #: If the unique key is taken: "replace" the other message, "keep" it, keep the "earliest" of both, or "error".
    on_conflict: str = "replace"
    #: For how many milliseconds after it is due the messages that replace it may postpone it; None: for any time.
    postpone_ms: int | None = None
    #: A topic accepts an id only once within the duplicate window.
    once: bool = False
    #: The messages run tasks whose results are kept: the publish stores them as queued.
    keeps_result: bool = False


class Publication(NamedTuple):
    """A checked message with the options of its sending. It is immutable."""

    message: Message
    #: The JSON text of its data.
    data_text: bytes
    options: PublishOptions


def publication(
    destination: DeliveryOptions,
    name: str,
    data: Any,
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
    message_id: str | None = None,
    published_ms: int | None = None,
    once: bool = False,
    runs_task: bool = False,
) -> Publication:
    """Return a publication of one message; see Queue.publish() for the options.

    Args:
        published_ms: the time of publication in milliseconds since 1970; None: now. `expires` counts from then.
        once: see PublishOptions.once.
        runs_task: the message runs a task. Its result is kept if the queue keeps results.

    Raises:
        InvalidMessage: data, name, key or an option cannot be sent.
        NotSupported: the destination has no such option.
    """
    at_ms = clock.now_ms() if published_ms is None else published_ms
    key = None if key is None else check_text("key", key)
    unique = None if unique is None else check_text("unique", unique)
    message_id = None if message_id is None else check_id(message_id, destination)
    target = destination.partition_for(key=key, unique=unique, message_id=message_id)
    of_key = unique, unique_for, on_conflict, at_most
    keeps_result = runs_task and destination.keeps_results
    options = _options(target, delay, deliver_at, *of_key, once=once, keeps_result=keeps_result)
    message = Message(
        id=target.new_id() if message_id is None else message_id,
        name=check_name(name),
        data=data,
        queue=destination.name,
        key=key,
        published_ms=at_ms,
        expires_ms=None if expires is None else _expiry(expires, at_ms, options),
        priority=_priority(destination, priority),
        unique=unique,
        headers=check_headers(headers),
        claims=options.claim_ms is not None,
    )
    made = Publication(message, data_text(data, destination), options)
    check_whole(message, made.data_text)
    return made


def publications(
    destination: DeliveryOptions,
    messages: Iterable[tuple[str, Any]],
    *,
    delay: Duration | None = None,
    deliver_at: datetime | None = None,
    key: str | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    priority: Priority = 0,
    expires: Duration | datetime | None = None,
    message_ids: Iterable[str] | None = None,
    once: bool = False,
    runs_task: bool = False,
) -> list[Publication]:
    """Return a publication of each `(name, data)`. The shared options are checked once.

    Args:
        message_ids: the id of each message; None: new ids.
        once: see PublishOptions.once.
        runs_task: as for publication().

    Raises:
        InvalidMessage: data, name, key or an option of any cannot be sent.
        NotSupported: the destination has no such option.
    """
    options = _options(destination, delay, deliver_at, once=once, keeps_result=runs_task and destination.keeps_results)
    level = _priority(destination, priority)
    ready = options.delay_ms is None and options.due_ms is None and not level
    at_ms = clock.now_ms()
    shared = Message(
        id="",
        name="",
        data=None,
        queue=destination.name,
        key=None if key is None else check_text("key", key),
        # The time of a ready message is in the id of its stream entry, which its sender does not know.
        published_ms=None if ready and not runs_task else at_ms,
        expires_ms=None if expires is None else _expiry(expires, at_ms, options),
        priority=level,
        headers=check_headers(headers),
    )[3:]
    pairs = _pairs(messages)
    check_message_names([name for name, _ in pairs])
    texts, ids = data_texts([data for _, data in pairs], destination), destination.new_ids(len(pairs))
    made = [
        _new(Publication, (_new(Message, (message_id, name, data, *shared)), text, options))
        for message_id, (name, data), text in zip(ids, pairs, texts, strict=True)
    ]
    if message_ids is not None:
        made = _with_ids(made, [check_id(each, destination) for each in check_iterable("message_ids", message_ids)])
    made = _assigned(made, destination, has_ids=message_ids is not None)
    if headers:
        for message, text, _ in made:
            check_whole(message, text)
    return made


def _pairs(messages: Iterable[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
    """Return the messages of a bulk publish. A text of two characters, or a dict of two keys, would pass for a pair."""
    pairs: list[Any] = list(check_iterable("messages", messages))
    if {*map(type, pairs)} <= {tuple, list} and {*map(len, pairs)} <= {2}:
        return pairs
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            found = f"{len(pair)} items" if isinstance(pair, tuple | list) else class_name(type(pair))
            raise InvalidMessage(f"Each message must be a pair of a name and data; messages[{number}] is {found}")
    return pairs


def _with_ids(made: Sequence[Publication], message_ids: Sequence[str]) -> list[Publication]:
    if len(message_ids) != len(made):
        raise InvalidMessage(f"There are {len(message_ids)} message_ids for {len(made)} messages")
    return [
        publication._replace(message=publication.message._replace(id=message_id))
        for publication, message_id in zip(made, message_ids, strict=True)
    ]


#: How many messages without a key a call puts into one partition before it goes on to the next.
TOGETHER = 250


def _assigned(made: list[Publication], destination: DeliveryOptions, *, has_ids: bool) -> list[Publication]:
    """Return publications with the partitions that they are for, and with ids that name these."""
    target = destination.partition_for(key=made[0].message.key if made else None)
    if target is destination:
        return made
    found = []
    for number, (message, text, options) in enumerate(made):
        if has_ids and message.key is None:
            target = destination.partition_for(key=None, message_id=message.id)
        elif message.key is None and number and number % TOGETHER == 0:
            target = destination.partition_for(key=None)
        assigned = message if has_ids else message._replace(id=target.new_id())
        found.append(Publication(assigned, text, options._replace(destination=target)))
    return found


def resubmission(destination: DeliveryOptions, message: Message, data: Any) -> Publication:
    """Return a publication of an earlier message under a new id and with other data.

    It has the attributes of the earlier message, except the attempts, the expiry and the claim of a unique key.

    Raises:
        InvalidMessage: the data cannot be sent.
    """
    target = destination.partition_for(key=message.key, unique=message.unique)
    again = message._replace(id=target.new_id(), data=data, attempt=1, published_ms=None, expires_ms=None, claims=False)
    made = Publication(again, data_text(data, destination), PublishOptions(target))
    check_whole(again, made.data_text)
    return made


def stored_publication(
    target: DeliveryOptions, message: Mapping[str, Any], text: bytes, options: Mapping[str, Any]
) -> Publication:
    """Return a publication that was checked and stored before.

    Args:
        target: where the message belongs.
        message: the fields of Message that it had, without the queue and the data.
        text: the JSON text of its data.
        options: the fields of PublishOptions that it had, without the destination.

    Raises:
        DecodeError: the data are not JSON.
        TypeError: there are no such fields.
    """
    made = Message(queue=target.public_name, data=loads(text), **message)
    return Publication(made, text, PublishOptions(target, **options))


def with_headers(publications: Sequence[Publication], headers: Mapping[str, str]) -> list[Publication]:
    """Return publications with more headers. A message's own headers take precedence.

    Raises:
        InvalidMessage: they cannot be sent.
    """
    more = check_headers(headers)
    made = [
        publication._replace(message=publication.message._replace(headers={**more, **publication.message.headers}))
        for publication in publications
    ]
    for message, text, _ in made:
        check_whole(message, text)
    return made


#: Makes a named tuple in half the time of its own constructor.
_new = tuple.__new__


def _options(
    destination: DeliveryOptions,
    delay: Duration | None,
    deliver_at: datetime | None,
    unique: str | None = None,
    unique_for: Duration | str | None = None,
    on_conflict: str | None = None,
    at_most: Duration | None = None,
    *,
    once: bool = False,
    keeps_result: bool = False,
) -> PublishOptions:
    delay_ms, due_ms = due(delay, deliver_at)
    waits = delay_ms is not None or due_ms is not None
    if waits:
        check_supported(destination, "delay")
    if unique is not None:
        check_supported(destination, "unique")
    claim_ms, conflict = uniqueness(unique, unique_for, on_conflict, waits=waits)
    postpone_ms = None if at_most is None else postponable(at_most, delay, unique, unique_for, conflict)
    return PublishOptions(destination, delay_ms, due_ms, claim_ms, conflict, postpone_ms, once, keeps_result)


def _expiry(expires: Duration | datetime, at_ms: int, options: PublishOptions) -> int:
    """Return when a message expires; raise InvalidMessage if that is before it is due."""
    found, due_ms = expiry(expires, at_ms), options.due_ms
    if options.delay_ms is not None:
        due_ms = at_ms + math.ceil(options.delay_ms)
    if due_ms is not None and found <= due_ms:
        raise InvalidMessage(f"The message would expire before it is due: expires={repr_of(expires)}")
    return found


def _priority(destination: DeliveryOptions, priority: Priority) -> int:
    if found := check_priority(priority):
        check_supported(destination, "priority")
    return found
