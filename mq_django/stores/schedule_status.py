"""The schedules of a queue with their states, for display and for code that manages them."""

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig, default_time_zone, get_config
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.schedules import NEVER, Schedule, Scheduled
from mq_django.core.visible import line
from mq_django.errors import StoreError
from mq_django.stores.runtime_schedules import KINDS, Parsed, parse, stamp_of, states_of
from mq_django.stores.schedule_state import MAX_SKIPS, home_of, named, scheduled
from mq_django.transport import scripts
from mq_django.transport.failures import readable
from mq_django.transport.fan_out import fan_out
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: The most bytes of the text of skipped ticks; see `lua/parts/short_texts.lua`.
MAX_TEXT = 16 * 1024
#: The problem of a schedule whose name is taken.
TAKEN = "A schedule in code or settings has the same name, so this one does not fire."


class Origin(StrEnum):
    """Where a schedule is defined."""

    CODE = "code"
    SETTINGS = "settings"
    #: It was created at run time, and is in Redis.
    RUNTIME = "runtime"
    #: It was removed from code and settings, and only its state is left.
    REMOVED = "removed"


class SkippedTick(NamedTuple):
    """A tick that will pass without a message. Times are in ms since 1970."""

    tick_ms: int
    #: When it was skipped, and by whom, if that is known.
    skipped_ms: int | None = None
    skipped_by: str = ""

    @property
    def tick_at(self) -> datetime:
        """Return the time of the tick."""
        return datetime.fromtimestamp(self.tick_ms / 1000, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatus:
    """A schedule and its state. Times are in ms since 1970, by the clock of Redis."""

    name: str
    queue: str
    origin: Origin
    #: None: it was removed from code and settings, or its definition is not valid.
    when: Schedule | None
    #: The name of its messages: that of a task is its path.
    message: str | None
    #: The options of a schedule that was created at run time, if they are valid; else empty.
    options: Mapping[str, Any]
    #: Changes with the options; see `schedules.update()`. Empty for one that was not created at run time.
    version: str
    #: Why it does not fire, although it should.
    problem: str
    paused: bool
    #: When it was paused, and by whom, if that is known.
    paused_ms: int | None
    paused_by: str
    #: The next tick that publishes; in the past if no consumer fired it. None while paused, and after the end.
    next_ms: int | None
    #: The later ticks that are skipped, in their order.
    skips: Sequence[SkippedTick]
    #: Ticks up to this time have fired; None: no consumer has run it yet.
    last_ms: int | None
    #: When its message was last published.
    fired_ms: int | None
    #: When it was created and last changed at run time, and by whom.
    created_ms: int | None
    created_by: str
    changed_ms: int | None
    changed_by: str

    @property
    def next_at(self) -> datetime | None:
        """Return the time of the next tick that publishes; None while paused, and after the end."""
        return _datetime(self.next_ms)

    @property
    def fired_at(self) -> datetime | None:
        """Return when its message was last published."""
        return _datetime(self.fired_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSchedule(ScheduleStatus):
    """A schedule with what publishes its messages."""

    #: Where its state is: its queue, or a partition.
    home: str
    #: None if it cannot fire.
    entry: Scheduled | None
    #: When it was read.
    now_ms: int = field(compare=False)
    #: Of one that was created at run time: its definition in Redis, which may be invalid.
    definition: bytes

    @property
    def upcoming_ms(self) -> int | None:
        """Return the first tick after now, also while paused, and if it is skipped."""
        return self.next_tick_ms(self.now_ms)

    def next_tick_ms(self, after_ms: int, *, skipped: Container[int] = ()) -> int | None:
        """Return the first tick after a time that is not among some; None if there is none."""
        return None if self.entry is None else _next_ms(self.entry, after_ms, skipped)


class Statuses(NamedTuple):
    """Schedules of a queue by name, and how many there are."""

    #: In ms since 1970, by the clock of Redis.
    now_ms: int
    found: Sequence[PlannedSchedule]
    total: int


def statuses(config: QueueConfig, wire: Wire, *, name: str | None = None, limit: int | None = None) -> Statuses:
    """Return every schedule that publishes to a queue or once did, by name.

    Args:
        config: a queue, or only one of its partitions.
        name: only those of this name: one in code or settings first, one that was removed from there last.
        limit: at most so many, the first ones.
    """
    replies = wire.trips([_commands(part, name) for part in config.each_part])
    return _statuses(config, replies, name=name, limit=limit)


def statuses_of(
    configs: Sequence[QueueConfig], wires: Sequence[Wire], *, limit: int | None = None
) -> list[Statuses | StoreError]:
    """Return the schedules of queues, each of which has its wire; an error for a queue that cannot be read.

    At most `limit` of each queue, the first ones by name.
    """
    parts = [(part, wire) for config, wire in zip(configs, wires, strict=True) for part in config.each_part]
    replies = iter(fan_out([wire for _, wire in parts], [_commands(part, None) for part, _ in parts]))
    return [readable(_statuses)(config, [next(replies) for _ in config.each_part], limit=limit) for config in configs]


def _commands(config: QueueConfig, name: str | None) -> list[Command]:
    keys = (config.keys.schedules, config.keys.runtime_schedules)
    return [scripts.command("clock_read", keys=keys[:1], args=[]), *(_read(key, name) for key in keys)]


class _Found(NamedTuple):
    """A schedule that was found, before its definition is read."""

    name: str
    origin: Origin
    config: QueueConfig
    state: Mapping[str, bytes]


def _statuses(
    config: QueueConfig, replies: Sequence[Sequence[Any]], *, name: str | None = None, limit: int | None = None
) -> Statuses:
    """Return the schedules in the replies of a queue, or of each of its partitions."""
    entries = {
        entry.name: entry for entry in scheduled() if entry.queue == config.public_name and name in (None, entry.name)
    }
    now_ms, every = 0, list[_Found]()
    for part, (now_us, *hashes) in zip(config.each_part, replies, strict=True):
        now_ms = reply_or_raise(now_us) // 1000
        states, at_run_time = (_states(reply_or_raise(reply), name) for reply in hashes)
        own = [entry.name for entry in entries.values() if _is_at_home(entry, part)]
        every += [_Found(found, _origin(found, own), part, states.get(found, {})) for found in {*own, *states}]
        every += [
            _Found(found, Origin.RUNTIME, part, state) for found, state in at_run_time.items() if "definition" in state
        ]
    order = list(Origin)
    asked = sorted(
        (found for found in every if name is None or found.name == name),
        key=lambda found: (found.name, order.index(found.origin), found.config.name),
    )
    return Statuses(now_ms, [_status(found, now_ms, entries.get(found.name)) for found in asked[:limit]], len(asked))


def _is_at_home(entry: Scheduled, part: QueueConfig) -> bool:
    """Return whether a schedule of this queue has its state in a partition, or in the queue itself."""
    return home_of(get_config().queue(part.public_name), entry).name == part.name


def _read(key: str, name: str | None) -> Command:
    return ("HGETALL", key) if name is None else ("HMGET", key, *(named(f"{kind}:", name) for kind in KINDS))


def _states(reply: Any, name: str | None) -> dict[str, dict[str, bytes]]:
    """Return the states in a HASH, or that of one schedule, by the names of schedules, then by kind."""
    if name is None:
        return states_of(reply)
    state = {kind: value for kind, value in zip(KINDS, reply, strict=True) if value is not None}
    return {name: state} if state else {}


def _origin(name: str, own: Container[str]) -> Origin:
    if name not in own:
        return Origin.REMOVED
    return Origin.SETTINGS if name in get_config().schedules else Origin.CODE


def _status(found: _Found, now_ms: int, entry: Scheduled | None) -> PlannedSchedule:
    """Return a schedule. `entry` is the one of code or settings with this name."""
    name, origin, config, state = found
    definition = state.get("definition", b"") if origin is Origin.RUNTIME else b""
    is_hidden = origin is Origin.RUNTIME and entry is not None
    own = None if origin is Origin.REMOVED else entry
    parsed = parse(config, name, definition) if origin is Origin.RUNTIME else Parsed(own, {})
    entry = parsed.entry
    last_ms, paused = whole(state.get("last"), LAST_MS), "paused" in state
    skips = _skips(state.get("skips", b""))
    skipped = {tick.tick_ms for tick in skips}
    stamps = {kind: stamp_of(state, kind) for kind in ("created", "changed", "paused")}
    return PlannedSchedule(
        name=name,
        queue=config.public_name,
        home=config.name,
        origin=origin,
        when=None if entry is None else entry.when,
        message=None if entry is None else entry.message,
        options=parsed.options,
        version=version_of(definition) if definition else "",
        problem=TAKEN if is_hidden else parsed.problem,
        paused=paused,
        next_ms=None if entry is None or paused or is_hidden else _next_ms(entry, last_ms or now_ms, skipped),
        skips=[] if entry is None else [tick for tick in skips if tick.tick_ms > now_ms and _is_tick(entry, tick)],
        last_ms=last_ms,
        fired_ms=whole(state.get("fired"), LAST_MS),
        created_ms=stamps["created"][0],
        created_by=stamps["created"][1],
        changed_ms=stamps["changed"][0],
        changed_by=stamps["changed"][1],
        paused_ms=stamps["paused"][0],
        paused_by=stamps["paused"][1],
        entry=entry,
        now_ms=now_ms,
        definition=definition,
    )


def version_of(definition: bytes) -> str:
    """Return a short text that differs between definitions."""
    return hashlib.sha256(definition).hexdigest()[:16]


def _skips(text: bytes) -> list[SkippedTick]:
    """Return the ticks in the lines that `schedules_skip` writes. Other programs may have written anything."""
    found = []
    # The scripts drop a longer text, too.
    for entry in text.decode(errors="replace").split("\n") if len(text) <= MAX_TEXT else ():
        tick, _, stamp = entry.partition(" ")
        since, _, who = stamp.partition(" ")
        tick_ms = whole(tick, LAST_MS)
        if tick_ms is not None:
            found.append(SkippedTick(tick_ms, whole(since, LAST_MS), line(who)))
    return sorted(found[:MAX_SKIPS], key=lambda tick: tick.tick_ms)


def _is_tick(entry: Scheduled, skipped: SkippedTick) -> bool:
    """Return whether a schedule still has a tick: one of code may have changed."""
    return _next_ms(entry, skipped.tick_ms - 1) == skipped.tick_ms


def _next_ms(entry: Scheduled, after_ms: int, skipped: Container[int] = ()) -> int | None:
    try:
        found = entry.next_ms(after_ms, default_time_zone(), skipped)
    except (ValueError, OverflowError):
        # The stored time is after the last possible date.
        return None
    return None if found == NEVER else found


def _datetime(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
