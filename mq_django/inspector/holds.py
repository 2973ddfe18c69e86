"""Hold the messages of a name or of a key, and open and close breakers by hand."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.clock import Duration, read_duration
from mq_django.core.holds import MAX_HOLDS, Hold, hold_score
from mq_django.core.ids import is_text
from mq_django.core.message_format import MAX_NAME_LENGTH
from mq_django.core.texts import escape, repr_of, truncate
from mq_django.errors import InvalidFilter, QueueFull
from mq_django.inspector.actions import MAX_REASON, MAX_WHO
from mq_django.inspector.queues import quick_stats, transports_of
from mq_django.stores import open_store
from mq_django.stores.activity import Effect, Given, recorded
from mq_django.stores.base import Store
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import fan_out, reply_or_raise

#: The longest hold with an end, and the longest time between two probes.
MOST, LONGEST_PROBE = timedelta(days=366), timedelta(days=1)


def holds(queue: str) -> tuple[Hold, ...]:
    """Return what people and breakers hold of a queue or a group of a topic, with how many messages wait.

    Args:
        queue: the queue, or the group of a topic.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    return counted(queue, quick_stats(queue).holds)


def counted(queue: str, found: tuple[Hold, ...]) -> tuple[Hold, ...]:
    """Return holds of a queue with how many of their messages wait.

    Raises:
        StoreError: cannot reach Redis.
    """
    if not found:
        return ()
    parts, scores = get_config().queue(queue).each_part, [hold_score(each.subject) for each in found]
    commands = [[("ZCOUNT", part.keys.parked, score, score) for score in scores] for part in parts]
    each_part = [[reply_or_raise(reply) for reply in replies] for replies in fan_out(transports_of(parts), commands)]
    return tuple(
        replace(hold, messages=sum(counts)) for hold, counts in zip(found, zip(*each_part, strict=True), strict=True)
    )


def can_hold(queue: str) -> bool:
    """Return whether messages of a queue can be held: not in RSMQ's format."""
    return get_config().queue(queue).can_hold


def _subject(given: Given) -> str:
    return _about(given["name"], given["key"]).subject


def _made(given: Given, _: Any) -> Effect:
    undo = {"who": escape(given["who"])[:MAX_WHO], "score": hold_score(_subject(given))}
    return Effect(1, undo=undo)


@recorded("hold", queue="queue", about=lambda given: [_subject(given)], effect=_made)
def hold(
    queue: str,
    *,
    name: str | None = None,
    key: str | None = None,
    who: str = "",
    reason: str = "",
    lasts: Duration | None = None,
) -> None:
    """Hold the messages of a name or of a key: they wait uncharged, while others go on.

    A handler that runs is not interrupted. A hold that exists already is replaced. In a queue with ORDERED the later
    messages of a held message's key wait with it. In a queue with partitions, it is a hold of all.

    Args:
        queue: the queue, or the group of a topic.
        name: the name of the messages; or
        key: their key.
        who: who holds them, for others to see.
        reason: why.
        lasts: how long, a timedelta or seconds; None: until end_hold().

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidFilter: not one of both is given, or it cannot be a name or key; or the hold would last more than a year.
        QueueFull: the queue has 500 holds.
        NotSupported: the queue is in RSMQ's format.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    about, now = _about(name, key), clock.now_ms()
    if about.kind == "queue":
        raise InvalidFilter("Give a name or a key. To hold all messages, pause the queue")
    until = None if lasts is None else now + _milliseconds("lasts", lasts, MOST)
    _write(queue, replace(about, since_ms=now, until_ms=until), who, reason)


@recorded("open breaker", queue="queue", about=lambda given: [_subject(given)], effect=_made)
def open_breaker(
    queue: str,
    *,
    name: str | None = None,
    key: str | None = None,
    who: str = "",
    reason: str = "",
    probe: Duration = 30,
) -> None:
    """Open a breaker by hand: messages wait uncharged, and one at a time tries whether what they need is back.

    When one of these is handled, more and more are let through, as by a breaker that has opened by itself.

    Args:
        queue: the queue, or the group of a topic.
        name: the name of the messages; or
        key: their key. Without both, all messages of the queue.
        who: who opens it, for others to see.
        reason: why.
        probe: the time between two tries, a timedelta or seconds.

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidFilter: both are given, or cannot be a name or key; or the time is longer than a day.
        QueueFull: the queue has 500 holds.
        NotSupported: the queue is in RSMQ's format.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    about, now = _about(name, key), clock.now_ms()
    probe_ms = _milliseconds("probe", probe, LONGEST_PROBE)
    _write(queue, replace(about, state="open", since_ms=now, next_ms=now + probe_ms, probe_ms=probe_ms), who, reason)


@recorded("end hold", queue="queue", about=lambda given: [_subject(given)])
def end_hold(queue: str, *, name: str | None = None, key: str | None = None) -> bool:
    """End a hold, or close a breaker, and return whether there was one. Its messages become ready.

    Args:
        queue: the queue, or the group of a topic.
        name: the name that is held; or
        key: the key. Without both, the breaker of the whole queue.

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidFilter: both are given, or cannot be a name or key.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    subject = _about(name, key).subject
    ended = [store.end_hold(subject) for store in _stores(queue)]
    return any(ended)


def _write(queue: str, made: Hold, who: str, reason: str) -> None:
    made = replace(made, who=escape(who)[:MAX_WHO], reason=truncate(escape(reason.strip()), MAX_REASON))
    for store in _stores(queue):
        if not store.hold(made):
            raise QueueFull(f"Queue {repr_of(queue)} has {MAX_HOLDS} holds, which are the most it can have")


def _stores(queue: str) -> list[Store]:
    """Return the stores of a queue: of all its partitions, also if one of them is named."""
    config = get_config().queue(get_config().queue(queue).public_name)
    return [_open(part) for part in config.each_part]


def _open(config: QueueConfig) -> Store:
    return open_store(config, open_transport("inspect", config.connection))


def _about(name: str | None, key: str | None) -> Hold:
    """Return a hold of what is named, without anything else."""
    given: Mapping[Any, Any] = {"name": name, "key": key}
    found = [(kind, value) for kind, value in given.items() if value is not None]
    if len(found) > 1:
        raise InvalidFilter("Give a name or a key, not both")
    for kind, value in found:
        if not is_text(value) or not 0 < len(value) <= MAX_NAME_LENGTH:
            raise InvalidFilter(f"Nothing has the {kind} {repr_of(value, 80)}")
        return Hold(kind=kind, value=value)
    return Hold(kind="queue")


def _milliseconds(what: str, given: Duration, most: timedelta) -> int:
    try:
        found = read_duration(given)
    except TypeError as error:
        raise InvalidFilter(f"{what}= must be {error}, not {repr_of(given)}") from error
    if not timedelta(0) < found <= most:
        raise InvalidFilter(f"{what}= takes a time above 0 and up to {most.days * 24} hours, not {repr_of(given)}")
    return max(1, round(found.total_seconds() * 1000))
