"""Change the limits of a queue at run time, and change them back."""

from collections.abc import Mapping, Sequence
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.limits import LIMITS, NO_LIMIT, RATES, LimitChange, LimitName, Rate
from mq_django.core.numbers import whole
from mq_django.core.options import read_count
from mq_django.core.texts import escape, repr_of, truncate
from mq_django.errors import InvalidArguments, NotSupported
from mq_django.inspector.actions import MAX_REASON, MAX_WHO
from mq_django.inspector.queues import quick_stats, transports_of
from mq_django.stores.activity import Given, for_undo, recorded
from mq_django.stores.control import limits_command
from mq_django.stores.partition_transport import prepared
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import fan_out, reply_or_raise

#: The options of the settings that have the limits.
OPTIONS: Mapping[LimitName, str] = {
    "rate": "RATE_LIMIT",
    "concurrency": "CONCURRENCY",
    "key_rate": '"key" of RATE_LIMIT',
    "key_concurrency": '"key" of CONCURRENCY',
}
#: The highest concurrency: see `lua/parts/limit_changes.lua`.
MOST = 10**9
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


def _about(given: Given) -> list[str]:
    """Return what a call changes, for its entry in the activity."""
    values = given.get("values") or {name: given.get(name) for name in LIMITS if given.get(name) is not None}
    values = values or dict.fromkeys(given.get("limits") or LIMITS)
    return [f"{name}: {'as in the settings' if value is None else value}" for name, value in values.items()]


@recorded("change limits", queue="queue", about=_about)
def set_limits(
    queue: str,
    *,
    rate: str | None = None,
    concurrency: int | str | None = None,
    key_rate: str | None = None,
    key_concurrency: int | str | None = None,
    who: str = "",
    reason: str = "",
) -> None:
    """Change limits of a queue, from the next fetch of each consumer on, until reset_limits().

    What runs is not interrupted: with a lower limit, the next message waits. Only limits that the settings have can be
    changed. In a queue with partitions, they are changed in all.

    Args:
        queue: the queue.
        rate: of the queue, such as "10/s"; "none": no limit; None: as it is.
        concurrency: the most deliveries at once, or "none".
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
    texts = {"rate": rate, "concurrency": concurrency, "key_rate": key_rate, "key_concurrency": key_concurrency}
    change_limits(queue, {name: text for name in LIMITS if (text := texts[name]) is not None}, who=who, reason=reason)


@recorded("change limits", queue="queue", about=_about)
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
    return change_limits(queue, {name: None for name in LIMITS if not limits or name in limits})


@recorded("change limits", queue="queue", about=_about)
def change_limits(queue: str, values: Mapping[LimitName, int | str | None], *, who: str = "", reason: str = "") -> bool:
    """Change limits of a queue, or change them back; return whether one was changed. See set_limits().

    Args:
        queue: the queue.
        values: the limits; None: as in the settings.
        who: who changes them, for others to see.
        reason: why.
    """
    config = get_config().queue(get_config().queue(queue).public_name)
    if not values:
        raise InvalidArguments(f"Give a limit: {', '.join(LIMITS)}")
    about: Any = {
        "who": escape(who)[:MAX_WHO],
        "reason": truncate(escape(reason.strip()), MAX_REASON),
        "since_ms": clock.now_ms(),
    }
    changes = {
        name: None if value is None else LimitChange(limit=name, value=_checked(config, name, value), **about)
        for name, value in values.items()
    }
    known = quick_stats(queue).limit_changes if any(changes.values()) else {}
    for_undo({"who": about["who"], "before": {name: known[name].value if name in known else None for name in changes}})
    return _write(config, changes)


def _checked(config: QueueConfig, name: LimitName, value: int | str) -> str:
    """Return a limit as a text.

    Raises:
        InvalidArguments: it is not valid.
        NotSupported: the settings do not have it.
    """
    if name not in config.limits.changeable:
        what = f"queue {repr_of(config.name)} has no {OPTIONS[name]} in the settings"
        if config.limits.ordered and name == "key_concurrency":
            what = f"queue {repr_of(config.name)} has ORDERED: one message of each key runs at a time"
        raise NotSupported(f"{name}= cannot be changed, because {what}. Consumers read the settings when they start")
    if value == NO_LIMIT:
        return NO_LIMIT
    try:
        return str(Rate.parse(value) if name in RATES else _count(value))
    except (TypeError, ValueError) as error:
        words = 'a rate such as "10/s", "100/m" or "5/10s"' if name in RATES else f"a whole number from 1 to {MOST:,}"
        raise InvalidArguments(f'{name}= takes {words}, or "none", not {repr_of(value, 80)}') from error


def _count(value: int | str) -> int:
    """Return a concurrency, as the settings take it.

    Raises:
        TypeError: it is none.
        ValueError: it is too high.
    """
    number = whole(value)
    found: int = read_count(value if number is None else number)
    if found > MOST:
        raise ValueError(found)
    return found


def _write(config: QueueConfig, changes: Mapping[LimitName, LimitChange | None]) -> bool:
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
