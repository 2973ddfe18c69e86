"""Hold the messages of a name or of a key, open and close breakers by hand, and change limits at run time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.breakers import MAX_HOLDS, Hold, hold_score
from mq_django.core.clock import Duration, read_duration
from mq_django.core.ids import is_text
from mq_django.core.jsontext import whole
from mq_django.core.limits import LIMITS, NO_LIMIT, RATES, LimitChange, LimitName, Rate
from mq_django.core.message_format import MAX_NAME_LENGTH
from mq_django.core.options import read_count
from mq_django.core.redaction import is_redacted
from mq_django.core.texts import escape, repr_of, truncate
from mq_django.errors import InvalidArguments, InvalidFilter, NotSupported, QueueFull
from mq_django.inspector.actions import MAX_REASON, MAX_WHO
from mq_django.inspector.queues import quick_stats, transports_of
from mq_django.stores import open_store
from mq_django.stores.activity import Effect, Given, for_undo, recorded
from mq_django.stores.base import Store
from mq_django.stores.control import limits_command
from mq_django.stores.partition_transport import prepared
from mq_django.transport import scripts
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Command
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

    When one of these is handled, more and more are let through, as by a breaker that has opened by itself. The Breaker
    of a handler says which failures of these count; without one, all do. None of them is charged.

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
        if is_redacted(value):
            raise InvalidFilter(f"A placeholder for a secret is no {kind}")
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


#: The options of the settings that have the limits.
OPTIONS: Mapping[LimitName, str] = {
    "rate": "RATE_LIMIT",
    "concurrency": "CONCURRENCY",
    "key_rate": '"key" of RATE_LIMIT',
    "key_concurrency": '"key" of CONCURRENCY',
}
#: The highest concurrency: see `lua/parts/limit_changes.lua`.
MAX_LIMIT = 10**9
#: In place of a value: that of the settings.
SETTINGS = "settings"
#: Keys that are looked at in one step when their limit was changed, and the ms between two steps: so a fetch looks at
#: no more of them at once.
STEP, STEP_MS = 1000, 100


def limit_changes(queue: str) -> tuple[LimitChange, ...]:
    """Return the limits of a queue that have another value than in the settings.

    Args:
        queue: the queue.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    return tuple(quick_stats(queue).limit_changes.values())


def _changed_settings(given: Given) -> list[str]:
    """Return what a call changes, for its entry in the activity."""
    return [f"{name}: {given[name]}" for name in LIMITS if given.get(name) is not None] or [*given.get("limits", ())]


@recorded("change limits", queue="queue", about=_changed_settings)
def set_limits(
    queue: str,
    *,
    rate: str | None = None,
    concurrency: int | str | None = None,
    key_rate: str | None = None,
    key_concurrency: int | str | None = None,
    who: str = "",
    reason: str = "",
) -> bool:
    """Change limits of a queue, from the next fetch of each consumer on, and return whether one was changed.

    What runs is not interrupted: with a lower limit, the next message waits. Only limits that the settings have can be
    changed. In a queue with partitions, they are changed in all.

    Args:
        queue: the queue.
        rate: of the queue, such as "10/s"; "none": no limit; "settings": as there; None: it is not changed.
        concurrency: the most deliveries at once, or one of these words.
        key_rate: the rate of each key.
        key_concurrency: the most deliveries at once of each key.
        who: who changes them, for others to see.
        reason: why.

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidArguments: no limit is given, or one is not valid.
        NotSupported: the settings do not have this limit.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    config = get_config().queue(get_config().queue(queue).public_name)
    found = {"rate": rate, "concurrency": concurrency, "key_rate": key_rate, "key_concurrency": key_concurrency}
    values = {name: _checked(config, name, found[name]) for name in LIMITS if found[name] is not None}
    if not values:
        raise InvalidArguments(f"Give a limit: {', '.join(LIMITS)}")
    who, reason, now = escape(who)[:MAX_WHO], truncate(escape(reason.strip()), MAX_REASON), clock.now_ms()
    changes = {
        name: None if value == SETTINGS else LimitChange(limit=name, value=value, who=who, reason=reason, since_ms=now)
        for name, value in values.items()
    }
    known = quick_stats(queue).limit_changes
    for_undo({"who": who, "before": {name: known[name].value if name in known else SETTINGS for name in changes}})
    return _write_limits(config, changes)


@recorded("change limits", queue="queue", about=_changed_settings)
def reset_limits(queue: str, *, limits: Sequence[str] = ()) -> bool:
    """Give limits of a queue the values of the settings, and return whether one had another value.

    Args:
        queue: the queue.
        limits: which, such as "key_rate"; empty: all.

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidArguments: there is no such limit.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    if unknown := [name for name in limits if name not in LIMITS]:
        raise InvalidArguments(f"There is no limit {repr_of(unknown[0], 80)}, only {', '.join(LIMITS)}")
    values: Any = dict.fromkeys(limits or LIMITS, SETTINGS)
    return set_limits(queue, **values)


def _checked(config: QueueConfig, name: LimitName, value: object) -> str:
    """Return a limit as a text.

    Raises:
        InvalidArguments: it is not valid.
        NotSupported: the settings do not have it.
    """
    if value == SETTINGS:
        return SETTINGS
    if name not in config.limits.changeable:
        option = "ORDERED" if name == "key_concurrency" and config.limits.ordered else OPTIONS[name]
        has = "has" if option == "ORDERED" else "does not have"
        raise NotSupported(
            f"{name}= of queue {repr_of(config.name)}, which {has} {option} in the settings, cannot be changed: "
            "consumers read the settings when they start"
        )
    if value == NO_LIMIT:
        return NO_LIMIT
    try:
        return str(Rate.parse(value) if name in RATES else read_count(whole(str(value), MAX_LIMIT)))
    except (TypeError, ValueError) as error:
        words = (
            'a rate such as "10/s", "100/m" or "5/10s"' if name in RATES else f"a whole number from 1 to {MAX_LIMIT:,}"
        )
        raise InvalidArguments(f'{name}= takes {words}, "none" or "settings", not {repr_of(value, 80)}') from error


def _write_limits(config: QueueConfig, changes: Mapping[LimitName, LimitChange | None]) -> bool:
    """Write changes: to the queue itself, whose limits partitions share, and to each of these for their keys."""
    configs = [config, *config.parts]
    transports = transports_of(configs)
    is_of_keys = any(name.startswith("key_") for name in changes)

    def write(what: Mapping[LimitName, LimitChange | None], after_ms: int | None) -> list[tuple[int, int]]:
        pipelines: list[list[Command]] = [
            [limits_command(each.keys, what, after_ms=after_ms), *([] if each.parts else [prepared(each, _wake(each))])]
            for each in configs
        ]
        return [reply_or_raise(changed) for changed, *_ in fan_out(transports, pipelines)]

    found = write(changes, 0 if is_of_keys else None)
    for step in range(-(-max(later for _, later in found) // STEP)):
        write({}, (step + 1) * STEP_MS)
    return any(changed for changed, _ in found)


def _wake(config: QueueConfig) -> Command:
    keys = config.keys
    return scripts.command("lines_wake", keys=[keys.limits, keys.next_checks, keys.permit_wakeups], args=[1])
