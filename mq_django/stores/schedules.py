"""The schedules of a queue with their states, for display and for code that manages them."""

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from mq_django import registry
from mq_django.conf import QueueConfig, default_time_zone, get_config
from mq_django.core.jsontext import loads
from mq_django.core.message_format import encode_body
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.publication import Publication
from mq_django.core.redaction import redact_text
from mq_django.core.schedules import NEVER, Schedule, Scheduled, read_definition
from mq_django.core.texts import line, truncate
from mq_django.errors import MQError, QueueFull, StoreError
from mq_django.stores.counters import slot
from mq_django.stores.partition_transport import transport_of
from mq_django.transport import scripts
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

# The state of schedules in Redis: the last tick, pauses, and skipped ticks.

#: The most characters of the user who paused or changed a schedule.
MAX_WHO = 150
#: The most ticks that a schedule may skip at a time.
MAX_SKIPS = 20

#: The results of skipping a tick, and of not skipping it after all.
Skipping = Literal["SKIPPED", "WAS_SKIPPED", "PASSED", "FULL", "CHANGED"]
Unskipping = Literal["FIRES", "PASSED", "MISSING"]


class Firing(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    #: Another process fired it.
    DONE = "done"
    PAUSED = "paused"
    SKIPPED = "skipped"
    #: It is not due yet, by the clock of Redis.
    EARLY = "early"
    #: It was created at run time, and has been changed or deleted.
    CHANGED = "changed"


def named(kind: str, name: str) -> bytes:
    """Return the field of a schedule. Names that others wrote may have bytes that are not UTF-8."""
    return f"{kind}{name}".encode(errors="surrogateescape")


class Fired(NamedTuple):
    """The result of firing a tick."""

    firing: Firing
    #: By the clock of Redis, in ms since 1970.
    now_ms: int
    #: The id of the published message, if the tick fired.
    made: Publication


def scheduled() -> list[Scheduled]:
    """Return all schedules of the project. One in the settings replaces one in code with the same name."""
    return list({**registry.schedules(), **get_config().schedules}.values())


def home_of(config: QueueConfig, entry: Scheduled) -> QueueConfig:
    """Return where the state of a schedule is, and its messages: its queue, or a partition.

    It is the partition of the key of its messages, whose order and limits are there; without a key that of its name.
    """
    return config.partition_for(key=entry.key, unique=entry.name)


class Schedules:
    """The schedules of one queue or partition that are in code or settings."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._config = config
        self._keys = config.keys
        self._transport = transport_of(config, transport)
        #: The HASH of their states.
        self._states = config.keys.schedules

    def read_states(self, names: Sequence[str]) -> tuple[int, list[int]]:
        """Return now, and for each schedule the time up to which its ticks have fired. A new schedule starts now."""
        now_ms, flat = self._run("schedules_read", [named("", name) for name in names])
        states = states_of(flat)
        known = (whole(states[name].get("last"), LAST_MS) for name in names)
        # An invalid time counts as missing: the schedule starts now.
        return now_ms, [now_ms if last is None else last for last in known]

    def fire(self, entry: Scheduled, tick_ms: int, *, is_first: bool = True) -> Fired:
        """Publish the message of a tick, unless another process has.

        Args:
            is_first: no earlier tick was missed. Else, if this one is skipped, an earlier one may still fire.

        Raises:
            InvalidMessage: it cannot be published.
            QueueFull: the queue is at its MAX_DEPTH. The tick stays due.
        """
        made = entry.publication(self._config, tick_ms)
        word, now_ms = self._fire(entry, tick_ms, made, is_first=is_first)
        return Fired(Firing(word.decode().lower()), now_ms, made)

    def fire_now(self, entry: Scheduled) -> Publication | None:
        """Publish the message of a schedule now, even if it is paused, and return it. Its ticks are not changed.

        None: it was created at run time, and has been changed or deleted.

        Raises:
            InvalidMessage: it cannot be published.
            QueueFull: the queue is at its MAX_DEPTH.
        """
        made = entry.publication(self._config)
        word, _now_ms = self._fire(entry, "", made)
        return None if word == b"CHANGED" else made

    def pause(self, name: str, *, who: str = "") -> bool:
        """Pause a schedule: its ticks publish no message. Return whether it was running before."""
        args: list[Argument] = [named("", name), "1", truncate(line(who), MAX_WHO), self._required(name)]
        return bool(self._run("schedules_pause", args) == b"CHANGED")

    def resume(self, name: str) -> bool:
        """Resume a schedule from the next tick on, and return whether it was paused. The pause's ticks never fire."""
        return bool(self._run("schedules_pause", [named("", name), "0"]) == b"CHANGED")

    def skip(self, entry: Scheduled, tick_ms: int, *, who: str = "") -> Skipping:
        """Let a later tick of a schedule pass without a message."""
        args: list[Argument] = [named("", entry.name), tick_ms, MAX_SKIPS]
        args += [truncate(line(who), MAX_WHO), entry.definition or b""]
        reply: Skipping = self._run("schedules_skip", args).decode()
        return reply

    def unskip(self, name: str, tick_ms: int) -> Unskipping:
        """Let a tick fire that was to be skipped."""
        reply: Unskipping = self._run("schedules_skip", [named("", name), tick_ms, 0]).decode()
        return reply

    def forget(self, name: str) -> None:
        """Delete the state of a schedule. If it is still in code or settings, it starts anew."""
        fields = [named(kind, name) for kind in ("last:", "fired:", "paused:", "skips:")]
        reply_or_raise(self._transport.pipeline([("HDEL", self._states, *fields)])[0])

    def _required(self, name: str) -> bytes:
        """Return a field that a schedule has if it exists; empty if that does not depend on Redis."""
        return b""

    def _run(self, script: str, args: list[Argument]) -> Any:
        command = scripts.command(script, keys=[self._states], args=args)
        return reply_or_raise(self._transport.pipeline([command])[0])

    def _fire(self, entry: Scheduled, tick: Argument, made: Publication, *, is_first: bool = True) -> Any:
        (message, data_text, _), keys, where = made, self._keys, slot(self._keys)
        body = encode_body(message, data_text, member=message.id)
        args: list[Argument] = [entry.name, tick, where.minute, where.hour, keys.group, message.id, message.name, body]
        args += [self._config.max_depth or 0, entry.definition or b""]
        if not is_first:
            args.append("1")
        key_names = [self._states, keys.ready, keys.priority, keys.waiting, keys.control, *where.keys, keys.front]
        reply = reply_or_raise(
            self._transport.pipeline([scripts.command("schedules_fire", keys=key_names, args=args)])[0]
        )
        if reply[0] == b"FULL":
            raise QueueFull(f"Queue {self._config.name!r} is at its MAX_DEPTH of {self._config.max_depth}")
        return reply


# The schedules of a queue that are created at run time: their definitions are in Redis, beside their states.

#: The fields of a schedule.
KINDS = ("definition", "created", "changed", "paused", "last", "fired", "skips")
#: The most schedules of a queue, if each has all fields.
MAX_SCHEDULES = 10_000

#: The result of creating or changing a schedule.
Defined = Literal["DEFINED", "EXISTS", "FULL", "MISSING", "CHANGED"]


class Parsed(NamedTuple):
    """The schedule of a definition and its options, or the reason why it has none."""

    entry: Scheduled | None
    options: Mapping[str, Any]
    problem: str = ""


class Loaded(NamedTuple):
    """A schedule in Redis, and the time up to which its ticks have fired, in ms since 1970."""

    name: str
    definition: bytes
    last_ms: int
    parse: Callable[[str, bytes], Parsed]

    @property
    def parsed(self) -> Parsed:
        """Return what its definition says. For one that was not read before, this takes a while."""
        return self.parse(self.name, self.definition)


class RuntimeSchedules(Schedules):
    """The schedules of one queue or partition that are created at run time."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        super().__init__(config, transport)
        self._states = config.keys.runtime_schedules
        #: Name -> its definition and that parsed, so that only changed ones are parsed again.
        self._parsed: dict[str, tuple[bytes, Parsed]] = {}

    def load(self) -> tuple[int, list[Loaded]]:
        """Return now in ms since 1970, and all definitions. One that another program wrote starts now."""
        now_ms, flat = self._run("schedules_read", [])
        states = states_of(flat)
        found = {name: state["definition"] for name, state in states.items() if "definition" in state}
        self._parsed = {name: known for name, known in self._parsed.items() if found.get(name) == known[0]}
        lasts = {name: whole(states[name].get("last"), LAST_MS) for name in found}
        return now_ms, [
            Loaded(name, found[name], now_ms if last is None else last, self._parse) for name, last in lasts.items()
        ]

    def define(
        self, name: str, definition: bytes, *, before: bytes, who: str, anew: bool = False, paused: bool = False
    ) -> Defined:
        """Create a schedule, or change it if its definition is still `before`.

        Args:
            before: the definition that it replaces; empty to create the schedule.
            who: the user.
            anew: earlier ticks of the new definition never fire.
            paused: it is created paused.
        """
        args: list[Argument] = [named("", name), definition, before, truncate(line(who), MAX_WHO)]
        args += ["1" if anew else "", "1" if paused else "", MAX_SCHEDULES * len(KINDS), self._keys.wake]
        reply: Defined = self._run("schedules_define", args).decode()
        return reply

    def delete(self, name: str) -> bool:
        """Delete a schedule, and return whether it existed. It never fires again."""
        return bool(self._run("schedules_delete", [named("", name), self._keys.wake]) == b"DELETED")

    def _required(self, name: str) -> bytes:
        return named("definition:", name)

    def _parse(self, name: str, definition: bytes) -> Parsed:
        known = self._parsed.get(name)
        if known is None or known[0] != definition:
            known = self._parsed[name] = definition, parse(self._config, name, definition)
        return known[1]


def states_of(flat: Sequence[bytes]) -> dict[str, dict[str, bytes]]:
    """Return the fields of a HASH of states by the names of schedules, then by kind."""
    states: dict[str, dict[str, bytes]] = {}
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        kind, _, name = key.decode(errors="surrogateescape").partition(":")
        states.setdefault(name, {})[kind] = value
    return states


def parse(config: QueueConfig, name: str, definition: bytes) -> Parsed:
    """Return the schedule of a definition that anybody may have written."""
    try:
        entry = read_definition(config.public_name, name, definition)
        entry.publication(config)
        return Parsed(entry, loads(definition))
    except (MQError, TypeError, RecursionError) as error:
        return Parsed(None, {}, truncate(redact_text(line(str(error))), 500))


def stamp_of(state: Mapping[str, bytes], kind: str) -> tuple[int | None, str]:
    """Return when something was done, in ms since 1970, and by whom."""
    moment, _, who = state.get(kind, b"")[:1000].decode(errors="replace").partition(" ")
    return whole(moment, LAST_MS), line(who)


#: The most bytes of the text of skipped ticks; see `lua/parts/numbers.lua`.
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


def statuses(
    config: QueueConfig, transport: Transport, *, name: str | None = None, limit: int | None = None
) -> Statuses:
    """Return every schedule that publishes to a queue or once did, by name.

    Args:
        config: a queue, or only one of its partitions.
        name: only schedules with this name: first from code or settings, last one that was removed from there.
        limit: at most so many, the first ones.
    """
    replies = transport.pipelines([_commands(part, name) for part in config.each_part])
    return _statuses(config, replies, name=name, limit=limit)


def statuses_of(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], *, limit: int | None = None
) -> list[Statuses | StoreError]:
    """Return the schedules of queues, each of which has its transport; an error for a queue that cannot be read.

    At most `limit` of each queue, the first ones by name.
    """
    parts = [
        (part, transport) for config, transport in zip(configs, transports, strict=True) for part in config.each_part
    ]
    replies = iter(fan_out([transport for _, transport in parts], [_commands(part, None) for part, _ in parts]))
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
