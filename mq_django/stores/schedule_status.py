"""The schedules of a queue with their states, for display and for code that manages them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from django.utils import timezone

from mq_django.conf import QueueConfig, get_config
from mq_django.core.jsontext import loads
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.schedules import NEVER, Scheduled
from mq_django.stores.runtime_schedules import parse, stamp_of, states_of
from mq_django.stores.schedule_state import scheduled
from mq_django.transport.sessions import Wire, reply_or_raise

#: The problem of a schedule whose name is taken.
HIDDEN = "A schedule in code or settings has the same name, so this one does not fire."


class Origin(StrEnum):
    """Where a schedule is defined."""

    CODE = "code"
    SETTINGS = "settings"
    #: It was created at run time, and is in Redis.
    RUNTIME = "runtime"
    #: It was removed from code and settings, and only its state is left.
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatus:
    """A schedule and its state. Times are in ms since 1970, by the clock of Redis."""

    name: str
    queue: str
    origin: Origin
    #: None: it was removed from code and settings, or its definition is not valid.
    entry: Scheduled | None
    #: Ticks up to this time have fired; None: no consumer has run it yet.
    last_ms: int | None
    #: When its message was last published.
    fired_ms: int | None
    paused: bool
    #: When it was paused, and by whom, if that is known.
    paused_ms: int | None = None
    paused_by: str = ""
    #: The next tick that publishes; in the past if no consumer fired it. None while paused, and after the end.
    next_ms: int | None
    #: When a schedule was created and last changed at run time, and by whom.
    created_ms: int | None = None
    created_by: str = ""
    changed_ms: int | None = None
    changed_by: str = ""
    #: Of one that was created at run time: its definition in Redis, which may be invalid.
    definition: bytes = b""
    #: Why it does not fire, although it should.
    problem: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of a schedule that was created at run time; empty for others."""
        return loads(self.definition) if self.definition and self.entry is not None else {}

    @property
    def next_at(self) -> datetime | None:
        """Return the time of the next tick that publishes; None while paused, and after the end."""
        return _datetime(self.next_ms)

    @property
    def published_at(self) -> datetime | None:
        """Return when its message was last published."""
        return _datetime(self.fired_ms)

    @property
    def created_at(self) -> datetime | None:
        """Return when it was created at run time."""
        return _datetime(self.created_ms)

    @property
    def changed_at(self) -> datetime | None:
        """Return when it was last changed at run time."""
        return _datetime(self.changed_ms)


class Statuses(NamedTuple):
    """Schedules of a queue by name, and how many there are."""

    #: In ms since 1970, by the clock of Redis.
    now_ms: int
    found: Sequence[ScheduleStatus]
    total: int


def statuses(config: QueueConfig, wire: Wire, *, name: str | None = None, limit: int | None = None) -> Statuses:
    """Return every schedule that publishes to a queue or once did, by name.

    Args:
        name: only those of this name: one in code or settings first, one that was removed from there last.
        limit: at most so many, the first ones.
    """
    keys = config.keys
    commands = [("TIME",), ("HGETALL", keys.schedules), ("HGETALL", keys.runtime_schedules)]
    time, flat, runtime = (reply_or_raise(reply) for reply in wire.trip(commands))
    now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
    states, at_run_time = states_of(flat), states_of(runtime)
    entries = {entry.name: entry for entry in scheduled() if entry.queue == config.name}
    every = [(found, _origin(found, entries), states.get(found, {})) for found in {*entries, *states}]
    every += [(found, Origin.RUNTIME, state) for found, state in at_run_time.items() if "definition" in state]
    order = list(Origin)
    asked = sorted(
        ((found, origin, state) for found, origin, state in every if name is None or found == name),
        key=lambda each: (each[0], order.index(each[1])),
    )
    made = [
        _runtime_status(found, config, state, now_ms, is_hidden=found in entries)
        if origin is Origin.RUNTIME
        else _status(found, config, entries.get(found), state, now_ms)
        for found, origin, state in asked[:limit]
    ]
    return Statuses(now_ms, made, len(asked))


def _origin(name: str, entries: Mapping[str, Scheduled]) -> Origin:
    if name not in entries:
        return Origin.REMOVED
    return Origin.SETTINGS if name in get_config().schedules else Origin.CODE


def _status(
    name: str, config: QueueConfig, entry: Scheduled | None, state: Mapping[str, bytes], now_ms: int
) -> ScheduleStatus:
    return ScheduleStatus(
        name=name,
        queue=config.name,
        origin=_origin(name, {} if entry is None else {name: entry}),
        entry=entry,
        **_progress(entry, state, now_ms),
    )


def _runtime_status(
    name: str, config: QueueConfig, state: Mapping[str, bytes], now_ms: int, *, is_hidden: bool
) -> ScheduleStatus:
    entry, problem = parse(config, name, state["definition"])
    created_ms, created_by = stamp_of(state, "created")
    changed_ms, changed_by = stamp_of(state, "changed")
    return ScheduleStatus(
        name=name,
        queue=config.name,
        origin=Origin.RUNTIME,
        entry=entry,
        **_progress(None if is_hidden else entry, state, now_ms),
        created_ms=created_ms,
        created_by=created_by,
        changed_ms=changed_ms,
        changed_by=changed_by,
        definition=state["definition"],
        problem=HIDDEN if is_hidden else problem,
    )


def _progress(entry: Scheduled | None, state: Mapping[str, bytes], now_ms: int) -> dict[str, Any]:
    last_ms, paused = whole(state.get("last"), LAST_MS), "paused" in state
    paused_ms, paused_by = stamp_of(state, "paused")
    return {
        "last_ms": last_ms,
        "fired_ms": whole(state.get("fired"), LAST_MS),
        "paused": paused,
        # Earlier versions wrote 1.
        "paused_ms": paused_ms if paused_by else None,
        "paused_by": paused_by,
        "next_ms": None if entry is None or paused else _next_ms(entry, last_ms or now_ms),
    }


def _next_ms(entry: Scheduled, after_ms: int) -> int | None:
    try:
        found = entry.next_ms(after_ms, timezone.get_default_timezone())
    except (ValueError, OverflowError):
        # The stored time is after the last possible date.
        return None
    return None if found == NEVER else found


def _datetime(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
