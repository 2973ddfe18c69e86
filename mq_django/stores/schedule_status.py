"""The schedules of a queue with their states, for display and for code that manages them."""

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from mq_django.conf import QueueConfig, default_time_zone, get_config
from mq_django.core.jsontext import LAST_MS, object_in, whole
from mq_django.core.schedules import NEVER, Schedule, Scheduled
from mq_django.core.texts import line
from mq_django.errors import StoreError
from mq_django.stores.schedules import (
    KINDS,
    MAX_SKIPS,
    OWN_KINDS,
    Parsed,
    home_of,
    named,
    parse,
    parse_override,
    scheduled,
    states_of,
)
from mq_django.transport import scripts
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

T = TypeVar("T")

#: The most bytes of the text of skipped ticks; see `lua/parts/numbers.lua`.
MAX_TEXT = 16 * 1024
#: The latest messages of a schedule that are known; see `lua/schedules_fire.lua`.
MAX_RECENT = 5
#: The most characters of the reason of an override.
MAX_REASON = 500
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


class ScheduleOverride(NamedTuple):
    """Other times for a schedule in code or settings, until it is restored."""

    #: The times in code or settings, and what they were when they were overridden.
    code: Schedule
    code_before: str
    #: When it was overridden, in ms since 1970, by whom, and why, if that is known.
    set_ms: int | None
    set_by: str
    reason: str

    @property
    def is_outdated(self) -> bool:
        """Return whether code or settings have changed since."""
        return str(self.code) != self.code_before


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
    #: Other times for one in code or settings; None: it has its own.
    override: ScheduleOverride | None

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
    #: Its latest messages, the last one first: when each was published, in ms since 1970, and its id.
    recent: Sequence[tuple[int, str]]
    #: Of one that was created at run time: its definition in Redis, else what overrides its times. It may be invalid.
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
    #: Whether there are more, because a hash has more fields than are read for a page.
    is_part: bool = False


class ListedSchedule(NamedTuple):
    """A schedule of a queue, which is computed when it is needed."""

    queue: str
    name: str
    read: Callable[[], PlannedSchedule]


def statuses(
    config: QueueConfig,
    transport: Transport,
    *,
    name: str | None = None,
    limit: int | None = None,
    bounded: bool = False,
) -> Statuses:
    """Return every schedule that publishes to a queue or once did, by name.

    Args:
        config: a queue, or only one of its partitions.
        name: only schedules with this name: first from code or settings, last one that was removed from there.
        limit: at most so many, the first ones.
        bounded: only some of a hash with more than MAX_FIELDS, for a page.
    """
    if bounded:
        (found,) = _each_queue([config], [transport], partial(_statuses, limit=limit))
        if isinstance(found, StoreError):
            raise found
        return found
    replies = transport.pipelines([_commands(part, name) for part in config.each_part])
    return _statuses(config, replies, name=name, limit=limit)


def statuses_of(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], *, limit: int | None = None
) -> list[Statuses | StoreError]:
    """Return the schedules of queues, each of which has its transport; an error for a queue that cannot be read.

    At most `limit` of each queue, the first ones by name, and only some of a hash with more than MAX_FIELDS.
    """
    return _each_queue(configs, transports, partial(_statuses, limit=limit))


def listed_of(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], *, now_ms: int
) -> list[tuple[list[ListedSchedule], bool] | StoreError]:
    """Return the schedules of queues by name, and whether there are more; an error for a queue that cannot be read.

    See statuses_of(). `now_ms` is the time by the clock of Redis, which is not read for each queue.
    """

    def read(config: QueueConfig, replies: Sequence[Sequence[Any]]) -> tuple[list[ListedSchedule], bool]:
        return _listed(config, [(now_ms * 1000, *hashes) for hashes in replies])[1], _is_part(replies)

    return _each_queue(configs, transports, read, skipped=1)


def _each_queue(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], read: Callable[..., T], *, skipped: int = 0
) -> list[T | StoreError]:
    """Read queues without the first commands of each."""
    parts = [
        (part, transport) for config, transport in zip(configs, transports, strict=True) for part in config.each_part
    ]
    commands = [_commands(part, None, bounded=True)[skipped:] for part, _ in parts]
    found = fan_out([transport for _, transport in parts], commands)
    replies = (_scanned(*part, reply) for part, reply in zip(parts, found, strict=True))
    return [readable(read)(config, [next(replies) for _ in config.each_part]) for config in configs]


#: The most fields of a hash that are read for a page, about, and the most schedules of a hash that has more.
MAX_FIELDS, MAX_READ = 10_000, 1000


class _Partial(list[bytes]):
    """The fields of some schedules of a hash that has too many."""


def _scanned(config: QueueConfig, transport: Transport, replies: Sequence[Any]) -> list[Any]:
    """Return the replies for a queue or partition, with the fields of schedules that were scanned."""
    *others, states, at_run_time = replies
    keys = config.keys
    return [
        *others,
        _fields(config, transport, keys.schedules, states),
        _fields(config, transport, keys.runtime_schedules, at_run_time),
    ]


