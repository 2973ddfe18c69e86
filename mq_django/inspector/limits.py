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


def _about(given: Given) -> list[str]:
    """Return what a call changes, for its entry in the activity."""
    return [f"{name}: {given[name]}" for name in LIMITS if given.get(name) is not None] or [*given.get("limits", ())]


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
    return _write(config, changes)


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
        return str(Rate.parse(value) if name in RATES else read_count(whole(str(value), MOST)))
    except (TypeError, ValueError) as error:
        words = 'a rate such as "10/s", "100/m" or "5/10s"' if name in RATES else f"a whole number from 1 to {MOST:,}"
        raise InvalidArguments(f'{name}= takes {words}, "none" or "settings", not {repr_of(value, 80)}') from error


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