def _fields(config: QueueConfig, transport: Transport, key: str, reply: Any) -> Any:
    """Return the fields and values of a hash. Of one with too many, all fields of some schedules."""
    if isinstance(reply, Exception) or reply[0] == b"0":
        return reply if isinstance(reply, Exception) else reply[1]
    own = [entry.name for entry in scheduled() if entry.queue == config.public_name]
    names = list(dict.fromkeys([*own, *states_of(reply[1])]))[:MAX_READ]
    fields = [named(f"{kind}:", name) for name in names for kind in _ALL]
    (values,) = transport.pipeline([("HMGET", key, *fields)])
    if isinstance(values, Exception):
        return values
    pairs = zip(fields, values, strict=True)
    return _Partial(text for field, value in pairs if value is not None for text in (field, value))


def _commands(config: QueueConfig, name: str | None, *, bounded: bool = False) -> list[Command]:
    keys = (config.keys.schedules, config.keys.runtime_schedules)
    reads: list[Command] = [("HSCAN", key, 0, "COUNT", MAX_FIELDS) if bounded else _read(key, name) for key in keys]
    return [scripts.command("clock_read", keys=keys[:1], args=[]), *reads]


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
    now_ms, found = _listed(config, replies, name)
    return Statuses(now_ms, [each.read() for each in found[:limit]], len(found), _is_part(replies))


def _is_part(replies: Sequence[Sequence[Any]]) -> bool:
    return any(isinstance(reply, _Partial) for each in replies for reply in each)


def _listed(
    config: QueueConfig, replies: Sequence[Sequence[Any]], name: str | None = None
) -> tuple[int, list[ListedSchedule]]:
    """Return now in ms since 1970, and the schedules in the replies of a queue, or of each of its partitions."""
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
    return now_ms, [
        ListedSchedule(config.public_name, found.name, partial(_status, found, now_ms, entries.get(found.name)))
        for found in asked
    ]


def _is_at_home(entry: Scheduled, part: QueueConfig) -> bool:
    """Return whether a schedule of this queue has its state in a partition, or in the queue itself."""
    return home_of(get_config().queue(part.public_name), entry).name == part.name


#: Every field of a schedule.
_ALL = tuple(dict.fromkeys((*KINDS, *OWN_KINDS)))


def _read(key: str, name: str | None) -> Command:
    return ("HGETALL", key) if name is None else ("HMGET", key, *(named(f"{kind}:", name) for kind in _ALL))


def _states(reply: Any, name: str | None) -> dict[str, dict[str, bytes]]:
    """Return the states in a HASH, or that of one schedule, by the names of schedules, then by kind."""
    if name is None:
        return states_of(reply)
    state = {kind: value for kind, value in zip(_ALL, reply, strict=True) if value is not None}
    return {name: state} if state else {}


def _origin(name: str, own: Container[str]) -> Origin:
    if name not in own:
        return Origin.REMOVED
    return Origin.SETTINGS if name in get_config().schedules else Origin.CODE


def _status(found: _Found, now_ms: int, entry: Scheduled | None) -> PlannedSchedule:
    """Return a schedule. `entry` is the one of code or settings with this name."""
    name, origin, config, state = found
    definition = state.get("definition" if origin is Origin.RUNTIME else "override", b"")
    is_hidden = origin is Origin.RUNTIME and entry is not None
    override = None if origin is Origin.RUNTIME or not definition or entry is None else _override(entry, state)
    if origin is Origin.RUNTIME:
        parsed = parse(config, name, definition)
    else:
        parsed = Parsed(None, {}) if origin is Origin.REMOVED or entry is None else parse_override(entry, definition)
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
        version=version_of(definition) if origin is Origin.RUNTIME and definition else "",
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
        override=override,
        entry=entry,
        now_ms=now_ms,
        recent=_recent(state.get("recent", b"")),
        definition=definition,
    )


def stamp_of(state: Mapping[str, bytes], kind: str) -> tuple[int | None, str]:
    """Return when something was done, in ms since 1970, and by whom."""
    moment, _, who = state.get(kind, b"")[:1000].decode(errors="replace").partition(" ")
    return whole(moment, LAST_MS), line(who)


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


def _recent(text: bytes) -> list[tuple[int, str]]:
    """Return the messages in the lines that `schedules_fire` writes. Other programs may have written anything."""
    pairs = (entry.partition(" ") for entry in text[:MAX_TEXT].decode(errors="replace").split("\n"))
    found = [(ms, line(message_id)) for at, _, message_id in pairs if (ms := whole(at, LAST_MS)) is not None]
    return found[-MAX_RECENT:][::-1]


def _override(entry: Scheduled, state: Mapping[str, bytes]) -> ScheduleOverride:
    """Return what overrides a schedule. Other programs may have written anything."""
    texts = object_in(state["override"])
    set_ms, set_by = stamp_of(state, "overridden")
    before, reason = (line(str(texts.get(field, "")))[:MAX_REASON] for field in ("code", "reason"))
    return ScheduleOverride(entry.when, before, set_ms, set_by, reason)


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
